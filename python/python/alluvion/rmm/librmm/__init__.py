"""What RMM keeps beside its native library; and the loader of that library, of which there is none here."""

from alluvion.rmm._version import __git_commit__, __version__


def load_library() -> None:
    """The library of C++, for compiled packages that link it. Ours has none, so there is nothing to load.

    >>> from alluvion.rmm import librmm
    >>> librmm.load_library() is None
    True
    """


__all__ = ["__git_commit__", "__version__", "load_library"]
