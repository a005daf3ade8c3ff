"""The version of RMM whose interface this is. `alluvion.__version__` is that of the package."""

__version__ = "26.10.00"
__git_commit__ = ""

__all__ = ["__git_commit__", "__version__"]
