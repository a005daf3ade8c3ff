"""PyTorch with our allocator in the place of its own: training and inference, all memory from one stack."""

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
    from alluvion.rmm.allocators.torch import rmm_torch_allocator

    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "256 MiB")
    limited = rmm.mr.LimitingResourceAdaptor(pool, 4 << 30)
    counted = rmm.mr.StatisticsResourceAdaptor(limited)
    rmm.mr.set_current_device_resource(counted)
    torch.cuda.memory.change_current_allocator(rmm_torch_allocator)
    return counted


def test_every_byte_of_a_tensor_is_ours(stack):
    before = stack.allocation_counts.current_bytes
    tensor = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    assert stack.allocation_counts.current_bytes == before + (1 << 20)
    del tensor
    assert stack.allocation_counts.current_bytes == before
    assert torch.empty(0, device="cuda").numel() == 0


def test_a_model_learns(stack):
    from torch_work import infer, model, train

    free_before = stack.allocation_counts.current_bytes
    net = model()
    losses = train(net)
    assert all(math.isfinite(loss) for loss in losses) and losses[-1] < losses[0]
    answers = infer(net)
    assert max(answers) - min(answers) <= 1e-2 * abs(answers[0]) + 1e-3
    counts = stack.allocation_counts
    assert counts.total_count > 500 and counts.peak_bytes > 1 << 20
    del net
    gc.collect()
    torch.cuda.synchronize()
    # Workspaces of cuBLAS stay.
    assert stack.allocation_counts.current_bytes - free_before <= 256 << 20


def test_a_tensor_used_on_another_stream_waits_for_it(stack):
    side = torch.cuda.Stream()
    for turn in range(50):
        tensor = torch.full((1 << 18,), float(turn), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            total = tensor.sum()
        tensor.record_stream(side)
        del tensor
        torch.full((1 << 18,), -1.0, device="cuda")
        side.synchronize()
        assert float(total) == turn * float(1 << 18)


def test_too_much_is_an_exception_and_not_the_end(stack):
    with pytest.raises(RuntimeError):
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
    from alluvion.rmm.allocators.torch import last_error

    assert "limit" in last_error() or "memory" in last_error()
    assert float(torch.ones(10, device="cuda").sum()) == 10


def test_emptying_the_cache_is_harmless(stack):
    kept = torch.ones(1000, device="cuda")
    torch.cuda.empty_cache()
    assert float(kept.sum()) == 1000


def test_a_block_goes_back_to_its_own_stack(stack):
    tensor = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    had = stack.allocation_counts.current_bytes
    other = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    rmm.mr.set_current_device_resource(other)
    try:
        second = torch.zeros(1 << 10, dtype=torch.uint8, device="cuda")
        assert other.allocation_counts.current_bytes == 1 << 10
        del tensor
        assert stack.allocation_counts.current_bytes == had - (1 << 20)
        del second
        assert other.allocation_counts.current_bytes == 0
    finally:
        rmm.mr.set_current_device_resource(stack)
