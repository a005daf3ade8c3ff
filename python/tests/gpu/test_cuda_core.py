"""Our memory as a memory resource of `cuda.core`."""

import pytest

import alluvion.rmm as rmm

core = pytest.importorskip("cuda.core")


@pytest.fixture
def device(counted):
    device = core.Device()
    device.set_current()
    return device


def test_a_device_allocates_from_us(device, counted):
    import alluvion.cuda_core

    before = device.memory_resource
    device.memory_resource = alluvion.cuda_core.MemoryResource()
    try:
        stream = device.create_stream()
        buffer = device.allocate(1 << 20, stream=stream)
        assert counted.allocation_counts.current_bytes == 1 << 20
        assert buffer.size == 1 << 20 and buffer.is_device_accessible and not buffer.is_host_accessible
        assert buffer.device_id == device.device_id
        other = device.allocate(1 << 20, stream=stream)
        other.copy_from(buffer, stream=stream)
        buffer.close(stream)
        other.close(stream)
        stream.sync()
        assert counted.allocation_counts.current_bytes == 0
    finally:
        device.memory_resource = before


def test_a_buffer_that_is_dropped_goes_back(device, counted):
    import gc

    import alluvion.cuda_core

    resource = alluvion.cuda_core.MemoryResource(counted)
    buffer = resource.allocate(4096, stream=device.default_stream)
    assert counted.allocation_counts.current_count == 1
    del buffer
    gc.collect()
    assert counted.allocation_counts.current_count == 0


def test_managed_memory_says_so(device, gpu):
    import alluvion.cuda_core

    resource = alluvion.cuda_core.MemoryResource(rmm.mr.ManagedMemoryResource())
    assert resource.is_managed and resource.is_host_accessible and resource.is_device_accessible
