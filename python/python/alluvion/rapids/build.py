"""The compiled module of `alluvion.rapids`: where it is, and how it is built. `python -m alluvion.rapids.build` builds it ahead.

It is built for the RMM that is installed, once for a user: into `$XDG_CACHE_HOME/alluvion/rapids`, or with `--beside` into the folder of
this package, for all users, as in the image of a container which has no compiler where it runs. That takes ten seconds, Cython,
a compiler of C++17 (of C++20 for RMM 26.10), the headers of Python, and those of CUDA's runtime, of a toolkit or of the wheels
`nvidia-cuda-runtime` and `nvidia-cuda-crt` (for CUDA 12 `nvidia-cuda-runtime-cu12` and `nvidia-cuda-nvcc-cu12`).
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import platform
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from alluvion._include import get_include
from alluvion.rapids import _rmm

_NAME = "alluvion.rapids._compiled"
_SOURCES = Path(__file__).parent / "source"
_BESIDE = Path(__file__).parent / "built"


class CannotBuild(RuntimeError):
    """Something that a build needs is not here, or the build has failed."""


def load() -> ModuleType:
    """The compiled module for the RMM of this process, which is built if there is none. `CannotBuild` says why there is none then."""
    found = sys.modules.get(_NAME)
    if found is not None:
        return found
    rmm = _rmm.genuine()
    name, cache = _file_name(rmm), _cache()
    module = _loaded(_BESIDE / name, rmm)
    if module is not None:
        return module
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_own(cache)
        module = _loaded(cache / name, rmm)
        if module is not None:
            return module
        with _lock(cache / "lock"):
            # Another process may have built it while this one waited.
            module = _loaded(cache / name, rmm)
            if module is None:
                _build_into(cache, rmm)
                module = _loaded(cache / name, rmm)
    except OSError:
        # There is no place to keep it: this process builds its own.
        with tempfile.TemporaryDirectory(prefix="alluvion-rapids-") as scratch:
            _build_into(Path(scratch), rmm)
            module = _loaded(Path(scratch, name), rmm)
    if module is None:
        raise CannotBuild(f"the module that was built for rmm {rmm.__version__} cannot be imported: it was built with headers of another RMM")
    return module


def build(*, beside: bool = False) -> Path:
    """Builds the module for the RMM that is installed, whether there is one or not, and returns its path.

    With `beside` it goes into the folder of this package, for all users of the machine, and else where the user's caches are.
    """
    folder = _BESIDE if beside else _cache()
    folder.mkdir(mode=0o755 if beside else 0o700, parents=True, exist_ok=True)
    if not beside:
        _require_own(folder)
    return _build_into(folder, _rmm.genuine())


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "alluvion" / "rapids"


def _require_own(folder: Path) -> None:
    """What lies there is loaded into the process."""
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CannotBuild(f"{folder} belongs to another user, or others may write there: name another place with XDG_CACHE_HOME")


def _file_name(rmm: Any) -> str:
    """One name for what was built of the same sources, for the same RMM and kind of machine."""
    digest = hashlib.sha256()
    for source in (*sorted(_SOURCES.iterdir()), Path(get_include(), "alluvion", "door.h")):
        if source.is_file():
            digest.update(source.read_bytes())
    digest.update(repr(_rmm.KINDS[_rmm.version_of(rmm)]).encode())
    return f"rmm-{rmm.__version__}-{digest.hexdigest()[:12]}-{platform.machine()}.abi3.so"


def _loaded(path: Path, rmm: Any) -> ModuleType | None:
    """The module of a file; `None` if it is not there, or of another RMM with the same number."""
    if not path.exists():
        return None
    loader = ExtensionFileLoader(_NAME, str(path))
    spec = importlib.util.spec_from_file_location(_NAME, path, loader=loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        if "alluvion has version" in str(error):
            raise
        return None
    if tuple(module.built_for) != _rmm.version_of(rmm):
        return None
    sys.modules[_NAME] = module
    return module


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One build at a time: workers of a cluster start together."""
    import fcntl

    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build_into(folder: Path, rmm: Any) -> Path:
    version = _rmm.version_of(rmm)
    kind = _rmm.KINDS[version]
    compiler, includes, libraries = _needed()
    made = folder / _file_name(rmm)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as scratch:
        source, module = Path(scratch, "resource.cpp"), Path(scratch, "module.so")
        site = Path(rmm.__file__).parent.parent
        _run([sys.executable, "-m", "cython", "-3", "--cplus", "-I", site, "--module-name", _NAME, _SOURCES / kind.source, "-o", source])
        options = [f"-std=c++{kind.standard}", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w"]
        macros = ["-DPy_LIMITED_API=0x030B0000", *(f"-D{macro}" for macro in kind.macros)]
        folders = [f"-I{each}" for each in (_SOURCES, get_include(), *includes, sysconfig.get_paths()["include"])]
        # `import rmm` has loaded the library, which is then found by its name.
        link = [*(f"-L{each}" for each in libraries), "-lrmm"]
        _run([compiler, *options, *macros, *folders, source, "-o", module, *link])
        # In one step, so that nobody finds a part of it.
        os.replace(module, made)
    return made


def _run(command: list[Any]) -> None:
    try:
        ended = subprocess.run([str(each) for each in command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise CannotBuild(f"{command[0]} cannot be run: {error}") from error
    if ended.returncode != 0:
        said = (ended.stderr or ended.stdout).strip()
        first = next((line for line in said.splitlines() if "error" in line.lower()), said[-500:])
        raise CannotBuild(f"{Path(str(command[0])).name} has failed: {first}\nThe whole command was {' '.join(map(str, command))}")


def _needed() -> tuple[str, list[Path], list[Path]]:
    """The compiler, and the folders of headers and of libraries. What is missing is named all at once."""
    missing = []
    compiler = next(filter(None, map(shutil.which, filter(None, (os.environ.get("CXX"), "g++", "c++", "clang++")))), None)
    if compiler is None:
        missing.append("a compiler of C++ (g++, or the one that CXX names)")
    if importlib.util.find_spec("Cython") is None:
        missing.append("Cython (pip install cython)")
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        missing.append("the headers of Python (python3-dev, or what your system calls it)")
    rmm, logger = _package("librmm"), _package("rapids_logger")
    prefix = Path(sys.prefix)
    headers = _first("rmm/resource_ref.hpp", [rmm / "include", prefix / "include"])
    if headers is None:
        missing.append("the headers of RMM (librmm)")
    logs = _first("rapids_logger/logger.hpp", [logger / "include", prefix / "include"])
    if logs is None:
        missing.append("the headers of rapids-logger")
    cuda = _cuda_folders()
    runtime = _first("cuda_runtime_api.h", cuda)
    if runtime is None:
        missing.append("the headers of CUDA's runtime (a toolkit that CUDA_HOME names, or pip install nvidia-cuda-runtime)")
    compiled = _first("crt/host_defines.h", [*([runtime] if runtime else []), *cuda])
    if compiled is None:
        missing.append("CUDA's crt/host_defines.h (a toolkit, or pip install nvidia-cuda-crt, for CUDA 12 nvidia-cuda-nvcc-cu12)")
    if missing or compiler is None or headers is None or logs is None or runtime is None or compiled is None:
        raise CannotBuild("to build it, there is missing: " + "; ".join(missing))
    # RMM's own CCCL comes before that of a toolkit.
    includes = [headers / "rapids", headers, logs, runtime, compiled]
    return compiler, includes, [each for each in (rmm / "lib64", rmm / "lib", prefix / "lib") if each.is_dir()]


def _cuda_folders() -> list[Path]:
    """Where headers of CUDA may be, the most likely ones first."""
    named = [Path(os.environ[name], "include") for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    wheels = _package("nvidia")
    of_wheels = [wheels / "cuda_runtime" / "include", wheels / "cuda_nvcc" / "include", wheels / "cuda_crt" / "include"]
    of_wheels.insert(0 if _cuda_major() >= 13 else len(of_wheels), wheels / "cu13" / "include")
    conda = Path(sys.prefix, "targets", f"{platform.machine()}-linux", "include")
    return [*named, *of_wheels, conda, Path("/usr/local/cuda/include")]


def _cuda_major() -> int:
    try:
        from importlib.metadata import version

        return int(version("cuda-bindings").split(".")[0])
    except (ImportError, ValueError):
        return 0


def _package(name: str) -> Path:
    """The folder of a package; one that does not exist if it is not installed."""
    spec = importlib.util.find_spec(name)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else Path("/nonexistent")


def _first(header: str, folders: list[Path]) -> Path | None:
    return next((folder for folder in folders if (folder / header).exists()), None)


def main() -> int:
    """The command `python -m alluvion.rapids.build`."""
    parser = argparse.ArgumentParser(prog="python -m alluvion.rapids.build", description="Builds the module for the RMM that is installed.")
    parser.add_argument("--beside", action="store_true", help="into the folder of the package, for all users of the machine")
    wish = parser.parse_args()
    try:
        print(build(beside=wish.beside))
    except (CannotBuild, ImportError, OSError) as error:
        print(f"alluvion.rapids.build: {error}", file=sys.stderr)
        return 1
    return 0


__all__ = ["CannotBuild", "build", "load", "main"]

if __name__ == "__main__":
    sys.exit(main())
