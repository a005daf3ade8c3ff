"""The table of functions for compiled modules, by ctypes: what `alluvion/door.h` declares, written again for Python."""

import ctypes

from alluvion import _alluvion

TABLE_NAME = b"alluvion._alluvion._C_API"
HANDLE_NAME = b"alluvion.handle"

_size, _pointer, _status = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int32
_out = ctypes.POINTER(ctypes.c_void_p)
_sizes = ctypes.POINTER(ctypes.c_size_t)


class Stats(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("current_bytes", "peak_bytes", "total_bytes")),
        *((name, ctypes.c_int64) for name in ("current_count", "peak_count", "total_count")),
        ("failures", ctypes.c_uint64),
    ]


Visitor = ctypes.CFUNCTYPE(None, _pointer, _pointer, _size)


Body = ctypes.CFUNCTYPE(None, _pointer)


class Table(ctypes.Structure):
    # Functions of these types are called without the interpreter, as compiled modules call them.
    _fields_ = [
        ("size", _size),
        ("abi_version", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("retain", ctypes.CFUNCTYPE(None, _pointer)),
        ("release", ctypes.CFUNCTYPE(None, _pointer)),
        ("allocate", ctypes.CFUNCTYPE(_status, _pointer, _size, _size, _pointer, _out)),
        ("deallocate", ctypes.CFUNCTYPE(None, _pointer, _pointer, _size, _size, _pointer)),
        ("allocate_sync", ctypes.CFUNCTYPE(_status, _pointer, _size, _size, _out)),
        ("deallocate_sync", ctypes.CFUNCTYPE(None, _pointer, _pointer, _size, _size)),
        ("last_error_message", ctypes.CFUNCTYPE(ctypes.c_char_p)),
        ("last_error_status", ctypes.CFUNCTYPE(_status)),
        ("last_requested_bytes", ctypes.CFUNCTYPE(_size)),
        ("device_of", ctypes.CFUNCTYPE(_status, _pointer)),
        ("equal", ctypes.CFUNCTYPE(_status, _pointer, _pointer)),
        ("describe", ctypes.CFUNCTYPE(_size, _pointer, ctypes.c_char_p, _size)),
        ("trim", ctypes.CFUNCTYPE(_status, _pointer, _size, _sizes)),
        ("stats", ctypes.CFUNCTYPE(_status, _pointer, ctypes.POINTER(Stats))),
        ("memory_info", ctypes.CFUNCTYPE(_status, _pointer, _sizes, _sizes)),
        ("refused_frees", ctypes.CFUNCTYPE(ctypes.c_uint64, _pointer)),
        ("reserved_bytes", ctypes.CFUNCTYPE(_status, _pointer, _sizes)),
        ("segments", ctypes.CFUNCTYPE(_status, _pointer, Visitor, _pointer)),
        ("address_range", ctypes.CFUNCTYPE(_status, _pointer, _pointer, _out, _sizes)),
        ("keep_stream", ctypes.CFUNCTYPE(_status, _pointer, _pointer)),
        ("detached", ctypes.CFUNCTYPE(_status, Body, _pointer)),
    ]


_get = ctypes.pythonapi.PyCapsule_GetPointer
_get.argtypes, _get.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
_new = ctypes.pythonapi.PyCapsule_New
_new.argtypes, _new.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object


def pointer(capsule, name):
    """What a capsule points to; `ValueError` if it has another name."""
    return _get(capsule, name)


def capsule(address, name):
    """A capsule of somebody else. The name has to live as long."""
    return _new(address, name, None)


def table():
    """The table of the package."""
    return Table.from_address(pointer(_alluvion._C_API, TABLE_NAME))


class Handle:
    """A count of a stack."""

    def __init__(self, stack):
        self.table = table()
        made = stack.__alluvion_handle__()
        self.address = pointer(made, HANDLE_NAME)
        self.table.retain(self.address)

    def allocate(self, nbytes, stream=0, align=0):
        block = ctypes.c_void_p()
        status = self.table.allocate(self.address, nbytes, align, stream, ctypes.byref(block))
        return status, block.value

    def free(self, block, nbytes, stream=0, align=0):
        self.table.deallocate(self.address, block, nbytes, align, stream)

    def stats(self):
        counted = Stats()
        return self.table.stats(self.address, ctypes.byref(counted)), counted

    def message(self):
        return self.table.last_error_message().decode()

    def release(self):
        address, self.address = self.address, None
        self.table.release(address)
