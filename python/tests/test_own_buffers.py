"""Buffers of our own face."""

import pytest

import alluvion
from alluvion import pinned


def test_a_buffer_comes_from_the_current_resource_or_the_named_one(sim):
    with alluvion.using("stats | cuda") as stack:
        buffer = alluvion.empty("1 KiB")
        assert isinstance(buffer, alluvion.Buffer)
        assert buffer.size == 1024 and stack.stats().current_bytes == 1024
        other = alluvion.resource("stats | pool | cuda-async")
        second = alluvion.empty(100, resource=other, stream=alluvion.Stream(flags=1))
        assert other.stats().current_bytes == 100
        assert alluvion.empty(10, resource="cuda").size == 10
        del buffer, second
        assert stack.stats().current_bytes == other.stats().current_bytes == 0
    with pytest.raises(ValueError, match="Could not parse"):
        alluvion.empty("zz")
    with pytest.raises(TypeError):
        alluvion.empty(1.5)
    with pytest.raises(MemoryError):
        alluvion.empty("1 TiB")


def test_buffers_have_tags_lines_and_the_resource_of_the_thread(sim):
    with alluvion.using("tracking(stacks=all) | cuda", thread=True) as stack, alluvion.tag("mine"):
        buffer = alluvion.empty(100)
        (block,) = stack.blocks()
        assert block.tag == "mine"
        assert block.call.function == "test_buffers_have_tags_lines_and_the_resource_of_the_thread"
        del buffer


def test_pinned_arrays_go_to_the_device_and_back(sim):
    there = pinned.array(list(range(100)), dtype="u1")
    stream = alluvion.Stream(flags=1)
    buffer = alluvion.Buffer.to_device(there, stream)
    del there
    back = pinned.zeros(100, "u1")
    buffer.copy_to_host(back, stream)
    stream.synchronize()
    assert back.tolist() == list(range(100))
