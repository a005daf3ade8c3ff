"""What needs two GPUs of one host: a stack on each, memory that the other one reads, and processes on different GPUs."""

import gc

import pytest

import alluvion
import alluvion.rmm as rmm
from alluvion import errors

from test_shared import PATTERN, Other

MIB = 1 << 20


@pytest.fixture
def two(gpu):
    if gpu < 2:
        pytest.skip("there is one GPU")
    resources = [rmm.mr.get_per_device_resource(device) for device in (0, 1)]
    yield
    for device, resource in enumerate(resources):
        rmm.mr.set_per_device_resource(device, resource)
    alluvion.set_current_device(0)


def on_each():
    for device in (0, 1):
        alluvion.set_current_device(device)
        yield device


@pytest.mark.parametrize("source", ["cuda", "cuda-async", "mapped"])
def test_a_stack_on_each_is_read_by_the_other(two, source):
    stacks = alluvion.per_device(f"stats | pool | {source}(peers=all)")
    streams = [alluvion.Stream() for _ in on_each()]
    for round in range(4):
        buffers = []
        for device in on_each():
            buffer = alluvion.empty(len(PATTERN), resource=stacks[device], stream=streams[device])
            buffer.copy_from_host(PATTERN[round:] + PATTERN[:round], stream=streams[device])
            streams[device].synchronize()
            buffers.append(buffer)
        for device in on_each():
            there = alluvion.empty(len(PATTERN), resource=stacks[device], stream=streams[device])
            there.copy_from_device(buffers[1 - device], stream=streams[device])
            assert there.tobytes(streams[device]) == PATTERN[round:] + PATTERN[:round]
    del buffer, buffers, there
    gc.collect()
    assert [stacks[device].stats().current_count for device in (0, 1)] == [0, 0]


def test_a_resource_of_each_is_current_there(two):
    """The loop over devices of RMM's guide. What one device has is freed where the other one is current."""
    made = []
    for device in on_each():
        pool = rmm.mr.StatisticsResourceAdaptor(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 8 * MIB))
        rmm.mr.set_per_device_resource(device, pool)
        made.append(rmm.DeviceBuffer.to_device(PATTERN))
        assert rmm.mr.get_current_device_resource() is pool and pool.allocation_counts.current_bytes >= len(PATTERN)
    alluvion.set_current_device(1)
    assert [buffer.tobytes() for buffer in made] == [PATTERN, PATTERN]
    del made
    gc.collect()
    assert [rmm.mr.get_per_device_resource(device).allocation_counts.current_bytes for device in (0, 1)] == [0, 0]


def test_a_stack_that_its_peer_reads_sleeps(two):
    stacks = alluvion.per_device("tracking | pool | mapped(peers=all)")
    streams = [alluvion.Stream() for _ in on_each()]
    alluvion.set_current_device(0)
    buffer = alluvion.empty(len(PATTERN), resource=stacks[0], stream=streams[0])
    buffer.copy_from_host(PATTERN, stream=streams[0])
    streams[0].synchronize()
    address = buffer.ptr
    for _ in range(4):
        alluvion.set_current_device(1)
        there = alluvion.empty(len(PATTERN), resource=stacks[1], stream=streams[1])
        there.copy_from_device(buffer, stream=streams[1])
        alluvion.set_current_device(0)
        streams[0].wait_for_stream(streams[1])
        with stacks[0].sleep() as asleep:
            assert asleep.is_asleep and stacks[0].pool_status()["reserved_bytes"] == 0
        assert buffer.ptr == address and buffer.tobytes(streams[0]) == PATTERN
        alluvion.set_current_device(1)
        assert there.tobytes(streams[1]) == PATTERN
        there.copy_from_device(buffer, stream=streams[1])
        assert there.tobytes(streams[1]) == PATTERN


@pytest.mark.parametrize("way", ["cuda", "pool(initial=64MiB) | cuda", "mapped(handles=fd)", "pool | mapped(handles=fd)"])
def test_a_process_on_the_other_gpu_reads_and_writes(two, way):
    other = Other()
    try:
        alluvion.set_current_device(0)
        buffer = alluvion.empty(len(PATTERN), resource=alluvion.resource(way))
        buffer.copy_from_host(PATTERN)
        shared = buffer.share(writable=True)
        alluvion.send_shared(other.connection, shared)
        assert other.do("alluvion.set_current_device(1)") == "None"
        taken = "there = alluvion.receive_shared(connection, writable=True, peer=True)"
        assert other.do(f"{taken}; answer = there.tobytes() == bytes(range(256)) * 4096") == "True"
        assert other.do("there.copy_from_host(b'written there'); del there") == "None"
        shared.end(timeout=60)
        assert buffer.tobytes()[:13] == b"written there"
    finally:
        other.close()


def test_a_block_of_a_drivers_pool_is_for_its_own_device(two):
    other = Other()
    try:
        alluvion.set_current_device(0)
        buffer = alluvion.empty(len(PATTERN), resource=alluvion.resource("cuda-async(handles=fd)"))
        buffer.copy_from_host(PATTERN)
        shared = buffer.share()
        alluvion.send_shared(other.connection, shared)
        assert other.do("alluvion.set_current_device(1)") == "None"
        assert other.do("there = alluvion.receive_shared(connection, peer=True)") == "Unsupported"
        shared.end(timeout=60)
    finally:
        other.close()


def test_what_is_of_the_other_device_is_refused(two):
    stacks = alluvion.per_device("stats | pool | cuda-async")
    streams = [alluvion.Stream() for _ in on_each()]
    with pytest.raises(errors.DeviceMismatch):
        stacks[0].allocate(MIB, streams[1])
    assert stacks[0].stats().total_count == 0
