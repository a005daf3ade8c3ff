"""The genuine `rmm`, if it is one that this package has a door for."""

from __future__ import annotations

from typing import Any, NamedTuple

from alluvion import _compiled


class Kind(NamedTuple):
    """How a version of RMM wants its resources."""

    #: The source for Cython.
    source: str
    #: The standard of C++ that its headers are in.
    standard: int
    #: What the source is compiled with besides.
    macros: tuple[str, ...] = ()


_OLD = Kind("pointer.pyx", 17, ("ALLUVION_RAPIDS_BASE_CLASS", "LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE"))

KINDS = {
    (25, 10): _OLD,
    (25, 12): _OLD,
    (26, 2): _OLD,
    (26, 4): _OLD,
    (26, 6): Kind("value.pyx", 17),
    (26, 8): Kind("value.pyx", 17),
    (26, 10): Kind("value.pyx", 20),
}


def genuine() -> Any:
    """The module `rmm`. An `ImportError` says what is wrong with the one that is there, if it is not one of those above."""
    rmm = _compiled.imported("rmm", "alluvion.rapids")
    if rmm.__name__ != "rmm":
        raise ImportError(
            "alluvion.rmm stands in for rmm in this process, and alluvion.rapids needs the genuine one: "
            "leave out `alluvion.rmm.install()`, and `alluvion.rmm --path` in PYTHONPATH"
        )
    version_of(rmm)
    return rmm


def version_of(rmm: Any) -> tuple[int, int]:
    """The version of an RMM, which is one of those that are supported."""
    text, version = _compiled.version_of(rmm)
    if version not in KINDS:
        known = ", ".join(f"{major}.{minor:02}" for major, minor in sorted(KINDS))
        raise ImportError(f"alluvion.rapids has no door for rmm {text}: it has them for {known}")
    return version


__all__ = ["KINDS", "Kind", "genuine", "version_of"]
