"""Standing in for `rmm`: from `install` on, `import rmm` means `alluvion.rmm`, anywhere in the process."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_OURS = "alluvion.rmm"
_LEGACY = "alluvion.librmm_cffi"


def _path_folder() -> str:
    """A folder with nothing in it but a package `rmm`, which installs the stand-in. For `PYTHONPATH`."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_path")


class _Loader:
    """Loads a module of ours under RMM's name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # The import system takes what stands here afterwards, so that the module keeps its own name and specification.
        sys.modules[module.__name__] = importlib.import_module(self.name)


class _Finder:
    """Answers for `rmm` and its modules, and for the version of the package that is installed."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # The modules of `librmm_cffi` would be loaded a second time from its folder, under that name.
        is_legacy = name.startswith("librmm_cffi.") and sys.modules.get("librmm_cffi") is sys.modules.get(_LEGACY)
        if name != "rmm" and not name.startswith("rmm.") and not is_legacy:
            return None
        ours = "alluvion." + name
        try:
            found = importlib.util.find_spec(ours)
        except ModuleNotFoundError:
            return None
        if found is None:
            return None
        is_package = found.submodule_search_locations is not None
        return ModuleSpec(name, _Loader(ours), origin=found.origin, is_package=is_package)

    @staticmethod
    def find_distributions(context: Any = None) -> Iterator[Any]:
        """What `importlib.metadata.version("rmm")` asks."""
        name = getattr(context, "name", None)
        if name not in (None, "rmm"):
            return
        from importlib.metadata import Distribution

        from alluvion.rmm._version import __version__

        class StandIn(Distribution):
            def read_text(self, filename: str) -> str | None:
                text = f"Metadata-Version: 2.1\nName: rmm\nVersion: {__version__}\nSummary: alluvion.rmm, standing in for rmm\n"
                return text if filename == "METADATA" else None

            def locate_file(self, path: Any) -> Any:
                from pathlib import Path

                return Path(__file__).parent / path

        yield StandIn()


class _LastFinder:
    """Answers for `librmm`, the separate package with RMM's native library, and for `librmm_cffi`, which RMM was until version 0.9, if
    nobody else does.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        ours = {"librmm": _OURS + ".librmm", "librmm_cffi": _LEGACY}.get(name)
        return None if ours is None else ModuleSpec(name, _Loader(ours))


def install(legacy: bool = False) -> None:
    """From now on `import rmm`, and of every module `rmm.*`, gives `alluvion.rmm` anywhere in the process.

    A second call does nothing. The classes of buffers, streams and resources say from then on that they are of `rmm`, because
    libraries such as Dask look at that, and `importlib.metadata.version("rmm")` is that of the interface. Where no such package is
    installed, `import librmm_cffi` gives what RMM was until version 0.9; with `legacy=True` it does in any case.

    What is compiled against RMM's C++ or Cython interface is out of reach: cuDF, cuML, pylibcudf and raft link the genuine
    library, and keep it. For programs in Python this is enough: dask-cuda, distributed, CuPy, Numba, PyTorch.

    Raises `RuntimeError` if another module named `rmm` is loaded already: two allocators with two current resources would
    follow. Children of this process do not inherit it: see `python -m alluvion.rmm --path`.

    >>> from alluvion.rmm import install, uninstall
    >>> install()
    >>> import rmm, alluvion.rmm
    >>> rmm.mr is alluvion.rmm.mr
    True
    >>> uninstall()
    """
    loaded = sys.modules.get("rmm")
    if loaded is not None and loaded is not sys.modules.get(_OURS):
        file = getattr(loaded, "__file__", None)
        if not _is_half_loaded(file):
            raise RuntimeError(
                f"another module named rmm is loaded already, from {file}: call alluvion.rmm.install() before anything "
                "imports rmm, or start the program by python -m alluvion.rmm"
            )
        # The package of one line, which is what called: its place is taken.
        del sys.modules["rmm"]
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
        sys.meta_path.append(_LastFinder)
    _name_classes("rmm.")
    if legacy:
        from alluvion import librmm_cffi

        sys.modules["librmm_cffi"] = librmm_cffi


def uninstall() -> None:
    """Ends `install`: `import rmm` means again what it meant before. Modules that have ours keep it."""
    for finder in (_Finder, _LastFinder):
        while finder in sys.meta_path:
            sys.meta_path.remove(finder)
    for name, module in list(sys.modules.items()):
        ours = _OURS + ".librmm" if name == "librmm" else "alluvion." + name
        if name.split(".")[0] in ("rmm", "librmm", "librmm_cffi") and module is sys.modules.get(ours):
            del sys.modules[name]
    _name_classes(_OURS + ".")


def _is_half_loaded(file: str | None) -> bool:
    return file is not None and os.path.dirname(os.path.dirname(os.path.abspath(file))) == _path_folder()


def _name_classes(prefix: str) -> None:
    """Has the classes of buffers, streams and resources say that they are of `alluvion.rmm`, or of `rmm`.

    What is pickled by its class keeps its name, so that it can be loaded without the stand-in: exceptions, enumerations and
    counts.
    """
    from alluvion import _alluvion

    modules = [module for name, module in list(sys.modules.items()) if name.startswith(_OURS + ".pylibrmm.")]
    for module in [_alluvion, *modules]:
        for value in list(vars(module).values()):
            if not isinstance(value, type) or not issubclass(value, _unpickled()):
                continue
            name = value.__module__.removeprefix("alluvion.")
            if name.startswith("rmm."):
                value.__module__ = prefix + name.removeprefix("rmm.")


def _unpickled() -> tuple[type, ...]:
    """The classes whose objects are not pickled, or by a function."""
    from alluvion import _alluvion

    names = ("CudaStreamPool", "DeviceBuffer", "DeviceMemoryResource", "Stream")
    return tuple(getattr(_alluvion, name) for name in names if hasattr(_alluvion, name))


def _take_over(name: str = "rmm") -> None:
    """What a package of one line does: after it, the module `rmm` or `librmm_cffi` that is being imported is ours."""
    install(legacy=name == "librmm_cffi")
    sys.modules[name] = importlib.import_module(name)


__all__ = ["install", "uninstall"]
