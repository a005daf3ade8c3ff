"""What stacks do on a real GPU that no framework asks of them: files, descriptors, and sleep on a disk."""

import os
import time

import pytest

import alluvion
from alluvion import errors

MIB = 1 << 20
PATTERN = bytes(range(256)) * 4096


def of_tag(stack, tag, count):
    with alluvion.tag(tag):
        buffers = [alluvion.empty(len(PATTERN), resource=stack) for _ in range(count)]
    for buffer in buffers:
        buffer.copy_from_host(PATTERN)
    return buffers


def test_contents_sleep_on_a_disk(gpu, tmp_path):
    stack = alluvion.resource("stats | tracking | pool | mapped")
    weights = of_tag(stack, "weights", 64)
    places = [buffer.ptr for buffer in weights]
    for _ in range(3):
        with stack.sleep("weights", keep="disk", folder=tmp_path) as asleep:
            assert asleep.is_asleep and asleep.kept_bytes == 64 * len(PATTERN)
            assert stack.pool_status()["reserved_bytes"] <= 2 * MIB
        assert [buffer.ptr for buffer in weights] == places
        assert all(buffer.tobytes() == PATTERN for buffer in weights)
        assert not list(tmp_path.iterdir())
    one = weights[0]
    one.sleep(keep="disk", folder=tmp_path)
    one.wake()
    assert one.tobytes() == PATTERN


def test_blocks_are_saved_and_restored(gpu, tmp_path):
    stack = alluvion.resource("stats | pool | mapped")
    kept = of_tag(stack, "weights", 8)
    file = tmp_path / "saved"
    alluvion.save(file, {f"layer {at}": buffer for at, buffer in enumerate(kept)})
    del kept
    restored = alluvion.restore(file, resource=stack)
    assert list(restored) == [f"layer {at}" for at in range(8)]
    assert all(buffer.tobytes() == PATTERN for buffer in restored.values())


def test_a_segment_goes_to_others_by_descriptors(gpu):
    stack = alluvion.resource("stats | pool(registered=64MiB, initial=64MiB) | mapped(handles=fd)")
    ((address, size),) = stack.segments()
    made = [stack.export_segment(address), stack.export_segment(address)]
    assert made[0] != made[1] and all(os.fstat(each) for each in made)
    try:
        made.append(stack.dma_buf(address, size))
    except errors.Unsupported:
        # Not every machine has the driver's module for it.
        pass
    for descriptor in made:
        os.close(descriptor)


@pytest.mark.parametrize("recipe", ["stats | pool | cuda-async", "stats | pool | mapped"])
def test_many_blocks_at_once(gpu, recipe):
    stack = alluvion.resource(recipe)
    buffers = stack.allocate_many([1000, MIB, 70 * MIB, 256])
    assert [buffer.size for buffer in buffers] == [1000, MIB, 70 * MIB, 256]
    for buffer in buffers:
        buffer.copy_from_host(PATTERN[: min(buffer.size, len(PATTERN))] + bytes(max(0, buffer.size - len(PATTERN))))
    assert all(buffer.tobytes()[:256] == PATTERN[:256] for buffer in buffers)
    del buffer, buffers
    assert stack.stats().current_count == 0


def test_a_stream_waits_for_an_event_of_another(gpu):
    first, second = alluvion.Stream(flags=1), alluvion.Stream(flags=1)
    buffer = alluvion.empty(len(PATTERN), resource=alluvion.resource("pool | cuda-async"), stream=first)
    buffer.copy_from_host(PATTERN, stream=first)
    event = first.record()
    second.wait_event(event)
    assert buffer.tobytes(second) == PATTERN
    event.synchronize()
    assert event.is_complete()


def test_many_pools_leave_addresses_to_others(gpu):
    """Each pool over pages reserves addresses. All of a process's were gone with 231 of them, on a GPU of 141 GiB."""
    begun = time.monotonic()
    pools = []
    for _ in range(300):
        stack = alluvion.resource("pool | mapped")
        pools.append((stack, alluvion.empty(MIB, resource=stack)))
    assert alluvion.empty(MIB, resource=alluvion.resource("cuda-async")).size == MIB
    print(f"300 pools over pages in {time.monotonic() - begun:.1f} s")
