"""Functions hear of segments, may refuse them, and a frozen stack says so."""

import gc
import os
import threading
import weakref

import pytest

import alluvion
from alluvion import errors, rmm

MIB = 1 << 20
SEGMENT = 8 * MIB
RECIPES = ["stats | pool(registered=8MiB) | mapped", "pool(registered=8MiB) | cuda"]


class Registry:
    """What is registered, by address; each segment comes once and goes once."""

    def __init__(self):
        self.known = {}
        self.refuses = None

    def added(self, address, size, device):
        if self.refuses:
            raise self.refuses
        assert address not in self.known and device == 0
        self.known[address] = size

    def dropped(self, address, size, device):
        if self.refuses:
            raise self.refuses
        assert self.known.pop(address) == size and device == 0


def buffer_of(stack, size):
    with alluvion.using(stack):
        return rmm.DeviceBuffer(size=size)


@pytest.mark.parametrize("recipe", RECIPES)
def test_each_segment_comes_once_and_goes_once(sim, recipe):
    stack, registry = alluvion.resource(recipe), Registry()
    first = buffer_of(stack, 1000)
    stack.on_segment(registry.added, registry.dropped)
    assert registry.known == dict(stack.segments()) and len(registry.known) == 1
    second = buffer_of(stack, SEGMENT)
    assert registry.known == dict(stack.segments()) and len(registry.known) == 2
    assert any(start <= second.ptr < start + size for start, size in registry.known.items())
    del first, second
    assert stack.trim() == 2 * SEGMENT and registry.known == {}
    # At the end of the stack, too.
    third = buffer_of(stack, 1000)
    assert len(registry.known) == 1
    del stack
    gc.collect()
    assert len(registry.known) == 1, "the block keeps it"
    del third
    gc.collect()
    assert registry.known == {}


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_is_raised_is_a_refusal(sim, recipe, monkeypatch):
    stack, registry = alluvion.resource(recipe), Registry()
    stack.on_segment(registry.added, registry.dropped)
    registry.refuses = LookupError("no more can be registered")
    with pytest.raises(errors.CallbackFailed) as caught:
        buffer_of(stack, 1000)
    assert caught.value.__cause__ is registry.refuses
    assert stack.segments() == [] and registry.known == {}
    registry.refuses = None
    del caught
    buffer_of(stack, 1000)
    assert len(registry.known) == 1
    registry.refuses, unraisable = LookupError("in use"), []
    monkeypatch.setattr("sys.unraisablehook", lambda of: unraisable.append(of.exc_value))
    assert stack.trim() == 0 and dict(stack.segments()) == registry.known
    assert unraisable == [registry.refuses]
    registry.refuses = None
    assert stack.trim() == SEGMENT and registry.known == {}
    # One that is there stays, and the call fails.
    buffer_of(stack, 1000)
    other = Registry()
    other.refuses = LookupError("too late")
    with pytest.raises(errors.CallbackFailed) as caught:
        stack.on_segment(other.added)
    assert caught.value.__cause__ is other.refuses and len(stack.segments()) == 1
    del caught


def test_a_segment_that_stays_is_the_cause_of_no_error(sim, monkeypatch):
    """Memory may be short because of it, and that is an error of memory, which frameworks wait for."""
    unraisable = []
    monkeypatch.setattr("sys.unraisablehook", lambda of: unraisable.append(str(of.exc_value)))
    stack, registry = alluvion.resource("pool(registered=8MiB, maximum=16MiB) | mapped"), Registry()
    stack.on_segment(registry.added, registry.dropped)
    two = [buffer_of(stack, SEGMENT) for _ in range(2)]
    del two
    registry.refuses = LookupError("in use")
    with pytest.raises(errors.OutOfMemory, match="not in one piece") as caught:
        buffer_of(stack, 2 * SEGMENT)
    assert caught.value.__cause__ is None and set(unraisable) == {"in use"}
    assert stack.trim() == 0
    # Nor of one that another call makes on the thread later.
    with pytest.raises(errors.Unsupported, match="registered"):
        alluvion.resource("pool | mapped").on_segment(print)
    registry.refuses = None
    assert stack.trim() == 2 * SEGMENT and registry.known == {}
    del caught


def test_a_segment_that_was_there_comes_before_it_goes(sim):
    stack, registry, trimmed = alluvion.resource(RECIPES[0]), Registry(), []
    two = [buffer_of(stack, SEGMENT) for _ in range(2)]
    del two
    reference = weakref.ref(stack)

    def added(address, size, device):
        assert address in dict(reference().segments())
        trim = threading.Thread(target=lambda: trimmed.append(reference().trim()))
        trim.start()
        trim.join()
        registry.added(address, size, device)

    stack.on_segment(added, registry.dropped)
    # While the second one came, the first one could go.
    assert trimmed == [0, SEGMENT] and registry.known == dict(stack.segments()) and len(registry.known) == 1
    assert stack.trim() == SEGMENT and registry.known == {}


def test_a_function_may_use_the_stack_but_for_segments(sim):
    stack, said = alluvion.resource("pool(registered=8MiB, initial=8MiB) | mapped"), []
    reference = weakref.ref(stack)

    def added(address, size, device):
        buffer_of(reference(), 1000)
        assert reference().trim() == 0
        try:
            buffer_of(reference(), SEGMENT)
        except errors.Error as error:
            said.append(str(error))

    there = buffer_of(stack, MIB)
    stack.on_segment(added)
    more = buffer_of(stack, SEGMENT)
    assert len(said) == 2 and all("within a hook of segments" in text for text in said), said
    del there, more


def test_threads_hear_of_each_segment_once(sim):
    stack, registry = alluvion.resource(RECIPES[0]), Registry()
    stack.on_segment(registry.added, registry.dropped)

    def work():
        for round in range(20):
            buffer_of(stack, (1 + round % 3) * MIB)
            stack.trim()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registry.known == dict(stack.segments())
    stack.trim()
    assert registry.known == {}


def test_sleep_lets_go_and_waking_tells_again(sim):
    stack, registry = alluvion.resource("tracking | pool(registered=8MiB) | mapped"), Registry()
    stack.on_segment(registry.added, registry.dropped)
    with alluvion.using(stack):
        weights = rmm.DeviceBuffer.to_device(b"abc")
    known = dict(registry.known)
    with stack.sleep():
        assert registry.known == {}
    assert registry.known == known and weights.tobytes() == b"abc"


def test_functions_go_with_their_pool(sim):
    stack, registry = alluvion.resource(RECIPES[0]), Registry()
    gone = weakref.ref(registry)
    stack.on_segment(registry.added, registry.dropped)
    del registry
    gc.collect()
    assert gone() is not None
    stack.on_segment()
    gc.collect()
    assert gone() is None


def test_a_frozen_stack_says_so(sim):
    stack = alluvion.resource("stats | pool(initial=8MiB) | mapped")
    stack.freeze()
    there = buffer_of(stack, MIB)
    with pytest.raises(errors.OutOfMemory, match="it is frozen, and takes no more memory"):
        buffer_of(stack, SEGMENT)
    del there
    assert stack.trim() == 0 and stack.segments()[0][1] == SEGMENT


def test_what_cannot_hear_is_refused(sim):
    with pytest.raises(errors.Unsupported, match="registered"):
        alluvion.resource("pool | mapped").on_segment(print)
    with pytest.raises(TypeError, match="int cannot be"):
        alluvion.resource("pool | cuda").on_segment(7)
    for call in [lambda stack: stack.on_segment(print), lambda stack: stack.segments(), lambda stack: stack.freeze()]:
        with pytest.raises(ValueError, match="pool"):
            call(alluvion.resource("cuda"))


def test_a_segment_goes_to_others_by_descriptors(sim):
    stack = alluvion.resource("stats | pool(registered=8MiB, initial=8MiB) | mapped(handles=fd)")
    ((address, size),) = stack.segments()
    descriptors = {stack.export_segment(address), stack.export_segment(address), stack.dma_buf(address, size)}
    assert len(descriptors) == 3 and all(os.fstat(each) for each in descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    with pytest.raises(alluvion.errors.InvalidArgument, match="none of the suballocator begins there"):
        stack.export_segment(address + 256)
    for wrong in (stack.export_segment, lambda at: stack.dma_buf(at, size)):
        with pytest.raises(alluvion.errors.InvalidArgument, match="no memory lies at 0"):
            wrong(0)
        with pytest.raises(OverflowError):
            wrong(-1)
    with pytest.raises(alluvion.errors.Error):
        stack.dma_buf(address, 100)
    sim.fail("cuMemGetHandleForAddressRange", code=999)
    with pytest.raises(RuntimeError):
        stack.dma_buf(address, size)
    os.close(stack.dma_buf(address, size))
    plain = alluvion.resource("pool(initial=8MiB) | cuda")
    with pytest.raises(alluvion.errors.Unsupported, match="no one descriptor|handle_types"):
        plain.export_segment(plain.segments()[0][0])
    with pytest.raises(alluvion.errors.Unsupported, match="no suballocator"):
        alluvion.resource("cuda").export_segment(address)
    del stack, plain


def test_ranges_that_are_none_are_lent_to_nobody(sim):
    stack = alluvion.resource("pool(registered=8MiB, initial=8MiB) | mapped(handles=fd)")
    ((address, size),) = stack.segments()
    opened = len(os.listdir("/proc/self/fd"))
    for at, length in [
        (address, 0),
        (address, 2**64 - 1),
        (address, size + 4096),
        (address + size - 4096, 8192),
        (address + size, 4096),
        (address - 4096, 4096),
        (address + 1, 4096),
        (2**64 - 4096, 4096),
        (2**64 - 1, 2**64 - 1),
        (1, 4096),
    ]:
        with pytest.raises(errors.Error):
            stack.dma_buf(at, length)
        if at != address:
            with pytest.raises(errors.Error):
                stack.export_segment(at)
    for wrong in (2**64, -1):
        for call in (stack.export_segment, lambda at: stack.dma_buf(at, 4096), lambda length: stack.dma_buf(address, length)):
            with pytest.raises(OverflowError):
                call(wrong)
    for wrong in (None, "1", 1.5, b"1", []):
        for call in (stack.export_segment, lambda at: stack.dma_buf(at, 4096), lambda length: stack.dma_buf(address, length)):
            with pytest.raises(TypeError):
                call(wrong)
    assert len(os.listdir("/proc/self/fd")) == opened, "no descriptor is left of a call that failed"
    os.close(stack.export_segment(address))
    os.close(stack.dma_buf(address, size))


def test_segments_that_sleep_or_have_gone_are_lent_to_nobody(sim):
    stack = alluvion.resource("stats | pool(registered=8MiB) | mapped(handles=fd)")
    weights = buffer_of(stack, MIB)
    ((address, size),) = stack.segments()
    descriptor = stack.export_segment(address)
    with stack.sleep(keep="nothing"):
        for call in (stack.export_segment, lambda at: stack.dma_buf(at, size)):
            with pytest.raises(errors.Error):
                call(address)
    # Other memory lies there now: the descriptor from before is that of the memory that has gone.
    again = stack.export_segment(address)
    assert os.fstat(again) and os.fstat(descriptor)
    os.close(again)
    os.close(descriptor)
    del weights
    assert stack.trim() == size
    for call in (stack.export_segment, lambda at: stack.dma_buf(at, size)):
        with pytest.raises(errors.Error):
            call(address)


def test_without_descriptors_left_it_is_an_error(sim):
    resource = pytest.importorskip("resource")
    stack = alluvion.resource("pool(registered=8MiB, initial=8MiB) | mapped(handles=fd)")
    ((address, size),) = stack.segments()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    kept = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 3, before[1]))
        with pytest.raises((errors.Error, OSError)):
            for _ in range(20):
                kept.append(stack.export_segment(address))
        with pytest.raises((errors.Error, OSError)):
            for _ in range(20):
                kept.append(stack.dma_buf(address, size))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for each in kept:
            os.close(each)
    os.close(stack.export_segment(address))
