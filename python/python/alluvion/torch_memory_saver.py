"""The module `torch_memory_saver`, over `alluvion.torch`: for SGLang, slime, verl and others that pause and resume by it.

One line before they are imported, or one variable of the environment, puts it in the place of that package:

>>> import alluvion.torch_memory_saver  # doctest: +SKIP
>>> alluvion.torch_memory_saver.install()  # doctest: +SKIP

    PYTHONPATH=$(python -m alluvion.torch_memory_saver --path) python -m sglang.launch_server --enable-memory-saver …

Nothing is preloaded into the process, and expandable segments may be on. Tensors of a region come from the stack of `alluvion.torch`, which
is installed at the first region: that of `ALLUVION_RESOURCE`, or `pool(checked=true) | mapped`. What is kept goes to pinned memory,
or to files.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from os import PathLike, fspath
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
        self._folder: str | None = None

    def region(
        self,
        tag: str = "default",
        enable_cpu_backup: bool = False,
        enable_disk_backup: bool = False,
        cpu_backup_backend: str | None = None,
    ) -> ContextManager[None]:
        """Tensors that are made in the block carry the tag. With `enable_cpu_backup` their contents outlive a pause, in pinned memory, and with
        `enable_disk_backup` in a file of the folder that `set_disk_backup_dir` names, or else of that for temporary files.

        Within another region they are of the inner one alone.
        """
        if enable_disk_backup and enable_cpu_backup:
            raise ValueError("contents are kept once: take `enable_cpu_backup` or `enable_disk_backup`")
        if cpu_backup_backend not in (None, "pinned", "mmap"):
            raise ValueError(f'cpu_backup_backend is "pinned" or "mmap", and not {cpu_backup_backend!r}')
        return self._regions.region(tag, "disk" if enable_disk_backup else "host" if enable_cpu_backup else "nothing")

    def set_disk_backup_dir(self, path: str | PathLike[str]) -> None:
        """Names the folder for what is paused from now on."""
        self._folder = fspath(path)

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
        """Gives the memory of a tag back, or of all. What is paused already stays so. For a tag without a region there is a warning. With an error
        all that this call has paused is resumed.
        """
        self._regions.sleep(self._named(tag), folder=self._folder or tempfile.gettempdir())
        give_back()

    def resume(self, tag: str | None = None) -> None:
        """Gives the tensors of a tag memory again, or all of them. If there is too little it is a `MemoryError`, and can be called again."""
        self._regions.wake(self._named(tag))

    def get_cpu_backup(self, x: Any, zero_copy: bool = False) -> Any:
        """The contents of a tensor that is paused, as a tensor of the host. `None` if they are not kept in memory of the host: its region has no
        `enable_cpu_backup`, or it is not paused. It is a copy, also with `zero_copy`: memory that is kept goes when the tensor is resumed.
        """
        torch = _torch.genuine()
        if x.device.type != "cuda" or not x.is_contiguous():
            raise ValueError(f"what is kept is that of a contiguous tensor on a GPU, and not of one on {x.device}")
        contents = self._regions.kept(x.device.index, x.data_ptr(), x.numel() * x.element_size())
        # A tensor without an element has no memory.
        return torch.frombuffer(contents, dtype=x.dtype).view(x.shape) if contents else None

    def _named(self, tag: str | None) -> list[str]:
        if tag is None:
            return self._regions.names()
        if tag not in self._regions.names():
            warnings.warn(f"there has been no region with the tag {tag!r}", RuntimeWarning, stacklevel=3)
        return [tag]


#: The one of the process. If the module is loaded again it stays: what is paused is known to it alone.
torch_memory_saver: TorchMemorySaver = globals().get("torch_memory_saver") or TorchMemorySaver()


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
