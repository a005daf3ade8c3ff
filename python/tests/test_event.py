"""Points of streams, and who waits for them."""

import copy
import gc

import pytest

import alluvion
from alluvion import Stream, errors
from alluvion.rmm.pylibrmm.stream import DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM

MIB = 1 << 20


def filled(stream):
    buffer = alluvion.empty(MIB, stream=stream)
    buffer.copy_from_device(alluvion.empty(MIB, stream=stream), stream=stream)
    return buffer


def test_another_stream_waits_for_an_event(sim):
    first, second = Stream(), Stream()
    buffer = filled(first)
    event = first.record()
    assert event.device == 0 and repr(event) == "Event(gpu 0)"
    second.wait_event(event)
    event.synchronize()
    assert event.is_complete()
    with pytest.raises(TypeError):
        second.wait_event(first)
    with pytest.raises(TypeError):
        copy.copy(event)
    del buffer


@pytest.mark.parametrize("waits", ["event", "stream", "none"])
def test_who_waits_has_no_race(waits):
    with alluvion.simulated(check=False) as sim:
        first, second = Stream(flags=1), Stream(flags=1)
        address = alluvion.empty(MIB, stream=first)
        alluvion._alluvion.copy_device_to_ptr(address.ptr, address.ptr + MIB // 2, 1000, stream=first)
        if waits == "event":
            second.wait_event(first.record())
        elif waits == "stream":
            second.wait_for_stream(first)
        alluvion._alluvion.copy_device_to_ptr(address.ptr + MIB // 2, address.ptr, 1000, stream=second)
        assert bool(sim.take_hazards()) == (waits == "none")
        first.synchronize(), second.synchronize()
        del address


def test_default_streams_are_streams_too(sim):
    stream = Stream()
    for other in (DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM):
        stream.wait_for_stream(other)
        other.wait_for_stream(stream)
        other.wait_event(stream.record())
        other.record().synchronize()
    with pytest.raises(TypeError):
        stream.wait_for_stream(None)


def test_a_call_that_fails_is_an_error(sim):
    stream = Stream()
    stream.record()
    sim.fail("cuEventRecord", nth=1)
    with pytest.raises(errors.Error):
        filled(stream), stream.record()
    sim.clear_faults()
    event = stream.record()
    sim.lose()
    with pytest.raises(errors.Error):
        event.synchronize()
    with pytest.raises(errors.Error):
        stream.record()


def test_an_event_outlives_its_stream_and_its_machine():
    with alluvion.simulated():
        stream = Stream()
        event = stream.record()
        del stream
        gc.collect()
        event.synchronize()
    assert event.is_complete()
    with alluvion.simulated():
        with pytest.raises(errors.Error):
            Stream().wait_event(event)
    del event
