"""The alignment of a request, and files of requests that failed."""

import gc
import json

import pytest

import alluvion
from alluvion import errors
from alluvion.rmm import DeviceBuffer

BIG = 1 << 16


def test_an_address_is_a_multiple_of_the_alignment(sim):
    stack = alluvion.resource("stats | tracking | pool | cuda-async")
    held = [stack.allocate(100, align=align) for align in (BIG, 0, 1, 256, BIG)]
    assert held[0] % BIG == held[4] % BIG == 0
    for address, align in zip(held, (BIG, 256, 16, 0, BIG)):
        stack.deallocate(address, 100, align=align)
    assert stack.stats().current_count == 0
    with pytest.raises((TypeError, ValueError, OverflowError)):
        stack.allocate(100, align=-1)
    for bad in (3, 24, (1 << 64) - 1):
        with pytest.raises(errors.InvalidAlignment):
            stack.allocate(100, align=bad)
        with pytest.raises(errors.InvalidAlignment):
            DeviceBuffer(size=0, mr=stack, align=bad)
    with pytest.raises(TypeError):
        stack.allocate(100, alluvion.Stream(), BIG)


def test_a_buffer_keeps_its_alignment(sim):
    stack = alluvion.resource("stats | tracking | pool | cuda-async")
    other = stack.allocate(100)
    buffer = DeviceBuffer(size=100, mr=stack, align=BIG)
    assert buffer.ptr % BIG == 0
    buffer.copy_from_host(bytes(range(100)))
    buffer.resize(3 * BIG)
    assert buffer.ptr % BIG == 0 and buffer.tobytes()[:100] == bytes(range(100))
    copy = buffer.copy()
    assert copy.ptr % BIG == 0 and copy.ptr != buffer.ptr
    empty = DeviceBuffer(size=0, mr=stack, align=BIG)
    empty.resize(10)
    assert empty.ptr % BIG == 0
    assert alluvion.empty(10, resource=stack, align=BIG).ptr % BIG == 0
    del buffer, copy, empty
    gc.collect()
    stack.deallocate(other, 100)
    assert stack.stats().current_count == 0


def test_a_resource_that_cannot_align_says_so(sim):
    bare = alluvion.resource("cuda")
    with pytest.raises(errors.Error, match="alignment"):
        bare.allocate(100, align=BIG)
    with pytest.raises(errors.Error, match="alignment"):
        DeviceBuffer(size=100, mr=bare, align=BIG)


@pytest.mark.parametrize("name", ["pool(maximum=1MiB", "arena(1MiB", "fixed-size(1MiB, blocks=1, maximum=1MiB"])
def test_a_request_that_fails_leaves_a_picture(sim, tmp_path, name):
    file = tmp_path / "pool.json"
    stack = alluvion.resource(f"tracking | {name}, snapshot_on_out_of_memory=\"{file}\") | cuda")
    said = []
    for _ in range(6):
        with pytest.raises(MemoryError) as failed:
            stack.allocate(2 << 20)
        said.append("snapshot" in str(failed.value) or "pool" in failed.value.report)
    assert said == [True] * 4 + [False] * 2
    assert len(list(tmp_path.iterdir())) == 4
    assert json.loads(file.read_text())["segments"] is not None
    del stack, failed


def test_a_file_that_cannot_be_written_fails_no_other_way(sim):
    stack = alluvion.resource("pool(maximum=1MiB, snapshot_on_out_of_memory=\"/no/such/folder/pool.json\") | cuda")
    with pytest.raises(MemoryError, match="2 MiB"):
        stack.allocate(2 << 20)
    del stack
