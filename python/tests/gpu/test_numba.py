"""Numba's kernels under our memory manager."""

import gc
import os

import numpy
import pytest

import alluvion
import alluvion.rmm as rmm

if not hasattr(numpy, "row_stack"):
    # numba-cuda 0.30 names it, and compiles no kernel without; NumPy 2.5 has its other name alone.
    numpy.row_stack = numpy.vstack

os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")
cuda = pytest.importorskip("numba.cuda")


@pytest.fixture(scope="module", autouse=True)
def manager():
    if alluvion.device_count() == 0:
        yield None
        return
    from alluvion.rmm.allocators.numba import RMMNumbaManager

    cuda.set_memory_manager(RMMNumbaManager)
    yield RMMNumbaManager


def test_kernels_run_on_our_memory(counted):
    @cuda.jit
    def add(left, right, out):
        at = cuda.grid(1)
        if at < out.size:
            out[at] = left[at] + right[at]

    count = 100_000
    left = cuda.to_device(numpy.arange(count, dtype=numpy.float64))
    right = cuda.to_device(numpy.full(count, 3.0))
    out = cuda.device_array(count, dtype=numpy.float64)
    assert counted.allocation_counts.current_bytes >= 3 * 8 * count
    add[(count + 255) // 256, 256](left, right, out)
    numpy.testing.assert_array_equal(out.copy_to_host(), numpy.arange(count) + 3.0)
    del left, right, out
    gc.collect()
    cuda.current_context().deallocations.clear()
    assert counted.allocation_counts.current_bytes == 0


def test_the_memory_is_told(counted):
    free, total = cuda.current_context().get_memory_info()
    assert 0 < free <= total


def test_a_buffer_is_an_array_of_numba(counted):
    buffer = rmm.DeviceBuffer.to_device(bytes(range(200)))
    array = cuda.as_cuda_array(buffer)
    assert array.copy_to_host().tobytes() == bytes(range(200))


def test_arrays_without_elements(counted):
    arrays = [cuda.device_array(0) for _ in range(3)]
    assert [array.size for array in arrays] == [0, 0, 0]


def test_a_handle_for_another_process(gpu):
    rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())
    array = cuda.device_array(1 << 16, dtype=numpy.uint8)
    try:
        handle = array.get_ipc_handle()
    except Exception as error:
        # Where the machine is virtual the driver may refuse: then with a reason.
        assert "IPC" in str(error) or "CUDA_ERROR" in str(error)
    else:
        assert handle is not None
