"""RMM as it was until version 0.9: `from librmm_cffi import librmm as rmm, librmm_config as rmm_cfg`.

`alluvion.rmm.install(legacy=True)` makes that import give this package. The memory is that of the current resource, so old code and
new code of one process share it. As in the original, `import` initializes by what `librmm_config` says then, as far as there is a
device, and the end of the process finalizes.

The arrays are Numba's, and Numba is needed when the first one is made.
"""

from __future__ import annotations

from alluvion.librmm_cffi import librmm_config
from alluvion.librmm_cffi._librmm import LibRMM, RMMError

#: The interface: one object, whose methods are the functions of the original.
librmm = LibRMM(librmm_config)
librmm._begin()

__all__ = ["RMMError", "librmm", "librmm_config"]
