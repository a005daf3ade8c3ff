"""Small programs under every schedule."""

import gc
import weakref

import pytest

import alluvion
from alluvion import Stream, testing
from alluvion._alluvion import copy_device_to_ptr

KIB = 1024


def copies(streams, ordered):
    """A copy on each stream, all of them into the same bytes."""
    held = alluvion.empty(4 * KIB, resource="cuda", stream=streams[0])
    for at, stream in enumerate(streams):
        if ordered and at:
            stream.wait_for_stream(streams[at - 1])
        copy_device_to_ptr(held.ptr + KIB * (at + 1), held.ptr, 100, stream=stream)
    for stream in streams:
        stream.synchronize()
    del held


def program(count, ordered):
    return lambda sim: copies([Stream(flags=1) for _ in range(count)], ordered)


def test_what_is_ordered_is_right_under_every_schedule():
    explored = testing.explore(program(3, True))
    assert explored.complete and explored.schedules >= 1
    assert explored == (explored.schedules, True)


def test_a_race_is_found_and_can_be_played_again():
    with pytest.raises(testing.ScheduleFailed, match="schedule .*: HazardError") as raised:
        testing.explore(program(2, False))
    schedule = raised.value.schedule
    assert raised.value.seed is None and isinstance(raised.value.__cause__, alluvion.HazardError)
    with pytest.raises(testing.ScheduleFailed) as again:
        testing.replay(program(2, False), schedule)
    assert again.value.schedule == schedule
    assert str(again.value.__cause__) == str(raised.value.__cause__)


def test_each_order_is_seen_once():
    seen = []

    def orders(sim):
        streams = [Stream(flags=1) for _ in range(2)]
        events = []
        held = [alluvion.empty(100, resource="cuda", stream=stream) for stream in streams]
        for stream, buffer in zip(streams, held):
            copy_device_to_ptr(buffer.ptr, buffer.ptr + 50, 10, stream=stream)
            events.append(stream.record())
        seen.append(tuple(event.is_complete() for event in events))
        for stream in streams:
            stream.synchronize()
        del held

    explored = testing.explore(orders)
    assert explored.complete and explored.schedules == len(seen)
    assert {(False, False), (True, False), (False, True), (True, True)} <= set(seen)


def test_a_limit_ends_the_search():
    assert testing.explore(program(3, True), limit=0) == (0, False)
    assert testing.explore(lambda sim: None, limit=5) == (1, True)


def test_an_exception_names_its_schedule_and_leaves_the_collector_on():
    def fails(sim):
        assert not gc.isenabled()
        raise KeyError("no such thing")

    with pytest.raises(testing.ScheduleFailed, match="schedule -: KeyError") as raised:
        testing.explore(fails)
    assert raised.value.schedule == "-" and gc.isenabled()
    gc.disable()
    try:
        with pytest.raises(testing.ScheduleFailed):
            testing.replay(fails, "-")
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_program_that_changes_its_mind_is_noticed():
    turns = []

    def changes(sim):
        turns.append(None)
        streams = [Stream(flags=1) for _ in range(1 + len(turns))]
        held = [alluvion.empty(100, resource="cuda", stream=stream) for stream in streams]
        for stream, buffer in zip(streams, held):
            copy_device_to_ptr(buffer.ptr, buffer.ptr + 50, 10, stream=stream)
        for stream in streams:
            stream.synchronize()
        del held

    with pytest.raises(RuntimeError, match="not deterministic: under schedule"):
        testing.explore(changes)


def test_a_program_that_has_fewer_choices_than_before_is_noticed():
    turns = []

    def less(sim):
        turns.append(None)
        if len(turns) == 1:
            copies([Stream(flags=1) for _ in range(2)], False)
            sim.take_hazards()

    with pytest.raises(RuntimeError, match="not deterministic: under schedule -"):
        testing.explore(less)


def test_a_schedule_and_a_machine_that_cannot_be():
    with pytest.raises(ValueError, match="a schedule is numbers"):
        testing.replay(print, "one.two")
    with pytest.raises(ValueError, match="1 to 64 devices"):
        testing.explore(print, devices=0)
    with pytest.raises(TypeError):
        testing.explore(print, seed=3)
    assert testing.explore(lambda sim: None, devices=2, memory="64 MiB", features={"memory_pools": False}).complete


def test_machines_of_an_exploration_are_made_one_after_the_other():
    from alluvion import _alluvion

    exploration = _alluvion.Exploration()
    assert exploration.end() is None and not exploration.is_complete
    with alluvion.Simulated._of(exploration) as sim:
        assert sim.devices == 1
    assert exploration.end() == ("-", True)
    assert exploration.is_complete and exploration.schedules_begun == 1
    with pytest.raises(RuntimeError, match="no other schedule"):
        alluvion.Simulated._of(exploration)


def test_what_a_schedule_leaves_in_cycles_is_gone_by_the_next():
    class Link:
        pass

    left = []

    def leaves(sim):
        assert all(ref() is None for ref in left), "the one before is alive"
        link = Link()
        link.itself, link.sim = link, sim
        left.append(weakref.ref(link))
        streams = [Stream(flags=1) for _ in range(2)]
        held = [alluvion.empty(100, resource="cuda", stream=stream) for stream in streams]
        for stream, buffer in zip(streams, held):
            copy_device_to_ptr(buffer.ptr, buffer.ptr + 50, 10, stream=stream)
            stream.record().is_complete()

    assert testing.explore(leaves).schedules == len(left) >= 4


def test_a_schedule_looks_at_young_objects_alone():
    whole = []

    def note(phase, info):
        if phase == "start" and info["generation"] == 2:
            whole.append(info)

    def asks(sim):
        stream = Stream(flags=1)
        held = alluvion.empty(100, resource="cuda", stream=stream)
        for _ in range(3):
            copy_device_to_ptr(held.ptr, held.ptr + 50, 10, stream=stream)
            stream.record().is_complete()

    gc.callbacks.append(note)
    try:
        explored = testing.explore(asks)
    finally:
        gc.callbacks.remove(note)
    assert explored.schedules >= 4
    # The one before the first.
    assert len(whole) == 1
