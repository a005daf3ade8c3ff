"""The compiled module of `alluvion.rapids`: where it is, and how it is built. `python -m alluvion.rapids.build` builds it ahead.

It is built for the RMM that is installed, once for a user: into `$XDG_CACHE_HOME/alluvion/rapids`, or with `--beside` into the folder of
this package, for all users, as in the image of a container which has no compiler where it runs. That takes ten seconds, Cython,
a compiler of C++17 (of C++20 for RMM 26.10), the headers of Python, and those of CUDA's runtime, of a toolkit or of the wheels
`nvidia-cuda-runtime` and `nvidia-cuda-crt` (for CUDA 12 `nvidia-cuda-runtime-cu12` and `nvidia-cuda-nvcc-cu12`).

A module is kept and loaded only where nobody but the user and root can exchange it. Without such a place a process builds its own.
"""

from __future__ import annotations

import argparse
import errno
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
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from alluvion._include import get_include
from alluvion.rapids import _rmm

_NAME = "alluvion.rapids._compiled"
_SOURCES = Path(__file__).absolute().parent / "source"
_BESIDE = Path(__file__).absolute().parent / "built"
#: Whoever may write to a file or folder besides its owner.
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class CannotBuild(RuntimeError):
    """Something that a build needs is not here, the build has failed, or what it made does not load."""


def load() -> ModuleType:
    """The compiled module for the RMM of this process, which is built if there is none. `CannotBuild` says why there is none then."""
    found = sys.modules.get(_NAME)
    if found is not None:
        return found
    rmm = _rmm.genuine()
    name = _file_name(rmm)
    broken: CannotBuild | None = None
    try:
        module = _beside(name, rmm)
        if module is not None:
            return module
    except CannotBuild as error:
        broken = error
    try:
        return _kept_or_own(name, rmm)
    except CannotBuild as error:
        if broken is None:
            raise
        raise CannotBuild(f"{broken}. Nor is there another one: {error}") from broken


def build(*, beside: bool = False) -> Path:
    """Builds the module for the RMM that is installed, whether there is one or not, and returns its path.

    With `beside` it goes into the folder of this package, for all users of the machine, and else where the user's caches are.
    """
    rmm = _rmm.genuine()
    if not beside:
        return _build_into(_own(_cache()), rmm)
    _BESIDE.mkdir(parents=True, exist_ok=True)
    # Whatever the umask is: all users read it.
    if stat.S_IMODE(_BESIDE.stat().st_mode) != 0o755:
        _BESIDE.chmod(0o755)
    return _build_into(_BESIDE, rmm)


def _beside(name: str, rmm: Any) -> ModuleType | None:
    """The module beside the package. The owner of the package may have built it: the package itself is code of the same user."""
    try:
        owners = {0, os.geteuid(), os.stat(__file__).st_uid}
        folder = os.lstat(_BESIDE)
        if not stat.S_ISDIR(folder.st_mode) or folder.st_uid not in owners or folder.st_mode & _OTHERS:
            return None
        return _loaded(_BESIDE / name, rmm, owners)
    except OSError:
        # A user who may not look there has none there.
        return None


def _kept_or_own(name: str, rmm: Any) -> ModuleType:
    """The module in the user's cache, or where there is no place to keep one, a module of this process alone."""
    with suppress(OSError):
        return _kept(name, rmm)
    try:
        with tempfile.TemporaryDirectory(prefix="alluvion-rapids-") as scratch:
            return _required(_build_into(_own(Path(scratch).absolute()), rmm), rmm)
    except OSError as error:
        raise CannotBuild(f"there is no place to build it, which TMPDIR may name: {error}") from error


def _kept(name: str, rmm: Any) -> ModuleType:
    """The module in the user's cache, which is built if there is none that loads. `OSError`: there is no place to keep it."""
    path = _own(_cache()) / name
    before = _identity(path)
    with suppress(CannotBuild):
        module = _loaded(path, rmm)
        if module is not None:
            return module
    with _lock(path.parent / "lock"):
        # Another process may have built it while this one waited, and somebody may have opened the folder to others.
        path = _own(_cache()) / name
        if _identity(path) != before:
            # One that does not load would not do so after another build either.
            module = _loaded(path, rmm)
            if module is not None:
                return module
        return _required(_build_into(path.parent, rmm), rmm)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.cache")
        if not os.path.isabs(base):
            raise FileNotFoundError("this user has no home to keep it in: name a place with XDG_CACHE_HOME")
    return Path(base, "alluvion", "rapids")


def _own(folder: Path) -> Path:
    """The real path of a folder in which nobody else can exchange anything, nor the folder itself. What is missing of it is made.

    `PermissionError` names the first folder or link on the way that is neither this user's nor root's, or that others may write to.
    In a folder as `/tmp`, which is root's and where nobody can remove what is another's, the next one has to be the user's.
    """
    user = os.geteuid()
    steps, here, shared, links = [*reversed(folder.parts)], Path("/"), False, 0
    while steps:
        step = here / steps.pop()
        try:
            found = os.lstat(step)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(step, 0o700)
            found = os.lstat(step)
        if found.st_uid not in ((user,) if shared and step.parent == here else (0, user)):
            raise _refused(step)
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > 40:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))
            steps += reversed(Path(os.readlink(step)).parts)
            continue
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(step))
        shared = bool(found.st_mode & _OTHERS)
        if shared and not (found.st_mode & stat.S_ISVTX and found.st_uid == 0):
            raise _refused(step)
        here = here.parent if step.name == ".." else step
    if shared:
        raise _refused(here)
    return here


def _refused(step: Path) -> PermissionError:
    return PermissionError(f"{step} belongs to another user, or others may write there: name another place with XDG_CACHE_HOME")


def _file_name(rmm: Any) -> str:
    """One name for what was built of the same sources, for the same RMM and kind of machine."""
    digest = hashlib.sha256()
    for source in (*sorted(_SOURCES.iterdir()), Path(get_include(), "alluvion", "door.h")):
        if source.is_file():
            digest.update(source.read_bytes())
    digest.update(repr(_rmm.KINDS[_rmm.version_of(rmm)]).encode())
    return f"rmm-{rmm.__version__}-{digest.hexdigest()[:12]}-{platform.machine()}.abi3.so"


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is: another build makes another one."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _loaded(path: Path, rmm: Any, owners: set[int] | None = None) -> ModuleType | None:
    """The module of a file; `None` if there is none that is the user's or root's alone. `CannotBuild` says why it does not load.

    The folder is one where nobody else can exchange the file between the look and the load.
    """
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_uid not in (owners or {0, os.geteuid()}) or found.st_mode & _OTHERS:
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
        raise CannotBuild(f"the module that was built for rmm {rmm.__version__} does not load: {error}") from error
    if tuple(module.built_for) != _rmm.version_of(rmm):
        of = "{}.{:02}".format(*module.built_for)
        raise CannotBuild(f"the module that was built for rmm {rmm.__version__} was built with headers of rmm {of}")
    sys.modules[_NAME] = module
    return module


def _required(path: Path, rmm: Any) -> ModuleType:
    """The module of a file that this process has built."""
    module = _loaded(path, rmm)
    if module is None:
        raise CannotBuild(f"{path}, which was just built, belongs to another user, or others may write to it")
    return module


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One build at a time: workers of a cluster start together."""
    import fcntl

    # For the user alone: whoever can open it can lock it for good.
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # A child that was forked meanwhile has the file too, and a lock ends by itself only when all have closed it.
            fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)


def _build_into(folder: Path, rmm: Any) -> Path:
    version = _rmm.version_of(rmm)
    kind = _rmm.KINDS[version]
    compiler, includes, libraries = _needed()
    made = folder / _file_name(rmm)
    _remove_leftovers(folder)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as scratch:
        source, module = Path(scratch, "resource.cpp"), Path(scratch, "module.so")
        site = os.path.abspath(Path(rmm.__file__).parent.parent)
        # `-P`: `-m` alone takes modules of the current directory before those that are installed.
        cython = [sys.executable, "-P", "-m", "cython", "-3", "--cplus", "-I", site, "--module-name", _NAME]
        _run([*cython, _SOURCES / kind.source, "-o", source], scratch)
        options = [f"-std=c++{kind.standard}", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w"]
        macros = ["-DPy_LIMITED_API=0x030B0000", *(f"-D{macro}" for macro in kind.macros)]
        headers: list[str | Path] = [_SOURCES, get_include(), *includes, sysconfig.get_paths()["include"]]
        folders = [f"-I{os.path.abspath(each)}" for each in headers]
        # `import rmm` has loaded the library, which is then found by its name.
        link = [*(f"-L{os.path.abspath(each)}" for each in libraries), "-lrmm"]
        _run([compiler, *options, *macros, *folders, source, "-o", module, *link], scratch)
        # Whatever the umask is: nobody else may write to it, and beside the package all read it.
        module.chmod(0o755)
        # In one step, so that nobody finds a part of it.
        os.replace(module, made)
    return made


def _remove_leftovers(folder: Path) -> None:
    """Removes what builds that were killed have left. No build takes an hour."""
    for each in folder.glob(".building-*"):
        with suppress(OSError):
            if each.lstat().st_mtime < time.time() - 3600:
                shutil.rmtree(each)


def _run(command: list[Any], folder: str) -> None:
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


def _needed() -> tuple[str, list[Path], list[Path]]:
    """The compiler, and the folders of headers and of libraries. What is missing is named all at once."""
    missing = []
    compiler = next(filter(None, map(shutil.which, filter(None, (os.environ.get("CXX"), "g++", "c++", "clang++")))), None)
    if compiler is not None:
        # It runs in another folder.
        compiler = os.path.abspath(compiler)
    else:
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
