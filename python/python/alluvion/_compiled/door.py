"""`Door`: a compiled module, where it is kept, and how it is loaded."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import platform
import stat
import sys
import tempfile
from abc import ABC, abstractmethod
from contextlib import suppress
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType

from alluvion._compiled import places
from alluvion._compiled.tools import CannotBuild
from alluvion._include import get_include


class Door(ABC):
    """A compiled module for one version of a framework: the subclass says which, and how it is built."""

    def __init__(self, title: str, package: str, file: str, *, wheel: str | None = None) -> None:
        #: The framework as people call it.
        self.title = title
        #: The package that has the module, as `alluvion.rapids`.
        self.package = package
        #: A file of that package: who owns it may have built the module beside it.
        self.file = file
        folder = Path(file).absolute().parent
        self.sources = folder / "source"
        self.beside = folder / "built"
        #: Where the modules of another package are, which were built elsewhere, one for each version of the framework; if it is installed.
        self.of_wheel = folder.parent.parent / wheel if wheel is not None else None

    @property
    def name(self) -> str:
        """The name of the module."""
        return f"{self.package}._compiled"

    @abstractmethod
    def framework(self) -> str:
        """The framework with its version, as `rmm 26.10.00`. `ImportError` says why there is none to build for."""

    @abstractmethod
    def options(self) -> str:
        """What a build depends on besides that version, the sources, and the code of the package."""

    @abstractmethod
    def built_for_another(self, module: ModuleType) -> str | None:
        """The framework that a module was built for, if it is another one than that of this process."""

    @abstractmethod
    def compile(self, scratch: Path, module: Path) -> None:
        """Compiles the sources into `module`, with a folder for what is needed in between."""

    def load(self) -> ModuleType:
        """The compiled module for the framework of this process, which is built if there is none. `CannotBuild` says why there is none then."""
        found = sys.modules.get(self.name)
        if found is not None:
            return found
        self.framework()
        broken: CannotBuild | None = None
        for built_ahead in (self._beside, self._of_wheel):
            try:
                module = built_ahead()
                if module is not None:
                    return module
            except CannotBuild as error:
                broken = broken or error
        try:
            return self._kept_or_own()
        except CannotBuild as error:
            if broken is None:
                raise
            raise CannotBuild(f"{broken}. Nor is there another one: {error}") from broken

    def build(self, *, beside: bool = False, into: Path | None = None) -> Path:
        """Builds the module, whether there is one or not, and returns its path.

        With `beside` it goes into the folder of its package, for all users of the machine, with `into` into a folder that is there, as that
        of a package which is made of modules, and else where the user's caches are.
        """
        self.framework()
        if into is not None:
            return self._build_into(into.absolute())
        if not beside:
            return self._build_into(places.own(self._cache()))
        self.beside.mkdir(parents=True, exist_ok=True)
        # Whatever the umask is: all users read it.
        if stat.S_IMODE(self.beside.stat().st_mode) != 0o755:
            self.beside.chmod(0o755)
        return self._build_into(self.beside)

    def main(self) -> int:
        """The command that builds it ahead, `python -m alluvion.rapids.build` or `python -m alluvion.torch.build`."""
        command = f"{self.package}.build"
        parser = argparse.ArgumentParser(
            prog=f"python -m {command}", description=f"Builds the module for the {self.title} that is installed."
        )
        where = parser.add_mutually_exclusive_group()
        where.add_argument("--beside", action="store_true", help="into the folder of the package, for all users of the machine")
        where.add_argument("--into", metavar="FOLDER", type=Path, help="into a folder that is there, for a package of modules")
        wish = parser.parse_args()
        try:
            print(self.build(beside=wish.beside, into=wish.into))
        except (CannotBuild, ImportError, OSError) as error:
            print(f"{command}: {error}", file=sys.stderr)
            return 1
        return 0

    def _cache(self) -> Path:
        return places.cache(self.package.split(".")[1])

    def _beside(self) -> ModuleType | None:
        """The module beside the package. The owner of the package may have built it: the package itself is code of the same user."""
        try:
            owners = {0, os.geteuid(), os.stat(self.file).st_uid}
            folder = os.lstat(self.beside)
            if not stat.S_ISDIR(folder.st_mode) or folder.st_uid not in owners or folder.st_mode & places.OTHERS:
                return None
            return self._loaded(self.beside / self._file_name(), owners)
        except OSError:
            # A user who may not look there has none there.
            return None

    def _of_wheel(self) -> ModuleType | None:
        """The module of the package that has them built elsewhere. Whoever may write there, may write where this package is installed."""
        if self.of_wheel is None:
            return None
        path = self.of_wheel / self._file_name()
        return self._module_of(path) if os.path.isfile(path) else None

    def _kept_or_own(self) -> ModuleType:
        """The module in the user's cache, or where there is no place to keep one, a module of this process alone."""
        with suppress(OSError):
            return self._kept()
        try:
            with tempfile.TemporaryDirectory(prefix=f"{self.package.replace('.', '-')}-") as scratch:
                return self._required(self._build_into(places.own(Path(scratch).absolute())))
        except OSError as error:
            raise CannotBuild(f"there is no place to build it, which TMPDIR may name: {error}") from error

    def _kept(self) -> ModuleType:
        """The module in the user's cache, which is built if there is none that loads. `OSError`: there is no place to keep it."""
        path = places.own(self._cache()) / self._file_name()
        before = places.identity(path)
        with suppress(CannotBuild):
            module = self._loaded(path)
            if module is not None:
                return module
        with places.lock(path.parent / "lock"):
            # Another process may have built it while this one waited, and somebody may have opened the folder to others.
            path = places.own(self._cache()) / self._file_name()
            if places.identity(path) != before:
                # One that does not load would not do so after another build either.
                module = self._loaded(path)
                if module is not None:
                    return module
            return self._required(self._build_into(path.parent))

    def _file_name(self) -> str:
        """One name for what was built of the same sources, for the same version and kind of machine."""
        digest = hashlib.sha256()
        for source in (*sorted(self.sources.iterdir()), Path(get_include(), "alluvion", "door.h")):
            if source.is_file():
                digest.update(source.read_bytes())
        # How it is built may change, too.
        own = sys.modules[type(self).__module__].__file__
        for code in (*sorted(Path(__file__).parent.glob("*.py")), Path(own or __file__)):
            digest.update(code.read_bytes())
        digest.update(self.options().encode())
        return f"{self.framework().replace(' ', '-')}-{digest.hexdigest()[:12]}-{platform.machine()}.abi3.so"

    def _loaded(self, path: Path, owners: set[int] | None = None) -> ModuleType | None:
        """The module of a file; `None` if there is none that is the user's or root's alone. `CannotBuild` says why it does not load.

        The folder is one where nobody else can exchange the file between the look and the load.
        """
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (owners or {0, os.geteuid()}) or found.st_mode & places.OTHERS:
            return None
        return self._module_of(path)

    def _module_of(self, path: Path) -> ModuleType:
        """The module of a file. `CannotBuild` says why it does not load."""
        loader = ExtensionFileLoader(self.name, str(path))
        spec = importlib.util.spec_from_file_location(self.name, path, loader=loader)
        assert spec is not None
        try:
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
        except ImportError as error:
            if "alluvion has version" in str(error):
                raise
            raise CannotBuild(f"the module that was built for {self.framework()} does not load: {error}") from error
        other = self.built_for_another(module)
        if other is not None:
            raise CannotBuild(f"the module that was built for {self.framework()} was built with headers of {other}")
        sys.modules[self.name] = module
        return module

    def _required(self, path: Path) -> ModuleType:
        """The module of a file that this process has built."""
        module = self._loaded(path)
        if module is None:
            raise CannotBuild(f"{path}, which was just built, belongs to another user, or others may write to it")
        return module

    def _build_into(self, folder: Path) -> Path:
        made = folder / self._file_name()
        places.remove_leftovers(folder)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as scratch:
            module = Path(scratch, "module.so")
            self.compile(Path(scratch), module)
            # Whatever the umask is: nobody else may write to it, and beside the package all read it.
            module.chmod(0o755)
            # In one step, so that nobody finds a part of it.
            os.replace(module, made)
        return made


__all__ = ["Door"]
