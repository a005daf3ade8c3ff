"""vLLM's sleep mode over `alluvion.torch`: an object in the place of `vllm.device_allocator.cumem.CuMemAllocator`.

`ALLUVION_VLLM=1` in the environment is all: vLLM calls `register` in each of its processes, as a plug-in of this package. A recipe in the
place of the `1` is the stack, which must have a pool over pages that knows its tags: `stats | pool(checked=true) | mapped`.

    ALLUVION_VLLM=1 vllm serve MODEL --enable-sleep-mode

Then weights, cache and graphs come from one stack. `POST /sleep` gives their memory back in one piece a round, addresses stay, and captured
graphs replay after `POST /wake_up`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from alluvion.errors import OutOfMemory
from alluvion.torch import _torch
from alluvion.torch._regions import RECIPE, Regions, give_back

_MODULE = "vllm.device_allocator.cumem"


class NoRoom(OutOfMemory, RuntimeError):
    """Too little memory to wake what sleeps. vLLM expects a `RuntimeError`."""


class MemAllocator:
    """What vLLM asks of its memory allocator: regions by tags, which sleep and wake."""

    #: The tag of what names none.
    default_tag = "default"

    def __init__(self) -> None:
        self._regions = Regions()

    def use_memory_pool(self, tag: str | None = None) -> Any:
        """Tensors that are made in the block carry the tag."""
        return self._regions.region(tag or self.default_tag)

    @contextmanager
    def cudagraph_pool(self) -> Iterator[Any]:
        """A pool for graphs, whose own memory carries the tag `cudagraph`."""
        torch = _torch.genuine()
        with self._regions.region("cudagraph"):
            yield torch.cuda.graph_pool_handle()

    def sleep(self, offload_tags: Iterable[str] | str | None = None) -> None:
        """Gives all memory back that has a tag. The contents of these tags are kept in pinned memory, those of all others are lost.

        What sleeps already stays as it is; what was made since sleeps, too. With an error all that this call has put to sleep is awake again.
        """
        kept = (self.default_tag,) if offload_tags is None else (offload_tags,) if isinstance(offload_tags, str) else tuple(offload_tags)
        self._regions.sleep(self._regions.names(), lambda name: "host" if name in kept else "nothing")
        give_back()

    def discard(self, tags: Iterable[str] | str) -> None:
        """Gives the memory of these tags back. Their contents are lost."""
        self._regions.sleep((tags,) if isinstance(tags, str) else tuple(tags), lambda _: "nothing")
        give_back()

    def wake_up(self, tags: Iterable[str] | str | None = None) -> None:
        """Gives the tensors of these tags memory again, or all of them, with what was kept. After `NoRoom` it can be tried again."""
        try:
            self._regions.wake(self._regions.names() if tags is None else (tags,) if isinstance(tags, str) else tuple(tags))
        except MemoryError as error:
            refused = NoRoom(*error.args)
            vars(refused).update(vars(error))
            raise refused from error

    def get_current_usage(self) -> int:
        """The bytes of what was allocated in regions, and is out and awake."""
        return self._regions.live_bytes()

    def release_pools(self) -> None:
        """Nothing: no pool has to go before the interpreter ends."""

    def close(self) -> None:
        """Nothing, as `release_pools`."""


#: The one of the process. If the module is loaded again it stays: what sleeps is known to it alone.
instance: MemAllocator = globals().get("instance") or MemAllocator()


def _put_into(module: ModuleType) -> None:
    if not hasattr(module, "CuMemAllocator"):
        raise ImportError(f"{_MODULE} of this vLLM has no CuMemAllocator, in whose place alluvion.vllm is: leave out ALLUVION_VLLM")
    module.CuMemAllocator.instance = instance


class _AfterImport(MetaPathFinder, Loader):
    """Puts `instance` into vLLM's module as soon as that is imported: vLLM's servers, which use no GPU, import it never."""

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module as it is, and this as who loads it."""
        if fullname != _MODULE:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if found is None or found.loader is None:
            return None
        self._loader, found.loader = found.loader, self
        return found

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the module's own loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Loads the module, and puts the object there."""
        # It is the module's again, for those who ask it for the source.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _put_into(module)


def register() -> None:
    """Has vLLM take its memory from here, if `ALLUVION_VLLM` says so. vLLM calls it, and may call it twice."""
    wish = os.environ.get("ALLUVION_VLLM", "")
    if wish in ("", "0"):
        return
    if wish != "1":
        os.environ.setdefault("ALLUVION_RESOURCE", wish)
    there = sys.modules.get(_MODULE)
    if there is not None:
        _put_into(there)
    elif not any(type(each).__qualname__ == "_AfterImport" and type(each).__module__ == __name__ for each in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport())


__all__ = ["RECIPE", "MemAllocator", "NoRoom", "instance", "register"]
