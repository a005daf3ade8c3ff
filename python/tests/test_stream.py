"""Streams and pools of streams."""

import copy
import gc
import pickle
import subprocess
import sys
import threading
import weakref

import pytest

import alluvion

from alluvion.rmm.pylibrmm import cuda_stream_pool, stream as streams
from alluvion.rmm.pylibrmm.cuda_stream_pool import CudaStreamPool
from alluvion.rmm.pylibrmm.device_buffer import DeviceBuffer
from alluvion.rmm.pylibrmm.stream import (
    DEFAULT_STREAM,
    LEGACY_DEFAULT_STREAM,
    PER_THREAD_DEFAULT_STREAM,
    CudaStreamFlags,
    Stream,
    _OwningStream,
)


class Protocol:
    """A stream object of another library."""

    def __init__(self, answer):
        self.answer = answer

    def __cuda_stream__(self):
        return self.answer


def test_names():
    assert alluvion.Stream is Stream and cuda_stream_pool.CudaStreamFlags is CudaStreamFlags
    assert (CudaStreamFlags.SYNC_DEFAULT, CudaStreamFlags.NON_BLOCKING) == (0, 1)
    assert issubclass(CudaStreamFlags, int) and len(CudaStreamFlags) == 2
    assert set(streams.__all__) >= {"Stream", "CudaStreamFlags", "DEFAULT_STREAM"}


def test_the_three_constants():
    handles = [stream.__cuda_stream__() for stream in (DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM)]
    assert handles == [(0, 0), (0, 1), (0, 2)]
    assert DEFAULT_STREAM.is_default() and LEGACY_DEFAULT_STREAM.is_default()
    assert not PER_THREAD_DEFAULT_STREAM.is_default()
    assert DEFAULT_STREAM != LEGACY_DEFAULT_STREAM
    assert DEFAULT_STREAM != PER_THREAD_DEFAULT_STREAM


def test_a_new_stream(sim):
    for stream in (Stream(), Stream(None), Stream(flags=CudaStreamFlags.NON_BLOCKING), Stream(None, None), _OwningStream()):
        version, handle = stream.__cuda_stream__()
        assert version == 0 and handle > 2
        assert not stream.is_default()
        assert stream.synchronize() is None
    with pytest.raises(ValueError):
        Stream(flags=2)
    for flags in (-1, "NON_BLOCKING"):
        with pytest.raises(TypeError):
            Stream(flags=flags)


def test_flags_go_with_new_streams_alone(sim):
    for flags in CudaStreamFlags:
        with pytest.raises(ValueError, match="flags may only be specified when obj is None"):
            Stream(DEFAULT_STREAM, flags)


def test_a_stream_of_a_stream_is_the_same(sim):
    stream = Stream()
    other = Stream(stream)
    assert other == stream and other is not stream and hash(other) == hash(stream)
    assert other.__cuda_stream__() == stream.__cuda_stream__()
    del stream
    other.synchronize()


def test_equality_is_that_of_the_handles(sim):
    one, other = Stream(), Stream()
    assert one != other and one == one
    assert one != one.__cuda_stream__() and not (one == 5) and one != None  # noqa: E711
    assert hash(Stream(Protocol((0, 1)))) == hash(LEGACY_DEFAULT_STREAM)
    assert Stream(Protocol((0, 1))) == LEGACY_DEFAULT_STREAM
    assert len({one, Stream(one), other}) == 2
    with pytest.raises(TypeError):
        one < other  # noqa: B015


def test_streams_are_not_copied(sim):
    for function in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            function(Stream())


def test_the_stream_protocol(sim):
    handle = Stream().__cuda_stream__()[1]
    assert Stream(Protocol((0, handle))).__cuda_stream__() == (0, handle)
    with pytest.raises(NotImplementedError, match="version: '1'"):
        Stream(Protocol((1, handle)))
    for answer in (handle, None, (0,), (0, 1, 2), "ab"):
        with pytest.raises(TypeError):
            Stream(Protocol(answer))


@pytest.mark.parametrize("wrong", [1, 0, "stream", object(), 1.5, []])
def test_other_objects_are_no_streams(sim, wrong):
    with pytest.raises(TypeError, match="Cannot create stream from"):
        Stream(wrong)


def test_streams_of_older_libraries(sim):
    known = {"cupy", "numba", "torch"} & sys.modules.keys()
    real = Stream()
    handle = real.__cuda_stream__()[1]

    class Torch:
        cuda_stream = handle

    assert Stream(Torch()) == real
    cupy = type("ExternalStream", (), {"__module__": "cupy.cuda.stream", "ptr": handle})
    assert Stream(cupy()) == real
    numba = type("Stream", (), {"__module__": "numba.cuda.cudadrv.driver", "__int__": lambda self: handle})
    assert Stream(numba()) == real
    # None of them was imported to find out.
    assert {"cupy", "numba", "torch"} & sys.modules.keys() == known


def test_the_wrapped_object_is_kept(sim):
    real = Stream()
    wrapped = Protocol(real.__cuda_stream__())
    alive = weakref.ref(wrapped)
    stream = Stream(wrapped)
    buffer = DeviceBuffer(size=10, stream=stream)
    del wrapped, stream
    gc.collect()
    assert alive() is not None
    del buffer
    gc.collect()
    assert alive() is None


def test_a_cycle_through_a_stream_that_was_not_used(sim):
    wrapped = Protocol(Stream().__cuda_stream__())
    wrapped.stream = Stream(wrapped)
    alive = weakref.ref(wrapped)
    del wrapped
    gc.collect()
    assert alive() is None


def test_an_owned_stream_lives_as_long_as_its_buffers(sim):
    buffer = DeviceBuffer.to_device(b"abc", Stream())
    gc.collect()
    assert buffer.copy().tobytes() == b"abc"
    del buffer
    assert [leak for leak in map(str, sim.leaks()) if "stream" in leak] == []


def test_streams_can_be_derived_from_and_weakly_referred_to(sim):
    class Named(Stream):
        pass

    stream = Named()
    stream.name = "x"
    assert weakref.ref(stream)() is stream
    assert isinstance(Named(DEFAULT_STREAM), Stream)
    DeviceBuffer(size=1, stream=stream)


def test_a_pool_gives_its_streams_in_turn(sim):
    pool = CudaStreamPool(3)
    assert pool.get_pool_size() == 3
    first = [pool.get_stream() for _ in range(3)]
    assert len(set(first)) == 3
    assert [pool.get_stream() for _ in range(3)] == first
    assert [pool.get_stream(number) for number in (0, 1, 2, 3, 7)] == [first[number % 3] for number in (0, 1, 2, 3, 7)]
    assert pool.get_stream(stream_id=1) == first[1]
    assert CudaStreamPool().get_pool_size() == 16
    assert CudaStreamPool(pool_size=2, flags=CudaStreamFlags.NON_BLOCKING).get_pool_size() == 2


def test_pools_that_cannot_be(sim):
    with pytest.raises(RuntimeError, match="greater than zero"):
        CudaStreamPool(0)
    with pytest.raises(OverflowError):
        CudaStreamPool(-1)
    with pytest.raises(TypeError):
        CudaStreamPool("3")
    with pytest.raises(OverflowError):
        CudaStreamPool(1).get_stream(-1)


def test_a_stream_keeps_its_pool(sim):
    stream = CudaStreamPool(2).get_stream()
    gc.collect()
    buffer = DeviceBuffer.to_device(b"abc", stream)
    del stream
    assert buffer.tobytes() == b"abc"


def test_threads_share_a_pool(sim):
    pool, seen = CudaStreamPool(4), []

    def work():
        for _ in range(100):
            seen.append(pool.get_stream())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen.count(pool.get_stream(number)) for number in range(4)) == [100] * 4


def test_streams_of_numbers_need_no_driver():
    code = "from alluvion.rmm.pylibrmm.stream import *; DEFAULT_STREAM == LEGACY_DEFAULT_STREAM; Stream(DEFAULT_STREAM)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


