"""`DeviceBuffer`: its sizes, its copies, its errors."""

import copy
import ctypes
import gc
import pickle
import sys
import threading
import weakref

import numpy as np
import pytest

import alluvion
from alluvion import _alluvion
from alluvion.rmm.pylibrmm import device_buffer
from alluvion.rmm.pylibrmm.device_buffer import DEFAULT_STREAM, DeviceBuffer, to_device
from alluvion.rmm.pylibrmm.stream import (
    LEGACY_DEFAULT_STREAM,
    PER_THREAD_DEFAULT_STREAM,
    CudaStreamFlags,
    Stream,
)


class Interface:
    """An array of another library."""

    def __init__(self, **interface):
        self.__cuda_array_interface__ = interface


def interface_of(buffer, **changes):
    return Interface(**(buffer.__cuda_array_interface__ | changes))


def test_an_empty_buffer_has_no_memory(sim):
    for buffer in (DeviceBuffer(), DeviceBuffer(size=0), DeviceBuffer(ptr=1234, size=0), DeviceBuffer.to_device(b"")):
        assert (buffer.ptr, buffer.size, buffer.nbytes, len(buffer), buffer.capacity()) == (0, 0, 0, 0, 0)
        assert not buffer
        assert buffer.tobytes() == bytes(buffer) == b""
        assert buffer.__cuda_array_interface__["data"] == (0, False)
    assert sim.leaks() == []


def test_an_empty_buffer_needs_no_device():
    assert DeviceBuffer().size == 0


def test_sizes_are_those_that_were_asked_for(sim):
    buffer = DeviceBuffer(size=100)
    assert (buffer.size, buffer.nbytes, len(buffer), sys.getsizeof(buffer) - sys.getsizeof(DeviceBuffer())) == (
        100,
        100,
        100,
        100,
    )
    assert buffer.__sizeof__() == 100
    assert buffer.capacity() == 100
    assert buffer.ptr % 256 == 0 and buffer.ptr > 0
    assert bool(buffer)


def test_arguments_have_names(sim):
    with pytest.raises(TypeError):
        DeviceBuffer(0, 10)
    with pytest.raises(TypeError):
        DeviceBuffer(bytes=10)


@pytest.mark.parametrize("wrong", [1.5, "1", b"1", [1]])
def test_sizes_and_addresses_are_integers(sim, wrong):
    with pytest.raises(TypeError):
        DeviceBuffer(size=wrong)
    with pytest.raises(TypeError):
        DeviceBuffer(ptr=wrong, size=1)


def test_negative_and_huge_integers_overflow(sim):
    for arguments in ({"size": -1}, {"ptr": -1, "size": 1}, {"size": 1 << 64}, {"ptr": 1 << 64, "size": 1}):
        with pytest.raises(OverflowError):
            DeviceBuffer(**arguments)
    with pytest.raises(MemoryError):
        DeviceBuffer(size=1 << 40)
    assert sim.leaks() == []


def test_what_is_no_resource_and_no_stream_is_refused(sim):
    with pytest.raises(TypeError, match="Argument 'mr' has incorrect type.*DeviceMemoryResource"):
        DeviceBuffer(size=1, mr=object())
    with pytest.raises(TypeError, match="stream argument cannot be None"):
        DeviceBuffer(size=1, stream=None)
    with pytest.raises(TypeError, match="Argument 'stream' has incorrect type"):
        DeviceBuffer(size=1, stream=7)


def test_no_attributes_can_be_added(sim):
    with pytest.raises(AttributeError):
        DeviceBuffer().x = 1
    assert not hasattr(DeviceBuffer(), "__dict__")
    assert not hasattr(DeviceBuffer(), "mr") and not hasattr(DeviceBuffer(), "stream")
    with pytest.raises(TypeError):
        DeviceBuffer()[0]
    with pytest.raises(TypeError):
        memoryview(DeviceBuffer())


def test_equality_is_identity(sim):
    one, other = DeviceBuffer(size=8), DeviceBuffer(size=8)
    assert one == one and one != other
    assert len({one, other, one}) == 2


def test_it_can_be_derived_from_and_weakly_referred_to(sim):
    class Named(DeviceBuffer):
        pass

    buffer = Named(size=5)
    buffer.name = "x"
    assert isinstance(buffer, DeviceBuffer) and len(buffer) == 5
    assert repr(buffer).startswith("Named(size=5")
    gone = []
    reference = weakref.ref(buffer, gone.append)
    del buffer
    assert reference() is None and len(gone) == 1


def test_repr_says_what_it_is(sim):
    buffer = DeviceBuffer(size=7)
    assert repr(buffer) == f"DeviceBuffer(size=7, ptr={buffer.ptr:#x}, device=0, stream=default)"
    assert "size=0" in repr(DeviceBuffer())


def test_the_interface_has_exactly_the_keys_of_version_0(sim):
    buffer = DeviceBuffer(size=9)
    assert buffer.__cuda_array_interface__ == {
        "data": (buffer.ptr, False),
        "shape": (9,),
        "strides": None,
        "typestr": "|u1",
        "version": 0,
    }


@pytest.mark.parametrize("stream", ["default", "legacy", "per-thread", "blocking", "non-blocking"])
def test_bytes_go_and_come_on_every_stream(sim, stream):
    stream = {
        "default": lambda: DEFAULT_STREAM,
        "legacy": lambda: LEGACY_DEFAULT_STREAM,
        "per-thread": lambda: PER_THREAD_DEFAULT_STREAM,
        "blocking": Stream,
        "non-blocking": lambda: Stream(flags=CudaStreamFlags.NON_BLOCKING),
    }[stream]()
    data = bytes(range(256)) * 33
    buffer = DeviceBuffer.to_device(data, stream)
    assert buffer.tobytes(stream) == data
    # Another stream than that of the buffer: the copy follows the buffer's own.
    assert buffer.tobytes() == bytes(buffer) == data
    assert buffer.copy().tobytes(stream) == data
    target = np.zeros(len(data) + 5, "u1")
    assert buffer.copy_to_host(target, stream=stream) is target
    assert target[: len(data)].tobytes() == data and not target[len(data) :].any()
    buffer.copy_from_host(b"abc", stream)
    assert buffer.tobytes()[:5] == b"abc" + data[3:5]


def test_the_constructor_copies_from_host_and_device(sim):
    data = np.arange(100, dtype="u1")
    buffer = DeviceBuffer(ptr=data.ctypes.data, size=100)
    assert buffer.tobytes() == data.tobytes()
    other = DeviceBuffer(ptr=buffer.ptr, size=50, stream=Stream())
    assert other.tobytes() == data[:50].tobytes()
    on_stream = DeviceBuffer(ptr=data.ctypes.data, size=100, stream=Stream(flags=CudaStreamFlags.NON_BLOCKING))
    # Ordinary memory was read when the call returned.
    data[:] = 0
    assert on_stream.tobytes() == bytes(range(100))


def test_a_copy_that_the_driver_refuses():
    nowhere = 1 << 62
    # The simulator calls each of these an access out of bounds, and it is.
    with alluvion.simulated(check=False) as machine:
        with pytest.raises(RuntimeError, match="Memcpy failed"):
            DeviceBuffer(ptr=nowhere, size=8)
        with pytest.raises(RuntimeError, match="Memcpy failed"):
            device_buffer.copy_ptr_to_host(nowhere, bytearray(8))
        with pytest.raises(RuntimeError, match="Memcpy failed"):
            device_buffer.copy_host_to_ptr(b"12345678", nowhere)
        with pytest.raises(RuntimeError, match="Memcpy failed"):
            device_buffer.copy_device_to_ptr(nowhere, nowhere + 64, 8)
        alluvion.set_current_resource(_alluvion.CudaMemoryResource())
        assert machine.leaks() == []


def test_to_device_takes_any_buffer_of_unsigned_bytes(sim):
    for data in (
        b"abc",
        bytearray(b"abc"),
        memoryview(b"abc"),
        np.frombuffer(b"abc", "u1"),
        (ctypes.c_ubyte * 3)(*b"abc"),
    ):
        assert DeviceBuffer.to_device(data).tobytes() == b"abc"
        assert to_device(data).tobytes() == b"abc"


@pytest.mark.parametrize("wrong", [None, "abc", 3, 1.5, object()])
def test_to_device_refuses_what_has_no_bytes(sim, wrong):
    for function in (DeviceBuffer.to_device, to_device, DeviceBuffer(size=3).copy_from_host):
        with pytest.raises(TypeError):
            function(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros(3, "u2"),
        np.zeros(3, "f4"),
        np.zeros((2, 2), "u1"),
        np.zeros((), "u1"),
        np.zeros(9, "u1")[::2],
        np.zeros(9, "u1")[::-1],
    ],
)
def test_to_device_refuses_other_forms(sim, wrong):
    for function in (DeviceBuffer.to_device, to_device, DeviceBuffer(size=30).copy_from_host):
        with pytest.raises(ValueError):
            function(wrong)
    with pytest.raises(ValueError):
        DeviceBuffer(size=1).copy_to_host(wrong)


def test_to_device_has_no_mr(sim):
    with pytest.raises(TypeError):
        DeviceBuffer.to_device(b"", mr=_alluvion.CudaMemoryResource())


def test_copy_to_host_makes_an_array_or_fills_one(sim):
    buffer = DeviceBuffer.to_device(b"hello")
    array = buffer.copy_to_host()
    assert type(array) is np.ndarray and array.dtype == np.uint8 and array.tobytes() == b"hello"
    target = bytearray(7)
    assert buffer.copy_to_host(target) is target
    assert target == b"hello\0\0"
    with pytest.raises(ValueError, match="too small. Need space for 5 bytes"):
        buffer.copy_to_host(bytearray(4))
    with pytest.raises(BufferError):
        buffer.copy_to_host(bytes(5))
    with pytest.raises(TypeError):
        buffer.copy_to_host("text")
    # Nothing holds the target afterwards.
    target.clear()


def test_copy_from_host_overwrites_a_prefix(sim):
    buffer = DeviceBuffer.to_device(b"hello")
    assert buffer.copy_from_host(b"J") is None
    buffer.copy_from_host(ary=b"")
    assert buffer.tobytes() == b"Jello"
    with pytest.raises(ValueError, match="too large"):
        buffer.copy_from_host(b"123456")
    assert buffer.tobytes() == b"Jello"


def test_copy_from_device(sim):
    buffer, source = DeviceBuffer.to_device(b"\0" * 8), DeviceBuffer.to_device(b"abcd")
    assert buffer.copy_from_device(source) is None
    assert buffer.tobytes() == b"abcd\0\0\0\0"
    buffer.copy_from_device(interface_of(source, shape=(2,), typestr="<u2"))
    buffer.copy_from_device(interface_of(source, strides=(1,)), stream=Stream())
    buffer.copy_from_device(interface_of(source, shape=(0,)))
    assert buffer.tobytes() == b"abcd\0\0\0\0"
    with pytest.raises(ValueError, match="__cuda_array_interface__"):
        buffer.copy_from_device(b"abc")
    with pytest.raises(ValueError, match="__cuda_array_interface__"):
        buffer.copy_from_device(None)
    for changes in ({"shape": (2, 2)}, {"shape": ()}, {"strides": (2,), "shape": (2,)}):
        with pytest.raises(ValueError, match="Only 1-D contiguous arrays are supported"):
            buffer.copy_from_device(interface_of(source, **changes))
    with pytest.raises(ValueError, match="too large"):
        buffer.copy_from_device(interface_of(source, shape=(9,)))
    with pytest.raises(ValueError, match="mask"):
        buffer.copy_from_device(interface_of(source, mask=source))


def test_copy_from_device_never_waits(sim):
    stream = Stream()
    buffer, source = DeviceBuffer(size=8, stream=stream), DeviceBuffer.to_device(b"12345678", stream)
    before = sim.driver_calls
    buffer.copy_from_device(source, stream)
    # The copy, and whether a context is current. No question about streams: the buffers are on that one.
    assert sim.driver_calls == before + 2
    assert buffer.tobytes(stream) == b"12345678"


def test_the_stream_of_a_version_3_array_is_waited_for(sim):
    producer = Stream(flags=CudaStreamFlags.NON_BLOCKING)
    consumer = Stream(flags=CudaStreamFlags.NON_BLOCKING)
    source = DeviceBuffer.to_device(b"12345678", producer)
    other = DeviceBuffer.to_device(b"abcdefgh", producer)
    # Work on the producer's stream that nobody has waited for.
    source.copy_from_device(other, producer)
    target = DeviceBuffer(size=8, stream=consumer)
    _, handle = producer.__cuda_stream__()
    target.copy_from_device(interface_of(source, version=3, stream=handle), consumer)
    assert target.tobytes(consumer) == b"abcdefgh"
    assert sim.hazards() == []
    with pytest.raises(ValueError, match="ambiguous"):
        target.copy_from_device(interface_of(source, version=3, stream=0), consumer)
    target.copy_from_device(interface_of(source, version=3, stream=None), producer)


def test_a_free_waits_for_uses_on_other_streams(sim):
    home, other = (Stream(flags=CudaStreamFlags.NON_BLOCKING) for _ in range(2))
    source = DeviceBuffer.to_device(bytes(1 << 16), home)
    target = DeviceBuffer(size=1 << 16, stream=other)
    target.copy_from_device(source, other)
    del source
    # The simulator reports a free that the copy is not ordered before.
    again = DeviceBuffer.to_device(b"\1" * (1 << 16), home)
    assert target.tobytes(other) == bytes(1 << 16)
    del again
    assert sim.hazards() == []


def test_copy_is_of_the_same_resource_and_stream(sim):
    first = alluvion.current_resource()
    stream = Stream()
    buffer = DeviceBuffer.to_device(b"abc", stream)
    alluvion.set_current_resource(_alluvion.CudaMemoryResource())
    count = sys.getrefcount(first)
    for copier in (DeviceBuffer.copy, copy.copy):
        copied = copier(buffer)
        assert type(copied) is DeviceBuffer
        assert copied.ptr != buffer.ptr and copied.tobytes(stream) == b"abc"
        assert repr(copied).rsplit("stream=")[1] == repr(buffer).rsplit("stream=")[1]
        assert sys.getrefcount(first) == count + 1
        del copied
    assert sys.getrefcount(first) == count
    assert DeviceBuffer().copy().size == 0
    buffer.resize(1)
    assert buffer.copy().capacity() == 1


def test_pickles(sim):
    buffer = DeviceBuffer.to_device(b"hello")
    function, (array,) = buffer.__reduce__()
    assert function is to_device and array.tobytes() == b"hello"
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        text = pickle.dumps(buffer, protocol)
        assert b"alluvion.rmm.pylibrmm.device_buffer" in text and b"to_device" in text
        assert pickle.loads(text).tobytes() == b"hello"
    out = []
    text = pickle.dumps(buffer, 5, buffer_callback=out.append)
    assert len(out) == 1 and type(out[0]) is pickle.PickleBuffer
    assert pickle.loads(text, buffers=out).tobytes() == b"hello"
    assert copy.deepcopy(buffer).tobytes() == b"hello"
    assert pickle.loads(pickle.dumps(DeviceBuffer())).size == 0


def test_a_subclass_is_copied_as_a_buffer(sim):
    class Named(DeviceBuffer):
        pass

    named = Named(size=3)
    assert type(copy.copy(named)) is DeviceBuffer
    assert type(pickle.loads(pickle.dumps(named))) is DeviceBuffer


def test_a_resize_within_the_capacity_moves_nothing(sim):
    buffer = DeviceBuffer.to_device(b"12345678")
    place = buffer.ptr
    buffer.resize(3)
    assert (buffer.ptr, buffer.size, buffer.capacity()) == (place, 3, 8)
    assert buffer.tobytes() == b"123"
    buffer.resize(0)
    assert (buffer.ptr, buffer.size, buffer.capacity()) == (place, 0, 8)
    buffer.resize(8)
    assert buffer.tobytes() == b"12345678"


def test_a_resize_beyond_takes_exactly_that(sim):
    buffer = DeviceBuffer.to_device(b"12345678")
    place = buffer.ptr
    buffer.resize(1000)
    assert (buffer.size, buffer.capacity()) == (1000, 1000) and buffer.ptr != place
    assert buffer.tobytes()[:8] == b"12345678"
    buffer.reserve(10)
    assert buffer.capacity() == 1000
    buffer.reserve(new_capacity=3000)
    assert (buffer.size, buffer.capacity()) == (1000, 3000)
    assert buffer.tobytes()[:8] == b"12345678"
    empty = DeviceBuffer()
    empty.resize(new_size=5)
    assert empty.size == 5 and empty.ptr
    with pytest.raises(OverflowError):
        buffer.resize(-1)
    with pytest.raises(TypeError):
        buffer.resize(1.5)
    with pytest.raises(TypeError, match="cannot be None"):
        buffer.resize(1, None)
    with pytest.raises(MemoryError):
        buffer.resize(1 << 40)
    assert (buffer.size, buffer.tobytes()[:8]) == (1000, b"12345678")


class Foreign:
    """A stream object of another library."""

    def __init__(self):
        self.stream = Stream(flags=CudaStreamFlags.NON_BLOCKING)

    def __cuda_stream__(self):
        return self.stream.__cuda_stream__()


@pytest.mark.parametrize("size", [4, 4000])
def test_after_a_resize_the_buffer_holds_the_new_stream(sim, size):
    buffer = DeviceBuffer.to_device(b"12345678", Stream(flags=CudaStreamFlags.NON_BLOCKING))
    foreign = Foreign()
    alive = weakref.ref(foreign)
    buffer.resize(size, Stream(foreign))
    del foreign
    gc.collect()
    assert alive() is not None
    assert f"stream={alive().__cuda_stream__()[1]:#x}" in repr(buffer)
    assert buffer.copy().tobytes()[:4] == b"1234"
    del buffer
    gc.collect()
    assert alive() is None
    assert sim.hazards() == []


def test_a_buffer_keeps_its_stream_and_its_resource(sim):
    class Mine(_alluvion.CudaMemoryResource):
        pass

    mr, foreign = Mine(), Foreign()
    buffer = DeviceBuffer(size=8, stream=foreign, mr=mr)
    alive = weakref.ref(foreign), weakref.ref(mr)
    del foreign, mr
    gc.collect()
    assert None not in (alive[0](), alive[1]())
    del buffer
    gc.collect()
    assert (alive[0](), alive[1]()) == (None, None)


def test_a_cycle_through_a_resource_is_collected(sim):
    class Mine(_alluvion.CudaMemoryResource):
        pass

    mr = Mine()
    mr.buffer = DeviceBuffer(size=8, mr=mr)
    alive = weakref.ref(mr)
    del mr
    gc.collect()
    assert alive() is None
    assert sim.leaks() == []


def test_prefetch_leaves_other_memory_alone(sim):
    buffer = DeviceBuffer(size=8)
    for arguments in ({}, {"device": 0}, {"device": -1}, {"stream": Stream()}, {"device": None, "stream": None}):
        assert buffer.prefetch(**arguments) is None
    assert buffer.prefetch(99) is None
    DeviceBuffer().prefetch()
    with pytest.raises(TypeError):
        buffer.prefetch("0")
    with pytest.raises(TypeError):
        buffer.prefetch(stream="s")


def test_the_functions_copy_by_address(sim):
    buffer = DeviceBuffer(size=8)
    assert device_buffer.copy_host_to_ptr(b"12345678", buffer.ptr) is None
    target = bytearray(4)
    assert device_buffer.copy_ptr_to_host(buffer.ptr + 2, target) is None
    assert target == b"3456"
    other = DeviceBuffer(size=8)
    stream = Stream()
    device_buffer.copy_device_to_ptr(buffer.ptr, other.ptr, 8, stream)
    stream.synchronize()
    device_buffer.copy_device_to_ptr(d_src=buffer.ptr, d_dst=other.ptr, count=0, stream=DEFAULT_STREAM)
    assert other.tobytes() == b"12345678"
    device_buffer.copy_ptr_to_host(db=buffer.ptr, hb=bytearray(0), stream=stream)
    device_buffer.copy_host_to_ptr(hb=b"", db=0)
    with pytest.raises(TypeError):
        device_buffer.copy_ptr_to_host(buffer.ptr, None)
    with pytest.raises(TypeError):
        device_buffer.copy_host_to_ptr(None, buffer.ptr)
    with pytest.raises(BufferError):
        device_buffer.copy_ptr_to_host(buffer.ptr, bytes(4))
    with pytest.raises(TypeError, match="cannot be None"):
        device_buffer.copy_device_to_ptr(buffer.ptr, other.ptr, 8, None)
    with pytest.raises(OverflowError):
        device_buffer.copy_device_to_ptr(-1, other.ptr, 8)


def test_objects_of_the_host_are_let_go(sim):
    buffer = DeviceBuffer(size=8)
    data = bytearray(b"12345678")
    count = sys.getrefcount(data)
    for stream in (DEFAULT_STREAM, Stream(), PER_THREAD_DEFAULT_STREAM):
        buffer.copy_from_host(data, stream)
        buffer.copy_to_host(data, stream)
        DeviceBuffer.to_device(data, stream)
    assert sys.getrefcount(data) == count
    data.clear()


def test_eight_threads_make_copy_and_drop(sim):
    failed = []

    def work(number):
        try:
            stream = Stream()
            data = bytes([number]) * 1000
            for _ in range(25):
                buffer = DeviceBuffer.to_device(data, stream)
                assert buffer.copy().tobytes(stream) == data
                buffer.resize(2000, stream)
                assert buffer.tobytes(stream)[:1000] == data
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    gc.collect()
    # Events are kept for later.
    assert [leak for leak in map(str, sim.leaks()) if not leak.startswith("leak: event")] == []


def test_one_buffer_resized_and_read_by_many_threads(sim):
    buffer = DeviceBuffer.to_device(b"abc" * 100)
    wrong = []

    def read():
        for _ in range(40):
            if buffer.tobytes()[:300] != b"abc" * 100:
                wrong.append("bytes")

    def resize(step):
        for turn in range(40):
            try:
                buffer.resize(300 + step * turn)
            except RuntimeError as error:
                assert "another thread" in str(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    threads += [threading.Thread(target=resize, args=(step,)) for step in (7, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_buffers_of_another_device(sim):
    alluvion.set_current_device(1)
    try:
        buffer = DeviceBuffer.to_device(b"abc")
    finally:
        alluvion.set_current_device(0)
    assert "device=1" in repr(buffer)
    assert buffer.tobytes() == b"abc"
    assert buffer.copy().tobytes() == b"abc"


def test_bytes_may_have_a_sign(sim):
    for data in (np.array([-1, 2, 3], "i1"), np.array([True, False, True]), (ctypes.c_char * 3)(*b"abc")):
        buffer = DeviceBuffer.to_device(data)
        assert buffer.tobytes() == bytes(memoryview(data).cast("B"))
    back = np.zeros(3, "i1")
    DeviceBuffer.to_device(np.array([-1, 2, 3], "i1")).copy_to_host(back)
    assert back.tolist() == [-1, 2, 3]
