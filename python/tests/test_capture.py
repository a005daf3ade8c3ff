"""Memory that belongs to captured graphs."""

import copy
import gc
import threading

import pytest

import alluvion
from alluvion import Stream, errors

MIB = 1 << 20


@pytest.fixture
def stack(sim):
    stack = alluvion.resource("stats | pool | cuda")
    yield stack
    del stack
    gc.collect()


def held(stack, stream, size=1000):
    return alluvion.empty(size, resource=stack, stream=stream)


def test_a_graph_keeps_what_was_used_inside(sim, stack):
    stream, other = Stream(flags=1), Stream(flags=1)
    output = held(stack, stream)
    output.copy_from_host(b"abc")
    sim.begin_capture(stream)
    with stack.capture(stream) as memory:
        first = held(stack, stream)
        address = first.ptr
        first.copy_from_device(output, stream=stream)
        del first
        second = held(stack, stream)
        assert second.ptr == address, "the memory is used again in the captured order"
        output.copy_from_device(second, stream=stream)
        del second
        graph = sim.end_capture(stream)
    assert (memory.reserved_bytes, graph.node_count) == (2 * MIB, 2)
    assert repr(memory) == f"GraphMemory({2 * MIB} bytes)"
    # Nobody else gets it, while the graph may be launched.
    blocks = [held(stack, other, MIB) for _ in range(8)]
    assert not any(block.ptr <= address < block.ptr + MIB for block in blocks)
    for _ in range(3):
        graph.launch(stream)
    stream.synchronize()
    del blocks, graph
    assert memory.release() == 2 * MIB
    assert (memory.release(), memory.reserved_bytes) == (0, 0)
    with pytest.raises(errors.InvalidArgument):
        memory.end()
    del output


def test_where_it_cannot_be(sim, stack):
    stream = Stream(flags=1)
    with pytest.raises(errors.InvalidArgument, match="does not capture"):
        stack.capture(stream)
    without = [alluvion.resource(recipe) for recipe in ("cuda", "stats | limiting(1GiB) | cuda", "arena(8MiB) | pool | cuda")]
    sim.begin_capture(stream)
    for other in without:
        with pytest.raises(errors.Unsupported, match="no pool"):
            other.capture(stream)
    memory = stack.capture(stream)
    with pytest.raises(errors.InvalidArgument):
        stack.capture(stream)
    with pytest.raises(RuntimeError, match="pickled or copied"):
        copy.copy(memory)
    with pytest.raises(RuntimeError, match="refused"):
        sim.begin_capture(stream)
    graph = sim.end_capture(stream)
    with pytest.raises(RuntimeError, match="refused"):
        sim.end_capture(stream)
    memory.end()
    with pytest.raises(errors.InvalidArgument):
        memory.end()
    del graph
    assert memory.release() == 0


def test_a_block_that_is_out_keeps_it(sim, stack):
    stream = Stream(flags=1)
    sim.begin_capture(stream)
    with stack.capture(stream) as memory:
        block = held(stack, stream)
        graph = sim.end_capture(stream)
    del graph
    with pytest.raises(errors.InUse):
        memory.release()
    del block
    gc.collect()
    assert memory.release() == 2 * MIB


def test_a_buffer_that_two_streams_use_is_the_graphs_when_it_is_dropped_within(sim, stack):
    main, side = Stream(flags=1), Stream(flags=1)
    before, output = held(stack, main), held(stack, side)
    sim.begin_capture(main)
    with stack.capture(main) as memory:
        memory.follow(side, main)
        within = held(stack, main)
        addresses = {within.ptr, before.ptr}
        for used in (within, before):
            output.copy_from_device(used, stream=side)
        del used, within, before
        more = [held(stack, main) for _ in range(8)]
        assert addresses.isdisjoint(block.ptr for block in more), "the other stream uses them in each launch"
        del more
        memory.follow(main, side)
        graph = sim.end_capture(main)
    for _ in range(2):
        graph.launch(main)
    main.synchronize()
    del graph
    assert memory.release() > 2 * MIB, "its own, and that of the buffer that was there before"
    del output
    gc.collect()
    assert stack.pool_status()["live_blocks"] == 0


def test_an_exception_within_ends_the_capture_of_the_pool(sim, stack):
    stream = Stream(flags=1)
    sim.begin_capture(stream)
    with pytest.raises(ZeroDivisionError):
        with stack.capture(stream) as memory:
            1 / 0
    sim.end_capture(stream)
    assert memory.release() == 0
    # And one that was ended by hand within says nothing of its own.
    sim.begin_capture(stream)
    with pytest.raises(ZeroDivisionError):
        with stack.capture(stream) as memory:
            memory.end()
            1 / 0
    sim.end_capture(stream)
    memory.release()


def test_a_stream_that_joins(sim, stack):
    main, side = Stream(flags=1), Stream(flags=1)
    sim.begin_capture(main)
    with stack.capture(main) as memory:
        block = held(stack, main, 2 * MIB)
        address = block.ptr
        del block
        memory.follow(side, main)
        block = held(stack, side, 2 * MIB)
        assert block.ptr == address
        del block
        memory.follow(main, side)
        graph = sim.end_capture(main)
    assert memory.reserved_bytes == 2 * MIB
    with pytest.raises(errors.InvalidArgument):
        memory.follow(main, side)
    del graph
    memory.release()


def test_one_that_is_dropped_leaves_the_memory_with_the_graph():
    with alluvion.simulated() as sim:
        stack = alluvion.resource("pool | cuda")
        stream = Stream(flags=1)
        sim.begin_capture(stream)
        with stack.capture(stream) as memory:
            block = held(stack, stream)
            address = block.ptr
            del block
            graph = sim.end_capture(stream)
        del memory
        gc.collect()
        more = stack.allocate(1000)
        assert more != address
        stack.deallocate(more, 1000)
        graph.launch(stream)
        stream.synchronize()
        del graph, stack, stream


def test_threads_release_it_once(sim, stack):
    stream = Stream(flags=1)
    for _ in range(10):
        sim.begin_capture(stream)
        with stack.capture(stream) as memory:
            held(stack, stream)
            graph = sim.end_capture(stream)
        del graph
        released, refused = [], []

        def release():
            try:
                released.append(memory.release())
            except errors.InUse as error:
                refused.append(str(error))

        threads = [threading.Thread(target=release) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Whoever comes while one is at it is told so, and whoever comes later gets 0.
        assert len(released) + len(refused) == 4
        assert sorted(released) == [0] * (len(released) - 1) + [2 * MIB]
        assert all("another thread is releasing it" in why for why in refused)
        assert memory.release() == 0
