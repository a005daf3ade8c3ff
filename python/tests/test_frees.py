"""A block that is freed wrongly: whoever frees is told, and nothing is freed."""

import subprocess
import sys
import threading

import pytest

import alluvion
from alluvion import rmm
from alluvion.errors import Misuse

CHECKED = [
    "pool | cuda",
    "stats | pool | cuda-async",
    "pool | mapped",
    "arena | cuda",
    "fixed-size | cuda",
    "binning(from=64KiB, to=256KiB) | pool | cuda",
    "prefetch | pool | managed",
    "tracking | pool(checked=false) | cuda",
    "guard | pool(checked=false) | cuda",
]


@pytest.mark.parametrize("recipe", [*CHECKED, "cuda", "managed", "cuda-async"])
def test_a_second_free_is_refused(sim, recipe):
    stack = alluvion.resource(recipe)
    address = stack.allocate(1000)
    stack.deallocate(address, 1000)
    with pytest.raises(ValueError, match="free already") as refused:
        stack.deallocate(address, 1000)
    assert isinstance(refused.value, Misuse) and hex(address) in str(refused.value)
    # The machine sees it, too.
    assert len(sim.take_hazards()) == 1
    first, second = stack.allocate(1000), stack.allocate(1000)
    assert first != second
    stack.deallocate(first, 1000)
    stack.deallocate(second, 1000)


@pytest.mark.parametrize("recipe", [recipe for recipe in CHECKED if not recipe.startswith("guard")])
def test_a_wrong_size_is_refused(sim, recipe):
    stack = alluvion.resource(recipe)
    address = stack.allocate(1000)
    with pytest.raises(Misuse, match="where 1000 B were allocated"):
        stack.deallocate(address, 900)
    assert len(sim.take_hazards()) == 1
    stack.deallocate(address, 1000)


def test_a_block_of_another_stack_is_refused(sim):
    stack, other = alluvion.resource("pool | cuda"), alluvion.resource("pool | cuda")
    address = stack.allocate(1000)
    with pytest.raises(Misuse, match="did not come from here"):
        other.deallocate(address, 1000)
    with pytest.raises(Misuse, match="from the middle of the block"):
        stack.deallocate(address + 256, 1000)
    assert len(sim.take_hazards()) == 2
    stack.deallocate(address, 1000)


@pytest.mark.parametrize(
    "over",
    [
        lambda cuda: rmm.mr.PoolMemoryResource(cuda, 1 << 20, 1 << 21),
        lambda cuda: rmm.mr.ArenaMemoryResource(cuda, 1 << 22),
        lambda cuda: rmm.mr.FixedSizeMemoryResource(cuda, 4096, 16),
        lambda cuda: rmm.mr.BinningMemoryResource(cuda, 12, 14),
        lambda cuda: rmm.mr.TrackingResourceAdaptor(rmm.mr.PoolMemoryResource(cuda, 1 << 20, 1 << 21)),
    ],
)
def test_the_classes_of_rmm_refuse_as_well(sim, over):
    resource = over(rmm.mr.CudaMemoryResource())
    address = resource.allocate(1000)
    resource.deallocate(address, 1000)
    with pytest.raises(Misuse):
        resource.deallocate(address, 1000)
    assert len(sim.take_hazards()) == 1


def test_a_request_may_go_without(sim):
    stack = alluvion.resource("pool(checked=false) | cuda")
    address = stack.allocate(1000)
    # Nobody knows the size there.
    stack.deallocate(address, 1020)
    assert stack.pool_status()["live_bytes"] == 0


def test_a_right_free_after_a_wrong_one_is_no_error(sim):
    stack = alluvion.resource("pool | cuda")
    held = [stack.allocate(1000) for _ in range(3)]
    with pytest.raises(Misuse):
        stack.deallocate(held[0], 10)
    assert len(sim.take_hazards()) == 1
    for address in held:
        stack.deallocate(address, 1000)


def test_a_guard_says_what_it_has_found(sim):
    from alluvion.rmm.pylibrmm.device_buffer import copy_host_to_ptr

    stack = alluvion.resource("guard | pool | cuda")
    assert stack.violations() == []
    with alluvion.tag("join"):
        address = stack.allocate(1000)
    copy_host_to_ptr(bytes(1020), address)
    with pytest.warns(RuntimeWarning, match="written behind its end, at 1000") as warned:
        stack.deallocate(address, 1000)
        (found,) = stack.violations()
    assert (found.kind, found.offset, found.wrong_bytes) == ("behind", 1000, 20)
    assert (found.address, found.bytes, found.tag) == (address, 1000, "join")
    assert "written behind its end, at 1000" in str(found)
    assert [str(each.message) for each in warned] == [f"a guard has found: {found}"]
    assert sim.take_hazards(), "the machine has seen the write, too"
    with pytest.raises(ValueError, match="no `guard` layer"):
        alluvion.resource("pool | cuda").violations()


def wrong_free(stack):
    """A free with another size, which a guard finds at once and does with the right one."""
    stack.deallocate(stack.allocate(1000), 999)


def test_a_warning_that_is_an_error_stops_no_free(sim, monkeypatch):
    import warnings

    raised = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raising: raised.append(raising.exc_value))
    stack = alluvion.resource("guard | stats | cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrong_free(stack)
    assert [type(each) for each in raised] == [RuntimeWarning]
    assert stack.violations()[0].kind == "wrong layout"


def test_who_hears_a_warning_may_use_the_stack(sim, monkeypatch):
    import warnings

    stack = alluvion.resource("guard | pool | cuda")

    def show(message, *_):
        heard.append((str(message), len(stack.violations())))
        stack.deallocate(stack.allocate(1000), 1000)
        raise LookupError("not this way")

    heard, unraisable = [], []
    monkeypatch.setattr("sys.unraisablehook", lambda raising: unraisable.append(raising.exc_value))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", show)
        threads = [threading.Thread(target=wrong_free, args=(stack,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(heard) == 8 and all("as one of 999 bytes" in text for text, _ in heard)
    assert [type(each) for each in unraisable] == [LookupError] * 8
    del show, stack


def test_each_finding_is_one_warning(sim):
    """Also where a stack is over another that has a guard, and where it is looked at again."""
    beneath = alluvion.resource("guard | cuda")
    above = alluvion.Stack(alluvion.resource("stats", over=beneath))
    with pytest.warns(RuntimeWarning) as warned:
        address = beneath.allocate(1000)
        beneath.deallocate(address, 999)
    assert len(warned) == 1 and len(above.violations()) == 1
    both = alluvion.resource("guard | guard | cuda")
    with pytest.warns(RuntimeWarning) as warned:
        wrong_free(both)
    assert len(warned) == 1
    del beneath, above, both


def test_what_is_found_when_the_interpreter_is_gone_is_a_line():
    program = """
import alluvion
sim = alluvion.simulated(check=False)
sim.__enter__()
stack = alluvion.resource("guard | cuda")
buffer = alluvion.empty(1000, resource=stack)
alluvion.rmm.pylibrmm.device_buffer.copy_host_to_ptr(b"12345", buffer.ptr + 998)
del buffer
del stack
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "a guard has found" in done.stderr and "written behind its end" in done.stderr
