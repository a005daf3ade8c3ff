"""Stacks sleep, by a tag or as a whole, and wake with their addresses and contents."""

import gc
import threading
import weakref

import pytest

import alluvion
from alluvion import rmm

MIB = 1 << 20


def buffer_of(stack, tag, byte, size=3 * MIB):
    with alluvion.using(stack), alluvion.tag(tag):
        return rmm.DeviceBuffer.to_device(bytes([byte]) * size)


@pytest.mark.parametrize("recipe", ["stats | tracking | pool | mapped", "stats | pool | mapped"])
def test_a_tag_sleeps_and_wakes_with_its_contents(sim, recipe):
    stack = alluvion.resource(recipe)
    weights, cache = buffer_of(stack, "weights", 1), buffer_of(stack, "cache", 2)
    address, free = weights.ptr, alluvion.memory_info()[0]
    sleeper = stack.sleep("weights")
    assert (sleeper.is_asleep, sleeper.blocks, sleeper.bytes, sleeper.kept_bytes) == (True, 1, 3 * MIB, 3 * MIB)
    assert alluvion.memory_info()[0] > free
    assert cache.tobytes() == b"\2" * (3 * MIB)
    more = buffer_of(stack, "more", 3)
    sleeper.wake()
    sleeper.wake()
    assert not sleeper.is_asleep
    assert weights.ptr == address and weights.tobytes() == b"\1" * (3 * MIB)
    assert more.tobytes() == b"\3" * (3 * MIB)


def test_a_tag_within_another_sleeps_by_both_names(sim):
    stack = alluvion.resource("tracking | pool | mapped")
    with alluvion.using(stack), alluvion.tag("model"), alluvion.tag("head"):
        head = rmm.DeviceBuffer(size=MIB)
    assert [stack.sleep(tag).blocks for tag in ("head", "other")] == [0, 0]
    with stack.sleep("model;head") as sleeper:
        assert sleeper.blocks == 1
    with stack.sleep("model") as sleeper:
        assert sleeper.blocks == 1
    assert not sleeper.is_asleep
    del head


def test_all_of_a_stack_sleeps_and_refuses_requests(sim):
    stack = alluvion.resource("stats | limiting(64MiB) | pool | mapped")
    held = [buffer_of(stack, "any", byte) for byte in range(3)]
    with stack.sleep() as sleeper:
        assert sleeper.blocks == 3 and stack.pool_status()["reserved_bytes"] == 0
        assert repr(sleeper) == f"Sleeper({9 * MIB} bytes in 3 blocks, asleep)"
        with pytest.raises(alluvion.errors.Asleep):
            stack.allocate(100)
        with pytest.raises(alluvion.errors.Asleep):
            stack.sleep()
    assert [buffer.tobytes()[0] for buffer in held] == [0, 1, 2]
    stack.deallocate(stack.allocate(100), 100)


def test_nothing_is_kept_where_nothing_is_asked_for(sim):
    stack = alluvion.resource("pool | mapped")
    scratch = buffer_of(stack, "scratch", 7)
    with stack.sleep(keep="nothing") as sleeper:
        assert (sleeper.bytes, sleeper.kept_bytes) == (3 * MIB, 0)
    scratch.copy_from_host(bytes(3 * MIB))
    assert scratch.tobytes() == bytes(3 * MIB)


def test_a_block_may_be_freed_while_it_sleeps(sim):
    stack = alluvion.resource("stats | pool | mapped")
    held = buffer_of(stack, "any", 1)
    sleeper = stack.sleep()
    del held
    assert stack.stats().current_bytes == 0
    sleeper.wake()
    assert stack.pool_status()["live_bytes"] == 0


def test_a_sleeper_that_is_dropped_lets_the_stack_go_on(sim):
    stack = alluvion.resource("stats | pool | mapped")
    held = buffer_of(stack, "any", 1)
    gone = weakref.ref(stack.sleep())
    gc.collect()
    assert gone() is None
    after = buffer_of(stack, "any", 2)
    assert after.tobytes()[0] == 2
    del held


def test_a_sleeper_keeps_the_stack(sim):
    stack = alluvion.resource("pool | mapped")
    held = buffer_of(stack, "any", 5)
    sleeper = stack.sleep()
    del stack
    gc.collect()
    sleeper.wake()
    assert held.tobytes()[0] == 5


def test_a_wake_without_memory_is_tried_again(sim):
    stack = alluvion.resource("pool | mapped")
    held = buffer_of(stack, "any", 6)
    sleeper = stack.sleep()
    sim.fail("cuMemCreate", nth=1, code="out of memory")
    with pytest.raises(MemoryError):
        sleeper.wake()
    assert sleeper.is_asleep
    sleeper.wake()
    assert held.tobytes() == b"\6" * (3 * MIB)


def test_bad_input_is_an_error_and_nothing_sleeps(sim):
    stack = alluvion.resource("pool | mapped")
    for wrong in ("disk", "", None, 3):
        with pytest.raises(ValueError, match="keep is"):
            stack.sleep(keep=wrong)
    with pytest.raises(TypeError, match="a tag is a str"):
        stack.sleep(3)
    with pytest.raises(alluvion.errors.Unsupported, match="pool | mapped"):
        alluvion.resource("stats | pool | cuda").sleep()
    with pytest.raises(alluvion.errors.Unsupported):
        alluvion.resource("pool(checked=false) | mapped").sleep("weights")
    stack.deallocate(stack.allocate(100), 100)


def test_threads_that_wake_the_same_blocks_wake_them_once(sim):
    stack = alluvion.resource("pool | mapped")
    held = [buffer_of(stack, "any", byte) for byte in range(8)]
    for _ in range(20):
        sleeper, met = stack.sleep(), []

        def wake(sleeper=sleeper, met=met):
            try:
                sleeper.wake()
            except alluvion.errors.InUse as error:
                met.append(error)

        threads = [threading.Thread(target=wake) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not sleeper.is_asleep and len(met) <= 3
    assert [buffer.tobytes()[-1] for buffer in held] == list(range(8))


def test_contents_are_kept_on_a_disk(sim, tmp_path):
    stack = alluvion.resource("stats | tracking | pool | mapped")
    with alluvion.using(stack), alluvion.tag("weights"):
        weights = alluvion.DeviceBuffer.to_device(b"abc" * 7_000_000)
    for folder in (tmp_path, str(tmp_path)):
        sleeper = stack.sleep("weights", keep="disk", folder=folder)
        (file,) = tmp_path.iterdir()
        assert file.stat().st_size > sleeper.kept_bytes >= 21_000_000 and file.stat().st_mode & 0o077 == 0
        contents = file.read_bytes()
        with open(file, "r+b") as damaged:
            damaged.seek(5_000_000)
            damaged.write(b"?")
        with pytest.raises(alluvion.errors.Malformed, match="are damaged"):
            sleeper.wake()
        assert sleeper.is_asleep
        with open(file, "r+b") as mended:
            mended.write(contents)
        sleeper.wake()
        assert weights.tobytes() == b"abc" * 7_000_000 and list(tmp_path.iterdir()) == []
    with pytest.raises(alluvion.errors.Unwritable, match="missing"):
        stack.sleep(keep="disk", folder=tmp_path / "missing")
    assert weights.tobytes()[:3] == b"abc"
    for wrong in ({"keep": "disk"}, {"folder": tmp_path}, {"keep": "nothing", "folder": tmp_path}):
        with pytest.raises(ValueError, match="folder"):
            stack.sleep(**wrong)
    del weights, sleeper, stack
