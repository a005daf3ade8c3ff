#!/usr/bin/env python3
"""Loads the example `torch_plugin.c` as PyTorch does, by name, on a simulated machine.

    capi/tests/torch_plugin.py LIBRARY PLUGIN
"""
import ctypes
import sys

library = ctypes.CDLL(sys.argv[1])
plugin = ctypes.CDLL(sys.argv[2])
pointer = ctypes.c_void_p

machine = pointer()
assert library.alv_machine_sim(None, ctypes.byref(machine)) == 0
assert library.alv_set_machine(machine) == 0

plugin.plugin_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, pointer]
plugin.plugin_malloc.restype = pointer
plugin.plugin_free.argtypes = [pointer, ctypes.c_ssize_t, ctypes.c_int, pointer]
plugin.plugin_free.restype = None

for stream in (None, 1, 2):
    blocks = [plugin.plugin_malloc(size, 0, stream) for size in (1, 1000, 1 << 20)]
    assert all(block is not None and block % 256 == 0 for block in blocks) and len(set(blocks)) == 3, blocks
    for block, size in zip(blocks, (1, 1000, 1 << 20)):
        plugin.plugin_free(block, size, 0, stream)
# Too much, a device that is not there, and nothing.
assert plugin.plugin_malloc(1 << 50, 0, None) is None
assert plugin.plugin_malloc(100, 7, None) is None
assert plugin.plugin_malloc(100, -1, None) is None
assert plugin.plugin_malloc(-1, 0, None) is None
assert plugin.plugin_malloc(0, 0, None) is None
plugin.plugin_free(None, 0, 0, None)
plugin.plugin_free(None, 0, 7, None)
print("torch_plugin: ok")
