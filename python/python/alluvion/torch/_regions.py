"""Tensors that give their memory back and keep their addresses, by the tags that a framework names."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import alluvion.torch
from alluvion import _alluvion
from alluvion._fork import ForkLock
from alluvion._stack import Stack
from alluvion._tag import current_tag, tag, untagged
from alluvion.torch import _torch

#: The stack that the adapters install where none is: over pages, which a sleep needs, with a ledger, which knows the tags.
RECIPE = "pool(checked=true) | mapped"


Keep = Literal["host", "disk", "nothing"]

# A region is open around the caller. Coroutines and threads have values of their own.
_within: ContextVar[bool] = ContextVar("alluvion.torch.within_a_region", default=False)


class _Asleep(NamedTuple):
    """What one call has put to sleep of a tag, on one device."""

    full: str
    device: int
    sleeper: _alluvion.Sleeper


class Regions:
    """What was allocated under each tag, and what of it sleeps. The tags are those of the framework; ours carry the scopes around them."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        #: The full tags of each of the framework's, and where what is kept of them goes to.
        self._tags: dict[str, dict[str, Keep]] = {}
        #: In the order in which it was put to sleep. A tag is there more than once if tensors were made while it slept, and then slept, too.
        self._asleep: list[_Asleep] = []

    @contextmanager
    def region(self, name: str, keep: Keep | None = None) -> Iterator[None]:
        """Labels the tensors that this thread makes in the block. `keep` is what `sleep` does with them if it is not told.

        A region within another one takes its place: its tensors are of the inner region alone.
        """
        ensure_installed()
        with ExitStack() as scopes:
            if _within.get():
                # A tag sleeps with all that lies within it.
                scopes.enter_context(untagged())
            scopes.callback(_within.reset, _within.set(True))
            scopes.enter_context(tag(name))
            if keep is not None:
                # Those that are kept and those that are not may have one tag in the framework.
                scopes.enter_context(tag(_SCOPE_OF[keep]))
            full = current_tag()
            with self._lock:
                self._tags.setdefault(name, {})[full] = keep or "nothing"
            yield

    def names(self) -> list[str]:
        """The tags that there has been a region of."""
        with self._lock:
            return list(self._tags)

    def is_asleep(self, name: str) -> bool:
        """Whether memory of a tag sleeps."""
        with self._lock:
            return any(each.full in self._tags.get(name, ()) for each in self._asleep)

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

    def sleep(self, names: Iterable[str], keep: Callable[[str], Keep] | None = None, folder: str | None = None) -> None:
        """Gives the memory of tags back, on all devices; what sleeps already stays as it is. `keep` says for each what becomes of the contents,
        in place of the region, and `folder` where those go to that are kept on a disk. With an error all that this call has put to sleep is
        awake again.
        """
        torch = _torch.genuine()
        with self._lock:
            made: list[_Asleep] = []
            try:
                for name in names:
                    for full, own in self._tags.get(name, {}).items():
                        kept = own if keep is None else keep(name)
                        for device, stack in stacks():
                            torch.cuda.synchronize(device)
                            sleeper = stack.sleep(full, keep=kept, folder=folder if kept == "disk" else None)
                            if sleeper.blocks:
                                made.append(_Asleep(full, device, sleeper))
            except BaseException:
                # One that cannot be woken now is woken by a later `wake`: the cause is the error that the caller has to see.
                self._asleep += [each for each in made if not _is_woken(each.sleeper)]
                raise
            self._asleep += made

    def wake(self, names: Iterable[str]) -> None:
        """Gives the memory of tags back to their tensors, with what was kept. An error, such as a `MemoryError`, leaves asleep what it has not
        woken, and it can be called again.
        """
        with self._lock:
            wanted = {full for name in names for full in self._tags.get(name, ())}
            for each in [each for each in self._asleep if each.full in wanted]:
                each.sleeper.wake()
                self._asleep.remove(each)


    def kept(self, device: int, address: int, size: int) -> bytearray | None:
        """The contents of so many bytes of a tensor that sleeps and whose contents are in memory of the host."""
        with self._lock:
            found = (each.sleeper.kept(address, size) for each in self._asleep if each.device == device)
            return next((contents for contents in found if contents is not None), None)


#: The scope within a region's, by what is kept of its tensors.
_SCOPE_OF: dict[Keep, str] = {"host": "kept", "disk": "on disk", "nothing": "dropped"}


def _is_woken(sleeper: _alluvion.Sleeper) -> bool:
    try:
        sleeper.wake()
    except Exception:
        return False
    return True


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
