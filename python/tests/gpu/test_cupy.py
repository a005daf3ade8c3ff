"""CuPy over our memory: a pipeline on several streams, all of it counted."""

import gc

import pytest

import alluvion.rmm as rmm

cupy = pytest.importorskip("cupy")


@pytest.fixture
def over_ours(counted):
    from alluvion.rmm.allocators.cupy import rmm_cupy_allocator

    cupy.cuda.set_allocator(rmm_cupy_allocator)
    yield counted
    gc.collect()
    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)


def test_an_array_is_one_of_our_buffers(over_ours):
    array = cupy.arange(1000, dtype=cupy.float64)
    assert isinstance(array.data.mem._owner, rmm.DeviceBuffer)
    assert over_ours.allocation_counts.current_bytes == 8000
    assert array.data.mem.size == 8000
    assert cupy.empty(0).size == 0
    assert float(array.sum()) == 999 * 500
    del array
    assert over_ours.allocation_counts.current_bytes == 0


def test_a_pipeline_on_several_streams(over_ours):
    before = cupy.get_default_memory_pool().total_bytes()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    sums = []
    for turn in range(40):
        with streams[turn % 4]:
            values = cupy.full(100_000 + turn, turn + 1, dtype=cupy.float64)
            squares = values * values
            parts = cupy.split(squares[:100_000], 4)
            total = sum(part.sum() for part in parts)
            sums.append(total)
    for stream in streams:
        stream.synchronize()
    assert [float(total) for total in sums] == [100_000.0 * (turn + 1) ** 2 for turn in range(40)]
    assert cupy.get_default_memory_pool().total_bytes() == before
    counts = over_ours.allocation_counts
    assert counts.total_count >= 40 * 7
    del values, squares, parts, total, sums
    gc.collect()
    assert over_ours.allocation_counts.current_bytes == 0


def test_a_stream_lives_as_long_as_its_memory(over_ours):
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        array = cupy.ones(1 << 16, dtype=cupy.float32)
    stream.synchronize()
    del stream
    gc.collect()
    assert float(array.sum()) == 1 << 16
    del array
    gc.collect()
    assert over_ours.allocation_counts.current_bytes == 0


def test_a_matrix_product_takes_its_workspace_from_us(over_ours):
    left = cupy.random.default_rng(7).random((512, 512), dtype=cupy.float32)
    product = left @ left.T
    assert bool(cupy.allclose(product, product.T, rtol=1e-3))
