"""`alluvion.rapids.DeviceResource`: a resource of the genuine RMM."""

import gc
import sys
from types import SimpleNamespace

import pytest
import rmm
from rmm.pylibrmm.stream import Stream

import alluvion
from alluvion.rapids import DeviceResource


def stream_of_rmm(ours):
    """A stream of ours as one of RMM's, which before 25.12 takes streams of frameworks alone."""
    if hasattr(Stream, "__cuda_stream__"):
        return Stream(ours)
    framework = SimpleNamespace(Stream=SimpleNamespace, ExternalStream=SimpleNamespace)
    sys.modules["cupy"] = SimpleNamespace(cuda=SimpleNamespace(stream=framework))
    try:
        return Stream(SimpleNamespace(ptr=ours.__cuda_stream__()[1], keep=ours))
    finally:
        del sys.modules["cupy"]


def live(mr):
    return mr.stack.stats().current_bytes


def test_it_is_a_genuine_resource_of_a_recipe_or_a_stack(sim):
    mr = DeviceResource("stats | pool | cuda-async")
    assert isinstance(mr, rmm.mr.DeviceMemoryResource) and type(mr).__module__ == "alluvion.rapids"
    assert type(mr).__mro__[1].__module__ == "alluvion.rapids._compiled", "not over callbacks"
    assert isinstance(mr.stack, alluvion.Stack) and mr.stack.device == 0
    assert repr(mr) == "DeviceResource(Stats(0 B) | Pool(0 B) | CudaAsync(gpu 0))"
    assert DeviceResource(recipe="stats | cuda", device=1).stack.device == 1
    stack = alluvion.resource("stats | cuda", 1)
    assert DeviceResource(stack).stack is stack and DeviceResource(stack, 1).stack is stack
    of_class = alluvion.rmm.mr.StatisticsResourceAdaptor(alluvion.rmm.mr.CudaMemoryResource())
    assert "Stats" in repr(DeviceResource(of_class))
    assert DeviceResource().stack.device == 0


def test_blocks_come_from_the_stack_and_go_back(sim):
    mr = DeviceResource("stats | pool | cuda-async")
    address = mr.allocate(1000)
    assert address % 256 == 0 and 1000 <= live(mr) < 1024
    mr.deallocate(address, 1000)
    assert live(mr) == 0
    mr.deallocate(mr.allocate(0), 0)


def test_streams_are_those_that_rmm_passes(sim):
    mr = DeviceResource("stats | tracking | pool | cuda-async")
    ours = alluvion.Stream()
    stream = stream_of_rmm(ours)
    address = mr.allocate(1000, stream)
    other = mr.allocate(1000)
    streams = {block.address: block.stream for block in mr.stack.blocks()}
    # The names of the streams, of which the default one is the first of its device.
    assert streams[other].endswith(".0") and not streams[address].endswith(".0")
    mr.deallocate(address, 1000, stream)
    mr.deallocate(other, 1000)
    assert live(mr) == 0


def test_buffers_and_layers_of_rmm_are_over_it(sim):
    mr = DeviceResource("stats | pool | cuda-async")
    counted = rmm.mr.StatisticsResourceAdaptor(mr)
    buffer = rmm.DeviceBuffer(size=5000, mr=counted)
    assert 5000 <= counted.allocation_counts.current_bytes < 5024 and 5000 <= live(mr) < 5024
    del buffer
    gc.collect()
    assert live(mr) == 0


def test_what_finds_no_memory_is_a_memory_error_with_our_report(sim):
    mr = DeviceResource("stats | limiting(64MiB) | pool | cuda-async")
    with pytest.raises(MemoryError, match=r"out_of_memory: .*Limiting refused 1 GiB .*limit 64 MiB"):
        mr.allocate(1 << 30)
    with pytest.raises(MemoryError, match="Limiting refused"):
        rmm.DeviceBuffer(size=65 << 20, mr=mr)
    with pytest.raises(MemoryError, match="Limiting refused"):
        rmm.mr.StatisticsResourceAdaptor(mr).allocate(65 << 20)
    # Whoever asks RMM to be asked, is.
    asked = []
    asking = rmm.mr.FailureCallbackResourceAdaptor(mr, lambda nbytes: asked.append(nbytes) and False)
    with pytest.raises(MemoryError):
        asking.allocate(65 << 20)
    assert len(asked) == 1 and asked[0] >= 65 << 20


def test_a_handler_of_the_stack_frees_and_the_request_goes_on(sim):
    def spill(error):
        held.clear()
        return True

    mr = DeviceResource(alluvion.resource("stats | limiting(1MiB) | pool | cuda-async", on_out_of_memory=spill))
    held = [rmm.DeviceBuffer(size=800 << 10, mr=mr)]
    buffer = rmm.DeviceBuffer(size=800 << 10, mr=mr)
    assert held == [] and live(mr) == buffer.size


def test_other_failures_are_no_memory_errors(sim):
    mr = DeviceResource("pool | cuda-async")
    alluvion.set_current_device(1)
    foreign = stream_of_rmm(alluvion.Stream())
    alluvion.set_current_device(0)
    with pytest.raises(RuntimeError, match="gpu 1"):
        mr.allocate(100, foreign)
    sim.lose(0)
    with pytest.raises(RuntimeError, match="context"):
        mr.allocate(1 << 20)
    with pytest.raises(alluvion.errors.ContextLost):
        DeviceResource(mr.stack)


def test_what_cannot_be_a_resource_is_refused(sim):
    stack = alluvion.resource("cuda", 0)
    with pytest.raises(ValueError, match="the stack is of gpu 0, and cannot be a resource of gpu 1"):
        DeviceResource(stack, 1)
    with pytest.raises(alluvion.errors.Malformed, match="did you mean `cuda-async`"):
        DeviceResource("pool | cuda-asinc")
    with pytest.raises(TypeError, match="a recipe is a str or an alluvion.Stack, and not CudaMemoryResource"):
        DeviceResource(rmm.mr.CudaMemoryResource())
    with pytest.raises(alluvion.errors.NoDevice):
        DeviceResource("cuda", 7)


def test_a_string_and_options_are_enough(sim):
    # As the configuration of cudf-polars makes one.
    from importlib import import_module

    module, _, name = "alluvion.rapids.DeviceResource".rpartition(".")
    mr = getattr(import_module(module), name)(**{"recipe": "stats | pool | cuda-async"})
    assert isinstance(mr, rmm.mr.DeviceMemoryResource) and "Pool" in repr(mr)


def test_a_wrong_free_is_left_alone(run):
    ended = run("""
import alluvion
from alluvion.rapids import DeviceResource
with alluvion.simulated(check=False):
    mr = DeviceResource("stats | pool | cuda-async")
    address = mr.allocate(1000)
    mr.deallocate(address, 1000)
    mr.deallocate(address, 1000)
    print(mr.stack.stats().current_bytes)
""")
    assert (ended.returncode, ended.stdout) == (0, "0\n"), ended.stderr
    assert ended.stderr.startswith("alluvion: a free was refused") and ended.stderr.count("\n") == 1
