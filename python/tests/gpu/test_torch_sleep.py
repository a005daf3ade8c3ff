"""Sleep by the interfaces of `torch_memory_saver` and of vLLM, with PyTorch's tensors and graphs."""

import gc

import pytest

import alluvion
import alluvion.torch
import alluvion.vllm
from alluvion import rmm
from alluvion.torch_memory_saver import TorchMemorySaver

torch = pytest.importorskip("torch")

MIB = 1 << 20


@pytest.fixture(scope="module")
def stack():
    if alluvion.device_count() == 0 or not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    return alluvion.torch.install("stats | pool(checked=true) | mapped", devices=[0])[0]


def full(value, mib=64):
    return torch.full((mib * MIB // 4,), float(value), device="cuda")


def free_bytes():
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def graph_of(source, target):
    """What adds one to `source` into `target`."""
    target.copy_(source + 1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.add(source, 1, out=target)
    return graph


def test_what_is_kept_of_a_paused_region_can_be_read(stack):
    saver = TorchMemorySaver()
    with saver.region("weights", enable_cpu_backup=True):
        weights = full(3)
    with saver.region("kv_cache"):
        cache = full(0)
    graph, address = graph_of(weights, cache), weights.data_ptr()
    part = weights[MIB : 3 * MIB]
    awake = free_bytes()
    for turn in range(3):
        weights.fill_(10.0 + turn)
        saver.pause()
        # A page that another tensor lies on stays: those at either end of each region.
        assert free_bytes() >= awake + 120 * MIB
        for kept in (saver.get_cpu_backup(weights), saver.get_cpu_backup(part)):
            assert kept.device.type == "cpu" and bool((kept == 10.0 + turn).all())
        saver.resume()
        assert weights.data_ptr() == address and bool((weights == 10.0 + turn).all())
        graph.replay()
        assert bool((cache == 11.0 + turn).all())
        assert abs(free_bytes() - awake) <= 4 * MIB


def test_a_wake_without_room_is_an_error_of_vllms_and_can_be_tried_again(stack):
    allocator = alluvion.vllm.MemAllocator()
    with allocator.use_memory_pool("weights"):
        weights = full(5, 2048)
    with allocator.use_memory_pool("cache"):
        cache = full(0, 2048)
    graph, address = graph_of(weights, cache), weights.data_ptr()
    allocator.sleep(("weights",))
    device = rmm.mr.CudaMemoryResource()
    others = [rmm.DeviceBuffer(size=free_bytes() - 1024 * MIB, mr=device)]
    for _ in range(2):
        with pytest.raises(RuntimeError) as refused:
            allocator.wake_up()
        assert isinstance(refused.value, alluvion.vllm.NoRoom) and isinstance(refused.value, MemoryError)
    others.clear()
    allocator.wake_up()
    assert weights.data_ptr() == address and bool((weights == 5).all())
    graph.replay()
    assert bool((cache == 6).all())
