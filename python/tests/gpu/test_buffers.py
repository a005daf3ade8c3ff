"""Buffers, resources and streams on a real device."""

import gc
import pickle
import threading

import pytest

import alluvion
import alluvion.rmm as rmm
from alluvion.rmm.pylibrmm.device_buffer import copy_device_to_ptr, copy_host_to_ptr, copy_ptr_to_host
from alluvion.rmm.pylibrmm.stream import LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream

PATTERN = bytes(range(256)) * 4096


def test_bytes_go_there_and_come_back(counted):
    buffer = rmm.DeviceBuffer.to_device(PATTERN)
    assert buffer.ptr % 256 == 0 and buffer.size == len(PATTERN)
    assert buffer.tobytes() == PATTERN == bytes(buffer)
    assert buffer.copy().tobytes() == PATTERN
    assert pickle.loads(pickle.dumps(buffer)).tobytes() == PATTERN
    assert counted.allocation_counts.current_bytes == len(PATTERN)
    del buffer
    gc.collect()
    assert counted.allocation_counts.current_bytes == 0


@pytest.mark.parametrize("stream", [LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, None], ids=["legacy", "thread", "own"])
def test_every_kind_of_stream_copies(counted, stream):
    stream = stream or Stream()
    first = rmm.DeviceBuffer(size=len(PATTERN), stream=stream)
    copy_host_to_ptr(PATTERN, first.ptr, stream)
    second = rmm.DeviceBuffer(size=len(PATTERN), stream=stream)
    copy_device_to_ptr(first.ptr, second.ptr, len(PATTERN), stream)
    back = bytearray(len(PATTERN))
    copy_ptr_to_host(second.ptr, back, stream)
    stream.synchronize()
    assert back == PATTERN


def test_a_buffer_grows_with_its_contents(counted):
    buffer = rmm.DeviceBuffer.to_device(PATTERN)
    buffer.resize(3 * len(PATTERN))
    assert buffer.tobytes()[: len(PATTERN)] == PATTERN
    buffer.resize(100)
    assert buffer.capacity() == 3 * len(PATTERN) and buffer.tobytes() == PATTERN[:100]


RESOURCES = {
    "cuda": lambda: rmm.mr.CudaMemoryResource(),
    "managed": lambda: rmm.mr.ManagedMemoryResource(),
    "pinned": lambda: rmm.mr.PinnedHostMemoryResource(),
    "async": lambda: rmm.mr.CudaAsyncMemoryResource(initial_pool_size="16 MiB"),
    "pool": lambda: rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "16 MiB", "64 MiB"),
    "pool over async": lambda: rmm.mr.PoolMemoryResource(rmm.mr.CudaAsyncMemoryResource(), "16 MiB"),
    "pool over managed": lambda: rmm.mr.PoolMemoryResource(rmm.mr.ManagedMemoryResource(), "16 MiB"),
    "arena": lambda: rmm.mr.ArenaMemoryResource(rmm.mr.CudaMemoryResource(), "64 MiB"),
    "fixed": lambda: rmm.mr.FixedSizeMemoryResource(rmm.mr.CudaMemoryResource(), 1 << 21, 4),
    "binning": lambda: rmm.mr.BinningMemoryResource(rmm.mr.CudaMemoryResource(), 16, 18),
    "limiting": lambda: rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaMemoryResource(), 1 << 26),
    "tracking": lambda: rmm.mr.TrackingResourceAdaptor(rmm.mr.CudaMemoryResource(), capture_stacks=True),
    "prefetch": lambda: rmm.mr.PrefetchResourceAdaptor(rmm.mr.ManagedMemoryResource()),
}


@pytest.mark.parametrize("name", RESOURCES)
def test_every_resource_has_memory_that_works(gpu, name):
    resource = RESOURCES[name]()
    stream = Stream()
    for size in (1, 1000, len(PATTERN)):
        buffers = [rmm.DeviceBuffer(size=size, stream=stream, mr=resource) for _ in range(3)]
        for buffer in buffers:
            buffer.copy_from_host(PATTERN[:size], stream)
        assert [buffer.tobytes(stream) for buffer in buffers] == [PATTERN[:size]] * 3
        del buffers, buffer
    stream.synchronize()


def test_more_than_there_is_is_a_memory_error(gpu):
    total = rmm.mr.available_device_memory()[1]
    for resource in (rmm.mr.CudaMemoryResource(), rmm.mr.CudaAsyncMemoryResource()):
        with pytest.raises(MemoryError):
            rmm.DeviceBuffer(size=2 * total, mr=resource)
        assert rmm.DeviceBuffer(size=1 << 20, mr=resource).ptr


def test_threads_with_streams_of_their_own(counted):
    wrong = []

    def work(number):
        stream = Stream()
        mine = bytes([number]) * 65536
        for _ in range(100):
            buffer = rmm.DeviceBuffer(size=len(mine), stream=stream)
            buffer.copy_from_host(mine, stream)
            if buffer.tobytes(stream) != mine:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert counted.allocation_counts.current_bytes == 0


def test_the_driver_is_asked(gpu):
    assert rmm._cuda.gpu.getDeviceCount() == gpu
    assert rmm._cuda.gpu.getDevice() == 0
    assert "NVIDIA" in rmm._cuda.gpu.deviceGetName(0)
    free, total = alluvion.memory_info()
    assert 0 < free <= total
