"""The classes and functions that RMM compiles."""

from alluvion.rmm.pylibrmm import helper, logger, memory_resource, utils

__all__ = ["memory_resource"]
