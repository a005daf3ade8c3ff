"""What of a limit is set aside, and who hears that it is nearly used up."""

import gc
import threading
import weakref

import pytest

import alluvion

MIB = 1 << 20


def test_what_is_reserved_nobody_else_gets(sim):
    stack = alluvion.resource("stats | limiting(8MiB) | cuda")
    with stack.reserve("6 MiB") as reservation:
        assert (reservation.bytes, stack.limit().used_bytes) == (6 * MIB, 6 * MIB)
        assert repr(reservation) == f"Reservation({6 * MIB} bytes)"
        with pytest.raises(MemoryError):
            stack.allocate(4 * MIB)
        with pytest.raises(MemoryError):
            stack.reserve(4 * MIB)
    assert (reservation.bytes, stack.limit().used_bytes) == (0, 0)
    reservation.release()
    kept = stack.reserve(1000)
    assert kept.bytes == 1024
    del kept
    gc.collect()
    assert stack.limit().used_bytes == 0
    with pytest.raises(ValueError, match="no `limiting` layer"):
        alluvion.resource("cuda").reserve(1)
    with pytest.raises(ZeroDivisionError):
        with stack.reserve(MIB):
            1 / 0
    assert stack.limit().used_bytes == 0
    with pytest.raises(MemoryError):
        stack.reserve((1 << 64) - 1)


def test_a_reservation_outlives_its_stack(sim):
    stack = alluvion.resource("limiting(8MiB) | cuda")
    reservation = stack.reserve(MIB)
    del stack
    gc.collect()
    assert reservation.bytes == MIB
    reservation.release()


def test_threads_release_one_reservation_once(sim):
    stack = alluvion.resource("limiting(8MiB) | cuda")
    for _ in range(20):
        reservation = stack.reserve(MIB)
        threads = [threading.Thread(target=reservation.release) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert stack.limit().used_bytes == 0


def test_an_observer_hears_of_each_crossing(sim):
    stack = alluvion.resource("budget(8MiB, name=jobs, soft=4MiB) | cuda")
    heard = []
    stack.on_soft_limit(heard.append)
    for _ in range(2):
        buffers = stack.allocate_many([2 * MIB] * 4)
        del buffers
    assert heard == [("jobs", 6 * MIB, 4 * MIB, 8 * MIB)] * 2
    assert stack.limit().crossings == 2
    stack.on_soft_limit(heard.append, soft="1 MiB")
    held = alluvion.empty("2 MiB", resource=stack)
    assert heard[2:] == [("jobs", 2 * MIB, MIB, 8 * MIB)] * 2
    del held
    with pytest.raises(ValueError, match="no `limiting` layer"):
        alluvion.resource("cuda").on_soft_limit(print)
    with pytest.raises(TypeError):
        stack.on_soft_limit(None)


def test_an_observer_may_use_the_stack_and_raise(sim, monkeypatch):
    unraisable = []
    monkeypatch.setattr("sys.unraisablehook", lambda raising: unraisable.append(raising.exc_value))
    stack = alluvion.resource("stats | limiting(8MiB) | pool | cuda")
    calls = []

    def observe(crossing):
        calls.append(crossing)
        stack.deallocate(stack.allocate(MIB), MIB)
        gc.collect()
        raise LookupError("nothing to give up")

    stack.on_soft_limit(observe, soft=0)
    buffer = alluvion.empty(100, resource=stack)
    assert len(calls) == 1 and [type(each) for each in unraisable] == [LookupError]
    del buffer, observe, stack


def test_an_observer_goes_with_its_stack(sim):
    class Observer:
        def __call__(self, crossing):
            raise AssertionError("it is gone")

    beneath = alluvion.resource("limiting(8MiB) | cuda")
    above = alluvion.Stack(beneath)
    observer = Observer()
    observer.stack = above
    above.on_soft_limit(observer, soft=0)
    gone = weakref.ref(observer)
    del above, observer
    gc.collect()
    assert gone() is None
    beneath.deallocate(beneath.allocate(100), 100)


def test_many_threads_cross_at_once(sim):
    stack = alluvion.resource("limiting(64MiB) | pool | cuda")
    heard = []
    stack.on_soft_limit(heard.append, soft=0)

    def work():
        for _ in range(20):
            stack.deallocate(stack.allocate(3 * MIB), 3 * MIB)
            stack.trim()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard and len(heard) == stack.limit().crossings
