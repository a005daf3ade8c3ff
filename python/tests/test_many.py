"""Many buffers at once, and memory that is merged."""

import gc

import pytest

import alluvion
from alluvion import errors

MIB = 1 << 20


def test_each_size_has_a_buffer(sim):
    stack = alluvion.resource("stats | tracking | pool | cuda-async")
    stream = alluvion.Stream()
    first, empty, last = stack.allocate_many([1000, 0, "1 MiB"], stream=stream)
    assert [buffer.size for buffer in (first, empty, last)] == [1000, 0, MIB]
    assert empty.ptr == 0 and first.ptr != last.ptr
    assert len(stack.blocks()) == 2 and {block.stream for block in stack.blocks()} != {None}
    del first, empty, last
    gc.collect()
    assert stack.stats().current_bytes == 0 and stack.allocate_many([]) == []
    with pytest.raises(TypeError):
        stack.allocate_many([1000], stream="none")
    with pytest.raises((TypeError, ValueError, OverflowError)):
        stack.allocate_many([1000, -1])
    assert stack.stats().current_bytes == 0
    del stack, stream


def test_one_that_fails_leaves_none(sim):
    stack = alluvion.resource("stats | limiting(2MiB) | pool | cuda-async")
    with pytest.raises(MemoryError):
        stack.allocate_many([MIB, MIB // 2, MIB])
    assert stack.stats().current_count == 0 and stack.stats().total_count == 2
    del stack


def test_whichever_call_fails(sim):
    for nth in range(1, 12):
        stack = alluvion.resource("stats | cuda")
        sim.fail("cuMemAlloc", nth=nth)
        try:
            buffers = stack.allocate_many([MIB] * 8)
        except MemoryError:
            assert nth <= 8
        else:
            assert nth > 8 and len(buffers) == 8
            del buffers
        sim.clear_faults()
        assert stack.stats().current_count == 0
        del stack


def test_a_handler_that_raises_leaves_none(sim):
    def ask(report):
        raise LookupError("nothing to give up")

    stack = alluvion.resource("stats | pool(maximum=2MiB) | cuda", on_out_of_memory=ask)
    with pytest.raises(errors.CallbackFailed) as failed:
        stack.allocate_many([MIB, 2 * MIB])
    assert isinstance(failed.value.__cause__, LookupError)
    assert stack.stats().current_count == 0
    del stack, failed


def test_memory_is_merged(sim):
    stack = alluvion.resource("stats | pool(initial=4MiB) | cuda")
    buffers = stack.allocate_many([MIB] * 4)
    buffers.clear()
    alluvion.rmm.pylibrmm.stream.DEFAULT_STREAM.synchronize()
    assert stack.pool_status()["largest_free_bytes"] < 4 * MIB
    assert stack.defragment() is None
    assert stack.pool_status()["largest_free_bytes"] == 4 * MIB
    with pytest.raises(ValueError, match="there is no `pool` layer"):
        alluvion.resource("cuda").defragment()
    stack.deallocate(stack.allocate(100), 100)
    sim.lose()
    with pytest.raises(errors.Error):
        stack.defragment()
    del stack, buffers
