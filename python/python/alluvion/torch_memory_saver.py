"""The module `torch_memory_saver`, over `alluvion.torch`: for SGLang, slime, verl and others that pause and resume by it.

One line before they are imported, or one variable of the environment, puts it in the place of that package:

>>> import alluvion.torch_memory_saver  # doctest: +SKIP
>>> alluvion.torch_memory_saver.install()  # doctest: +SKIP

    PYTHONPATH=$(python -m alluvion.torch_memory_saver --path) python -m sglang.launch_server --enable-memory-saver …

Nothing is preloaded into the process, and expandable segments may be on. Tensors of a region come from the stack of `alluvion.torch`, which
is installed at the first region: that of `ALLUVION_RESOURCE`, or `pool(checked=true) | mapped`. What is kept goes to pinned memory.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, ContextManager

from alluvion._tag import untagged
from alluvion.torch import _torch
from alluvion.torch._regions import Regions, give_back


class TorchMemorySaver:
    """Regions whose tensors give their memory back (`pause`) and get it again at the same addresses (`resume`)."""

    #: As of the package.
    enabled = True

    def __init__(self) -> None:
        self._regions = Regions()

    def region(
        self,
        tag: str = "default",
        enable_cpu_backup: bool = False,
        enable_disk_backup: bool = False,
        cpu_backup_backend: str | None = None,
    ) -> ContextManager[None]:
        """Tensors that are made in the block carry the tag. With `enable_cpu_backup` their contents outlive a pause, in pinned memory."""
        if enable_disk_backup:
            raise NotImplementedError("alluvion.torch_memory_saver keeps no contents in files: take `enable_cpu_backup`")
        if cpu_backup_backend not in (None, "pinned", "mmap"):
            raise ValueError(f'cpu_backup_backend is "pinned" or "mmap", and not {cpu_backup_backend!r}')
        return self._regions.region(tag, kept=enable_cpu_backup)

    @contextmanager
    def cuda_graph(
        self,
        cuda_graph: Any,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        tag: str = "default",
        enable_cpu_backup: bool = False,
        cpu_backup_backend: str | None = None,
    ) -> Iterator[None]:
        """Captures a graph whose own memory carries the tag."""
        torch = _torch.genuine()
        capture = torch.cuda.graph(cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode)
        with self.region(tag, enable_cpu_backup, cpu_backup_backend=cpu_backup_backend), capture:
            yield

    def disable(self) -> ContextManager[None]:
        """Tensors that are made in the block are in no region."""
        return untagged()

    def pause(self, tag: str | None = None) -> None:
        """Gives the memory of a tag back, or of all. What is paused already stays so. For a tag without a region there is a warning."""
        for name in self._named(tag):
            self._regions.sleep(name)
        give_back()

    def resume(self, tag: str | None = None) -> None:
        """Gives the tensors of a tag memory again, or all of them. If there is too little it is a `MemoryError`, and can be called again."""
        for name in self._named(tag):
            self._regions.wake(name)

    def _named(self, tag: str | None) -> list[str]:
        if tag is None:
            return self._regions.names()
        if tag not in self._regions.names():
            warnings.warn(f"there has been no region with the tag {tag!r}", RuntimeWarning, stacklevel=3)
        return [tag]


#: The one of the process.
torch_memory_saver = TorchMemorySaver()


def configure_subprocess() -> ContextManager[None]:
    """Nothing: a child needs no library that is loaded before all others."""
    return nullcontext()


def install() -> None:
    """Puts this module in the place of `torch_memory_saver`, before that is imported."""
    there = sys.modules.get("torch_memory_saver")
    here = sys.modules[__name__]
    if there is not None and there is not here:
        raise RuntimeError("torch_memory_saver is imported already: call alluvion.torch_memory_saver.install() before")
    sys.modules["torch_memory_saver"] = here


def main() -> int:
    """The command `python -m alluvion.torch_memory_saver --path`: the folder for PYTHONPATH which has this as `torch_memory_saver`."""
    parser = argparse.ArgumentParser(prog="python -m alluvion.torch_memory_saver", description="Where torch_memory_saver is found as ours.")
    parser.add_argument("--path", action="store_true", required=True, help="print the folder for PYTHONPATH")
    parser.parse_args()
    print(Path(__file__).absolute().parent / "_path_of_saver")
    return 0


__all__ = ["TorchMemorySaver", "configure_subprocess", "install", "main", "torch_memory_saver"]

if __name__ == "__main__":
    sys.exit(main())
