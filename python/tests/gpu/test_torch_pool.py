"""PyTorch's own pool over our memory: `MemPool` on any stack."""

import gc
import math
import sys
from pathlib import Path

import pytest

import alluvion
import alluvion.rmm as rmm

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def stack():
    if alluvion.device_count() == 0:
        pytest.skip("there is no GPU")
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "64 MiB")
    counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.LimitingResourceAdaptor(pool, 2 << 30))
    rmm.mr.set_current_device_resource(counted)
    return counted


def new_pool():
    from alluvion.rmm.allocators.torch import rmm_torch_pool_allocator

    return torch.cuda.MemPool(rmm_torch_pool_allocator.allocator())


def test_segments_are_ours(stack):
    pool = new_pool()
    had = stack.allocation_counts.current_bytes
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.ones(3 << 20, device="cuda")
    assert stack.allocation_counts.current_bytes - had >= 12 << 20
    assert float(tensor.sum()) == 3 << 20
    del tensor
    del pool
    gc.collect()
    torch.cuda.empty_cache()
    assert stack.allocation_counts.current_bytes == had


def test_a_model_learns_in_a_pool(stack):
    from torch_work import infer, model, train

    pool = new_pool()
    had = torch.cuda.memory_reserved()
    with torch.cuda.use_mem_pool(pool):
        net = model()
        losses = train(net)
        answers = infer(net)
    assert all(math.isfinite(loss) for loss in losses) and losses[-1] < losses[0]
    assert max(answers) - min(answers) <= 1e-2 * abs(answers[0]) + 1e-3
    assert stack.allocation_counts.peak_bytes > 0
    assert torch.cuda.memory_reserved() > had


def test_too_much_is_the_exception_of_torch(stack):
    pool = new_pool()
    with torch.cuda.use_mem_pool(pool):
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
        assert float(torch.ones(10, device="cuda").sum()) == 10


def test_a_pool_without_a_resource_of_python(stack):
    rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())
    try:
        pool = new_pool()
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.arange(1 << 20, device="cuda")
        assert int(tensor[-1]) == (1 << 20) - 1
        rmm.mr.set_current_device_resource(stack)
        del tensor, pool
        gc.collect()
        torch.cuda.empty_cache()
    finally:
        rmm.mr.set_current_device_resource(stack)
