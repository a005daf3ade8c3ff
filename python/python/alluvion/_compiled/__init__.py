"""Compiled modules that this package has as sources, and that are built where they are used.

A module is built for the version of a framework that is installed, once for a user: into `$XDG_CACHE_HOME/alluvion`, or into the folder
of the package, for all users. It is kept and loaded only where nobody but the user and root can exchange it. Without such a place a
process builds its own.
"""

from alluvion._compiled.door import Door
from alluvion._compiled.tools import CannotBuild, Needed, compile_module, imported, package, packages, run, version_of

__all__ = ["CannotBuild", "Door", "Needed", "compile_module", "imported", "package", "packages", "run", "version_of"]
