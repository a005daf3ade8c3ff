"""Memory resources: the content of `rmm.mr`."""

from alluvion.rmm.pylibrmm.memory_resource import _memory_resource, experimental
from alluvion.rmm.pylibrmm.memory_resource._memory_resource import *  # noqa: F403
from alluvion.rmm.pylibrmm.memory_resource._memory_resource import __all__ as _all
from alluvion.rmm.pylibrmm.memory_resource._memory_resource import __getattr__

__all__ = [*_all, "experimental"]
