"""What a build needs: a compiler, and folders of headers."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any


#: How a module is compiled, for every Python from 3.11 on.
_OPTIONS = ("-O2", "-fPIC", "-fvisibility=hidden", "-w", "-DPy_LIMITED_API=0x030B0000")
#: How it is linked: with the C++ library that the framework has loaded. A second copy in the module, which some compilers put there,
#: breaks at the first stream of text.
_LINK = ("-shared", "-nodefaultlibs", "-lgcc_s", "-lgcc", "-lc")


class CannotBuild(RuntimeError):
    """Something that a build needs is not here, the build has failed, or what it made does not load."""


class Needed:
    """Looks for what a build needs, and names all at once that is missing."""

    def __init__(self) -> None:
        self._missing: list[str] = []

    def miss(self, what: str) -> None:
        """Notes that something is missing."""
        self._missing.append(what)

    def check(self) -> None:
        """Raises `CannotBuild` if anything is."""
        if self._missing:
            raise CannotBuild("to build it, there is missing: " + "; ".join(self._missing))

    def compiler(self) -> str:
        """A compiler of C++."""
        found = next(filter(None, map(shutil.which, filter(None, (os.environ.get("CXX"), "g++", "c++", "clang++")))), None)
        if found is None:
            self.miss("a compiler of C++ (g++, or the one that CXX names)")
            return ""
        # The compiler runs in another folder.
        return os.path.abspath(found)

    def python(self) -> Path:
        """The headers of Python."""
        folder = Path(sysconfig.get_paths()["include"])
        if not (folder / "Python.h").exists():
            self.miss("the headers of Python (python3-dev, or what your system calls it)")
        return folder

    def header(self, name: str, folders: list[Path], what: str) -> Path:
        """The first folder that has a header."""
        found = first(name, folders)
        if found is None:
            self.miss(what)
        return found or Path("/nonexistent")

    def cuda(self, major: int) -> list[Path]:
        """The headers of CUDA's runtime."""
        folders = cuda_folders(major)
        runtime = self.header(
            "cuda_runtime_api.h", folders, "the headers of CUDA's runtime (a toolkit that CUDA_HOME names, or pip install nvidia-cuda-runtime)"
        )
        compiled = self.header(
            "crt/host_defines.h",
            [runtime, *folders],
            "CUDA's crt/host_defines.h (a toolkit, or pip install nvidia-cuda-crt, for CUDA 12 nvidia-cuda-nvcc-cu12)",
        )
        return [runtime, compiled]


def run(command: list[Any], folder: Path) -> None:
    """Runs a command in a folder where nothing lies that it could take for its own."""
    try:
        words = [str(each) for each in command]
        ended = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=folder)
    except OSError as error:
        raise CannotBuild(f"{command[0]} cannot be run: {error}") from error
    if ended.returncode != 0:
        said = (ended.stderr or ended.stdout).strip()
        first = next((line for line in said.splitlines() if "error" in line.lower()), said[-500:])
        raise CannotBuild(f"{Path(str(command[0])).name} has failed: {first}\nThe whole command was {' '.join(map(str, command))}")


def compile_module(
    compiler: str, standard: int, macros: Iterable[str], headers: Iterable[Path | str], source: Path, libraries: Iterable[str], module: Path
) -> None:
    """Compiles a source of C++ into a module, in the folder that the module goes to."""
    defined = [f"-D{macro}" for macro in macros]
    folders = [f"-I{os.path.abspath(each)}" for each in headers]
    run([compiler, f"-std=c++{standard}", *_OPTIONS, *defined, *folders, source, "-o", module, *libraries, *_LINK], module.parent)


def imported(package: str, door: str) -> Any:
    """A framework that a door is for, or an `ImportError` that says why it cannot be imported."""
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(f"{door} needs the package {package}, which cannot be imported: {error}") from error


def version_of(module: Any) -> tuple[str, tuple[int, int]]:
    """The version of a framework as its text, and its first two numbers, which are 0 where it has none."""
    text = str(getattr(module, "__version__", "unknown"))
    numbers = text.split(".")
    try:
        return text, (int(numbers[0]), int(numbers[1]))
    except (IndexError, ValueError):
        return text, (0, 0)


def cuda_folders(major: int) -> list[Path]:
    """Where headers of CUDA may be, the most likely ones first."""
    named = [Path(os.environ[name], "include") for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    names = ["cuda_runtime", "cuda_nvcc", "cuda_crt"]
    names.insert(0 if major >= 13 else len(names), "cu13")
    # Wheels of CUDA share the package `nvidia`, which has a folder for each place that packages are installed in.
    of_wheels = [wheels / name / "include" for name in names for wheels in packages("nvidia")]
    conda = Path(sys.prefix, "targets", f"{platform.machine()}-linux", "include")
    return [*named, *of_wheels, conda, Path("/usr/local/cuda/include")]


def packages(name: str) -> list[Path]:
    """The folders of a package, of which one without an `__init__.py` may have several; none if it is not installed."""
    spec = importlib.util.find_spec(name)
    places = spec.submodule_search_locations if spec is not None else None
    return [Path(place) for place in places or ()]


def package(name: str) -> Path:
    """The folder of a package; one that does not exist if it is not installed."""
    return next(iter(packages(name)), Path("/nonexistent"))


def first(header: str, folders: list[Path]) -> Path | None:
    """The first folder that has a header."""
    return next((folder for folder in folders if (folder / header).exists()), None)


__all__ = ["CannotBuild", "Needed", "compile_module", "cuda_folders", "first", "imported", "package", "packages", "run", "version_of"]
