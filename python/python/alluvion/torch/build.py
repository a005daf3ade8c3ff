"""The compiled module of `alluvion.torch`: where it is, and how it is built. `python -m alluvion.torch.build` builds it ahead.

It is built for the PyTorch that is installed, once for a user: into `$XDG_CACHE_HOME/alluvion/torch`, or with `--beside` into the folder
of this package, for all users, as in the image of a container which has no compiler where it runs. That takes half a minute,
a compiler of C++17 (of C++20 from PyTorch 2.12 on), the headers of Python, and those of CUDA's runtime, of a toolkit or of the wheels
`nvidia-cuda-runtime` and `nvidia-cuda-crt` (for CUDA 12 `nvidia-cuda-runtime-cu12` and `nvidia-cuda-nvcc-cu12`).

A module is kept and loaded only where nobody but the user and root can exchange it. Without such a place a process builds its own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from alluvion._compiled import CannotBuild, Door, Needed, compile_module
from alluvion._include import get_include
from alluvion.torch import _torch


class _Torch(Door):
    def framework(self) -> str:
        return f"torch {_torch.genuine().__version__}"

    def options(self) -> str:
        torch = _torch.genuine()
        # Two builds of one version may differ.
        return f"CUDA {torch.version.cuda}, {torch.version.git_version}, {torch.compiled_with_cxx11_abi()}"

    def built_for_another(self, module: ModuleType) -> str | None:
        if module.built_for == _torch.minor_of(_torch.genuine()):
            return None
        return f"torch 2.{module.built_for}"

    def compile(self, scratch: Path, module: Path) -> None:
        torch = _torch.genuine()
        minor = _torch.minor_of(torch)
        home = Path(torch.__file__).absolute().parent
        find = Needed()
        compiler = find.compiler()
        headers = [find.header("c10/cuda/CUDACachingAllocator.h", [home / "include"], "the headers of PyTorch")]
        headers += find.cuda(int(torch.version.cuda.split(".")[0]))
        headers.append(find.python())
        find.check()
        # `import torch` has loaded the libraries, which are then found by their names, and that of CUDA's runtime with them.
        libraries = [f"-L{home / 'lib'}", "-lc10_cuda", "-lc10", "-ltorch_cuda"]
        folders: list[str | Path] = [self.sources, get_include(), *headers]
        standard = 20 if minor >= 12 else 17
        compile_module(compiler, standard, [f"ALLUVION_TORCH={minor}"], folders, self.sources / "module.cpp", libraries, module)


_DOOR = _Torch("PyTorch", "alluvion.torch", __file__)
load, build, main = _DOOR.load, _DOOR.build, _DOOR.main

__all__ = ["CannotBuild", "build", "load", "main"]

if __name__ == "__main__":
    sys.exit(main())
