"""Tensors that give their memory back and keep their addresses, by the tags that a framework names."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import alluvion.torch
from alluvion import _alluvion
from alluvion._fork import ForkLock
from alluvion._stack import Stack
from alluvion._tag import current_tag, tag
from alluvion.torch import _torch

#: The stack that the adapters install where none is: over pages, which a sleep needs, with a ledger, which knows the tags.
RECIPE = "pool(checked=true) | mapped"


class Regions:
    """What was allocated under each tag, and what of it sleeps. The tags are those of the framework; ours carry the scopes around them."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        #: The full tags of each of the framework's, and whether what is kept of them goes to the host.
        self._tags: dict[str, dict[str, bool]] = {}
        self._asleep: dict[tuple[str, int], _alluvion.Sleeper] = {}

    @contextmanager
    def region(self, name: str, kept: bool | None = None) -> Iterator[None]:
        """Labels the tensors that this thread makes in the block. `kept` is what `sleep` does with them if it is not told."""
        ensure_installed()
        with ExitStack() as scopes:
            scopes.enter_context(tag(name))
            if kept is not None:
                # Those that are kept and those that are not may have one tag in the framework.
                scopes.enter_context(tag("kept" if kept else "dropped"))
            full = current_tag()
            with self._lock:
                self._tags.setdefault(name, {})[full] = bool(kept)
            yield

    def names(self) -> list[str]:
        """The tags that there has been a region of."""
        with self._lock:
            return list(self._tags)

    def is_asleep(self, name: str) -> bool:
        """Whether memory of a tag sleeps."""
        with self._lock:
            return any(full in self._tags.get(name, ()) for full, _ in self._asleep)

    def live_bytes(self) -> int:
        """The bytes of what was allocated in regions, and is out and awake."""
        with self._lock:
            tags = [full for each in self._tags.values() for full in each]
        return sum(
            block["bytes"]
            for _, stack in stacks()
            for block in stack.snapshot().facts["blocks"]
            if block["state"] == "live" and any(block.get("tag", "") == full or block.get("tag", "").startswith(f"{full};") for full in tags)
        )

    def sleep(self, name: str, kept: bool | None = None) -> None:
        """Gives the memory of a tag back, on all devices. With an error all of it is awake as before."""
        torch = _torch.genuine()
        with self._lock:
            made: list[tuple[str, int]] = []
            try:
                for full, keeps in self._tags.get(name, {}).items():
                    keep = keeps if kept is None else kept
                    for device, stack in stacks():
                        if (full, device) in self._asleep:
                            continue
                        torch.cuda.synchronize(device)
                        self._asleep[full, device] = stack.sleep(full, keep="host" if keep else "nothing")
                        made.append((full, device))
            except BaseException:
                for each in made:
                    self._asleep[each].wake()
                    del self._asleep[each]
                raise

    def wake(self, name: str) -> None:
        """Gives the memory of a tag back to its tensors, with what was kept. A `MemoryError` leaves asleep what it has not woken."""
        with self._lock:
            for full, device in [each for each in self._asleep if each[0] in self._tags.get(name, ())]:
                self._asleep[full, device].wake()
                del self._asleep[full, device]


def ensure_installed() -> None:
    """Installs the stack of `ALLUVION_RESOURCE`, or of `RECIPE`, if none is."""
    if alluvion.torch.installed() is None:
        alluvion.torch.install(os.environ.get("ALLUVION_RESOURCE") or RECIPE)


def stacks() -> list[tuple[int, Stack]]:
    """The stacks that tensors come from."""
    return sorted((alluvion.torch.installed() or {}).items())


def give_back() -> None:
    """Gives back what nobody uses, as frameworks do after a sleep."""
    torch: Any = _torch.genuine()
    gc.collect()
    torch.cuda.empty_cache()


__all__ = ["RECIPE", "Regions", "ensure_installed", "give_back", "stacks"]
