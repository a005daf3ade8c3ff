"""The compiled module of `alluvion.rapids`: where it is, and how it is built. `python -m alluvion.rapids.build` builds it ahead.

It is built for the RMM that is installed, once for a user: into `$XDG_CACHE_HOME/alluvion/rapids`, or with `--beside` into the folder of
this package, for all users, as in the image of a container which has no compiler where it runs. That takes ten seconds, Cython,
a compiler of C++17 (of C++20 for RMM 26.10), the headers of Python, and those of CUDA's runtime, of a toolkit or of the wheels
`nvidia-cuda-runtime` and `nvidia-cuda-crt` (for CUDA 12 `nvidia-cuda-runtime-cu12` and `nvidia-cuda-nvcc-cu12`).

A module is kept and loaded only where nobody but the user and root can exchange it. Without such a place a process builds its own.
Nothing is built where the wheel `alluvion-rapids` of the same version is installed, which has a module for each RMM (`ci/rapids-wheel`).
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from alluvion._compiled import CannotBuild, Door, Needed, compile_module, package, run
from alluvion._include import get_include
from alluvion.rapids import _rmm


class _Rapids(Door):
    def framework(self) -> str:
        return f"rmm {_rmm.genuine().__version__}"

    def options(self) -> str:
        return repr(_rmm.KINDS[_rmm.version_of(_rmm.genuine())])

    def built_for_another(self, module: ModuleType) -> str | None:
        if tuple(module.built_for) == _rmm.version_of(_rmm.genuine()):
            return None
        return "rmm {}.{:02}".format(*module.built_for)

    def compile(self, scratch: Path, module: Path) -> None:
        rmm = _rmm.genuine()
        kind = _rmm.KINDS[_rmm.version_of(rmm)]
        compiler, includes, libraries = needed()
        source = scratch / "resource.cpp"
        site = os.path.abspath(Path(rmm.__file__).parent.parent)
        # `-P`: `-m` alone takes modules of the current directory before those that are installed.
        cython = [sys.executable, "-P", "-m", "cython", "-3", "--cplus", "-I", site, "--module-name", self.name]
        run([*cython, self.sources / kind.source, "-o", source], scratch)
        # `import rmm` has loaded the library, which is then found by its name.
        links = [*(f"-L{os.path.abspath(each)}" for each in libraries), "-lrmm"]
        compile_module(compiler, kind.standard, kind.macros, [self.sources, get_include(), *includes], source, links, module)


def needed() -> tuple[str, list[Path], list[Path]]:
    """The compiler, and the folders of headers and of libraries. What is missing is named all at once."""
    find = Needed()
    compiler = find.compiler()
    if importlib.util.find_spec("Cython") is None:
        find.miss("Cython (pip install cython)")
    python = find.python()
    rmm, logger = package("librmm"), package("rapids_logger")
    prefix = Path(sys.prefix)
    headers = find.header("rmm/resource_ref.hpp", [rmm / "include", prefix / "include"], "the headers of RMM (librmm)")
    logs = find.header("rapids_logger/logger.hpp", [logger / "include", prefix / "include"], "the headers of rapids-logger")
    cuda = find.cuda(_cuda_major())
    find.check()
    # RMM's own CCCL comes before that of a toolkit.
    includes = [headers / "rapids", headers, logs, *cuda, python]
    return compiler, includes, [each for each in (rmm / "lib64", rmm / "lib", prefix / "lib") if each.is_dir()]


def _cuda_major() -> int:
    try:
        from importlib.metadata import version

        return int(version("cuda-bindings").split(".")[0])
    except (ImportError, ValueError):
        return 0


_DOOR = _Rapids("RMM", "alluvion.rapids", __file__, wheel="alluvion_rapids")
load, build, main = _DOOR.load, _DOOR.build, _DOOR.main

__all__ = ["CannotBuild", "build", "load", "main"]

if __name__ == "__main__":
    sys.exit(main())
