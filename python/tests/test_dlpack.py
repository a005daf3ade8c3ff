"""DLPack, both ways, and typed views."""

import ctypes
import gc
import sys
import threading
import weakref

import numpy as np
import pytest

import alluvion
from alluvion import _alluvion
from alluvion.rmm.pylibrmm.device_buffer import DeviceBuffer
from alluvion.rmm.pylibrmm.stream import PER_THREAD_DEFAULT_STREAM, CudaStreamFlags, Stream

python = ctypes.pythonapi
python.PyCapsule_New.restype = ctypes.py_object
python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
python.PyCapsule_GetPointer.restype = ctypes.c_void_p
python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_GetName.restype = ctypes.c_char_p
python.PyCapsule_GetName.argtypes = [ctypes.py_object]
python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Old(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


OLD, VERSIONED = b"dltensor", b"dltensor_versioned"


def look(capsule):
    name = python.PyCapsule_GetName(capsule)
    kind = {OLD: Old, VERSIONED: Versioned}[name]
    struct = kind.from_address(python.PyCapsule_GetPointer(capsule, name))
    struct.capsule = capsule
    return struct


class Lender:
    """A library of its own, with a tensor over a buffer of ours."""

    def __init__(self, buffer, *, versioned=True, major=1, flags=0, shape=None, strides=None, bits=8, **changes):
        self.calls, self.deleted = [], 0
        self.buffer, self.versioned = buffer, versioned
        shape = shape if shape is not None else [buffer.size]
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = (ctypes.c_int64 * len(strides))(*strides) if strides else None
        self.struct = Versioned(major=major, minor=0, flags=flags) if versioned else Old()
        tensor = self.struct.tensor
        tensor.data, tensor.device_type, tensor.device_id = buffer.ptr, 2, 0
        tensor.ndim, tensor.code, tensor.bits, tensor.lanes = len(shape), 1, bits, 1
        tensor.shape = self.shape
        if self.strides is not None:
            tensor.strides = self.strides
        for name, value in changes.items():
            setattr(tensor, name, value)
        self.deleter = Deleter(self.delete)
        self.struct.deleter = ctypes.cast(self.deleter, ctypes.c_void_p).value

    def delete(self, address):
        assert address == ctypes.addressof(self.struct)
        self.deleted += 1

    def __dlpack_device__(self):
        return (self.struct.tensor.device_type, self.struct.tensor.device_id)

    def __dlpack__(self, **arguments):
        self.calls.append(arguments)
        if not self.versioned and "max_version" in arguments:
            raise TypeError("unexpected keyword argument 'max_version'")
        name = VERSIONED if self.versioned else OLD
        return python.PyCapsule_New(ctypes.addressof(self.struct), name, None)


def test_the_device_of_a_buffer(sim):
    assert DeviceBuffer(size=4).__dlpack_device__() == (2, 0)
    assert DeviceBuffer().__dlpack_device__() == (2, 0)
    alluvion.set_current_device(1)
    try:
        assert DeviceBuffer(size=4).__dlpack_device__() == (2, 1)
    finally:
        alluvion.set_current_device(0)
    assert DeviceBuffer(size=4, mr=_alluvion.PinnedHostMemoryResource()).__dlpack_device__() == (3, 0)
    assert DeviceBuffer(size=4, mr=_alluvion.ManagedMemoryResource()).__dlpack_device__() == (13, 0)


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 1), (2, 0)])
def test_a_capsule_has_a_tensor_of_bytes(sim, version):
    buffer = DeviceBuffer(size=300)
    capsule = buffer.__dlpack__(max_version=version)
    is_versioned = version is not None and version[0] >= 1
    assert python.PyCapsule_GetName(capsule) == (VERSIONED if is_versioned else OLD)
    struct = look(capsule)
    tensor = struct.tensor
    assert (tensor.data, tensor.byte_offset) == (buffer.ptr, 0)
    assert (tensor.device_type, tensor.device_id) == (2, 0)
    assert (tensor.ndim, tensor.shape[0], tensor.strides[0]) == (1, 300, 1)
    assert (tensor.code, tensor.bits, tensor.lanes) == (1, 8, 1)
    if is_versioned:
        assert (struct.major, struct.flags) == (1, 0)


def test_an_empty_buffer_has_no_data(sim):
    for buffer in (DeviceBuffer(), DeviceBuffer(size=4)):
        buffer.resize(0)
        tensor = look(buffer.__dlpack__()).tensor
        assert (tensor.data, tensor.ndim, tensor.shape[0]) == (None, 1, 0)


def test_streams_of_a_consumer(sim):
    buffer = DeviceBuffer.to_device(b"abc", Stream(flags=CudaStreamFlags.NON_BLOCKING))
    _, handle = Stream(flags=CudaStreamFlags.NON_BLOCKING).__cuda_stream__()
    other = Stream()
    for stream in (None, -1, 1, 2, other.__cuda_stream__()[1]):
        buffer.__dlpack__(stream=stream)
    with pytest.raises(ValueError, match="ambiguous"):
        buffer.__dlpack__(stream=0)
    with pytest.raises(ValueError):
        buffer.__dlpack__(stream=-2)
    with pytest.raises(TypeError):
        buffer.__dlpack__(stream="1")
    with pytest.raises(TypeError):
        buffer.__dlpack__(1)
    del handle


def test_memory_of_the_host_has_no_stream(sim):
    buffer = DeviceBuffer(size=4, mr=_alluvion.PinnedHostMemoryResource())
    buffer.__dlpack__(stream=None)
    for stream in (-1, 1, 2):
        with pytest.raises(ValueError, match="must be None"):
            buffer.__dlpack__(stream=stream)


def test_the_bytes_are_safe_on_the_stream_of_the_consumer(sim):
    home, consumer = (Stream(flags=CudaStreamFlags.NON_BLOCKING) for _ in range(2))
    source = DeviceBuffer.to_device(b"12345678", home)
    buffer = DeviceBuffer(size=8, stream=home)
    buffer.copy_from_device(source, home)
    # Not waited for by the host: the capsule orders it.
    taken = alluvion.from_dlpack(buffer, consumer)
    assert taken.tobytes(consumer) == b"12345678"
    del buffer, taken
    assert sim.hazards() == []


def test_other_devices_and_copies(sim):
    buffer = DeviceBuffer.to_device(b"abc")
    buffer.__dlpack__(dl_device=(2, 0), copy=False)
    for device in ((1, 0), (2, 1), (13, 0)):
        with pytest.raises(BufferError):
            buffer.__dlpack__(dl_device=device)
    capsule = buffer.__dlpack__(copy=True, max_version=(1, 0))
    struct = look(capsule)
    assert struct.flags == 2 and struct.tensor.data != buffer.ptr
    assert alluvion.from_dlpack(capsule).tobytes() == b"abc"
    # The buffer itself was not lent.
    buffer.resize(1000)


def test_a_buffer_that_is_lent_does_not_move(sim):
    buffer = DeviceBuffer.to_device(b"abc")
    capsule = buffer.__dlpack__()
    with pytest.raises(BufferError, match="DLPack"):
        buffer.resize(1000)
    with pytest.raises(BufferError):
        buffer.reserve(1000)
    buffer.resize(1)
    assert buffer.size == 1
    del capsule
    buffer.resize(1000)
    assert buffer.tobytes()[:1] == b"a"


def used_bytes():
    free, total = alluvion.memory_info()
    return total - free


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_capsule_that_nobody_takes_gives_the_memory_back(sim, version):
    before = used_bytes()
    capsule = DeviceBuffer(size=1 << 20).__dlpack__(max_version=version)
    assert used_bytes() > before
    del capsule
    assert used_bytes() == before


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_capsule_that_was_taken_does_not(sim, version):
    before = used_bytes()
    capsule = DeviceBuffer(size=1 << 20).__dlpack__(max_version=version)
    struct = look(capsule)
    address, delete = ctypes.addressof(struct), Deleter(struct.deleter)
    del struct
    name = b"used_" + python.PyCapsule_GetName(capsule)
    python.PyCapsule_SetName(capsule, name)
    del capsule
    gc.collect()
    assert used_bytes() > before
    # By a thread that ctypes lets go of the interpreter for.
    thread = threading.Thread(target=delete, args=(address,))
    thread.start()
    thread.join()
    assert used_bytes() == before


@pytest.mark.parametrize("versioned", [True, False])
def test_a_tensor_of_another_library(sim, versioned):
    under = DeviceBuffer.to_device(b"abcdefgh")
    lender = Lender(under, versioned=versioned)
    buffer = DeviceBuffer.from_dlpack(lender)
    assert (buffer.ptr, buffer.size, buffer.capacity()) == (under.ptr, 8, 8)
    # Ours is the default stream, which DLPack names 1.
    assert lender.calls[0] == {"stream": 1, "max_version": (1, 1)}
    assert lender.calls[1:] == ([] if versioned else [{"stream": 1}])
    assert buffer.tobytes() == b"abcdefgh"
    copied = buffer.copy()
    buffer.copy_from_host(b"XY")
    assert under.tobytes() == b"XYcdefgh" and copied.tobytes() == b"abcdefgh"
    assert lender.deleted == 0
    del buffer
    assert lender.deleted == 1
    del copied
    assert lender.deleted == 1


def test_the_stream_that_the_lender_is_told(sim):
    stream = Stream()
    for given, told in ((stream, stream.__cuda_stream__()[1]), (PER_THREAD_DEFAULT_STREAM, 2)):
        lender = Lender(DeviceBuffer(size=8))
        assert alluvion.from_dlpack(lender, given).size == 8
        assert lender.calls[0]["stream"] == told
    pinned = Lender(DeviceBuffer(size=8, mr=_alluvion.PinnedHostMemoryResource()), device_type=3)
    assert alluvion.from_dlpack(pinned).size == 8
    assert "stream" not in pinned.calls[0]


def test_a_capsule_is_renamed_once(sim):
    lender = Lender(DeviceBuffer(size=8))
    capsule = lender.__dlpack__()
    buffer = alluvion.from_dlpack(capsule)
    assert python.PyCapsule_GetName(capsule) == b"used_dltensor_versioned"
    with pytest.raises(BufferError):
        alluvion.from_dlpack(capsule)
    del buffer
    assert lender.deleted == 1


def test_an_unknown_version_is_given_back(sim):
    lender = Lender(DeviceBuffer(size=8), major=2)
    with pytest.raises(BufferError, match="2.0"):
        alluvion.from_dlpack(lender)
    assert lender.deleted == 1


def test_tensors_that_no_buffer_can_be(sim):
    under = DeviceBuffer(size=64)
    for arguments in (
        {"device_type": 1},
        {"device_type": 10},
        {"device_id": 7},
        {"shape": [2, 4], "strides": [1, 2]},
        {"shape": [4], "strides": [2]},
        {"shape": [-1]},
        {"bits": 4},
        {"shape": [1 << 62, 1 << 62]},
    ):
        lender = Lender(under, **arguments)
        with pytest.raises(BufferError):
            alluvion.from_dlpack(lender)
        assert lender.deleted == 0
    for wrong in (None, 1, b"abc", object()):
        with pytest.raises(TypeError):
            alluvion.from_dlpack(wrong)


def test_tensors_of_any_compact_form(sim):
    under = DeviceBuffer.to_device(bytes(range(24)))
    assert alluvion.from_dlpack(Lender(under, shape=[2, 3], strides=[3, 1], bits=32)).size == 24
    assert alluvion.from_dlpack(Lender(under, shape=[2, 1, 3], strides=[3, 99, 1], bits=16)).size == 12
    assert alluvion.from_dlpack(Lender(under, shape=[], bits=64)).size == 8
    moved = alluvion.from_dlpack(Lender(under, shape=[4], byte_offset=3))
    assert moved.tobytes() == bytes(range(3, 7))
    empty = Lender(under, shape=[0, 5])
    assert alluvion.from_dlpack(empty).size == 0 and empty.deleted == 1


def test_a_tensor_that_is_read_only(sim):
    under = DeviceBuffer.to_device(b"abc")
    lender = Lender(under, flags=1)
    buffer = alluvion.from_dlpack(lender)
    assert buffer.__cuda_array_interface__["data"] == (under.ptr, True)
    for write in (lambda: buffer.copy_from_host(b"x"), lambda: buffer.copy_from_device(under)):
        with pytest.raises(BufferError, match="read-only"):
            write()
    with pytest.raises(BufferError, match="read-only"):
        buffer.__dlpack__()
    assert look(buffer.__dlpack__(max_version=(1, 0))).flags == 1
    assert buffer.tobytes() == b"abc"
    # It grows into memory of its own.
    buffer.resize(10)
    assert lender.deleted == 1
    buffer.copy_from_host(b"x")


def test_errors_of_a_lender_go_up(sim):
    class Broken:
        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, **_):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        alluvion.from_dlpack(Broken())
    Broken.__dlpack__ = lambda self, **_: 5
    with pytest.raises(TypeError, match="capsule"):
        alluvion.from_dlpack(Broken())


def test_numpy_takes_pinned_and_managed_memory(sim):
    for mr in (_alluvion.PinnedHostMemoryResource(), _alluvion.ManagedMemoryResource()):
        buffer = DeviceBuffer(size=8, mr=mr)
        buffer.copy_from_host(b"12345678")
        array = np.from_dlpack(buffer)
        assert array.tobytes() == b"12345678" and array.dtype == np.uint8
        array = np.from_dlpack(buffer.view("<u2", (2, 2)))
        assert array.dtype == np.uint16 and array.shape == (2, 2)
        del buffer
        gc.collect()
        assert array.tobytes() == b"12345678"
        del array


def test_references_are_not_leaked(sim):
    buffer = DeviceBuffer.to_device(b"abc")
    lender = Lender(buffer)
    counts = sys.getrefcount(buffer), sys.getrefcount(lender)
    for _ in range(20):
        buffer.__dlpack__(max_version=(1, 0))
        alluvion.from_dlpack(buffer)
        alluvion.from_dlpack(lender)
        lender.calls.clear()
        buffer.view("u1").__dlpack__()
    assert (sys.getrefcount(buffer), sys.getrefcount(lender)) == counts


def test_views(sim):
    buffer = DeviceBuffer.to_device(bytes(range(24)))
    for dtype in ("float32", "<f4", "f4", np.float32, np.dtype("f4")):
        view = buffer.view(dtype)
        assert (view.shape, view.dtype, view.nbytes, len(view)) == ((6,), "<f4", 24, 6)
        assert view.base is buffer and view.ptr == buffer.ptr
    view = buffer.view("int16", (2, -1))
    assert view.shape == (2, 6)
    interface = view.__cuda_array_interface__
    assert interface["typestr"] == "<i2" and interface["shape"] == (2, 6) and interface["data"] == (buffer.ptr, False)
    assert interface["version"] == 3 and interface["stream"] == 1
    tensor = look(view.__dlpack__()).tensor
    assert (tensor.code, tensor.bits, tensor.ndim) == (0, 16, 2)
    assert (tensor.shape[0], tensor.shape[1], tensor.strides[0], tensor.strides[1]) == (2, 6, 6, 1)
    assert alluvion.from_dlpack(view).tobytes() == bytes(range(24))
    assert repr(view) == "DeviceView(shape=[2, 6], dtype='int16')"
    for arguments in (("float64", 4), ("float64", (2, 2)), ("f4", (-1, -1)), ("f4", (-1, 5)), ("q", None), ("f4", (-2,))):
        with pytest.raises(ValueError):
            buffer.view(*arguments)
    with pytest.raises(ValueError):
        DeviceBuffer(size=7).view("f4")
    with pytest.raises(TypeError):
        buffer.view(3)
    buffer.resize(4)
    with pytest.raises(BufferError):
        view.__cuda_array_interface__
    with pytest.raises(BufferError):
        view.__dlpack__()


def test_a_view_keeps_its_buffer(sim):
    buffer = DeviceBuffer(size=8)
    alive = weakref.ref(buffer)
    view = buffer.view("f4")
    del buffer
    assert alive() is not None
    del view
    assert alive() is None
