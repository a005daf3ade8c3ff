"""A stack for every device, and the current resources of all devices at once."""

import threading

import pytest

import alluvion
from alluvion import errors

MIB = 1 << 20


@pytest.fixture
def three():
    with alluvion.simulated(devices=3, memory="1 GiB") as sim:
        yield sim


def test_each_device_has_its_stack(three):
    stacks = alluvion.per_device("stats | pool(initial=2MiB) | cuda-async")
    assert list(stacks) == [0, 1, 2] and len(stacks) == 3
    assert [stack.device for stack in stacks.values()] == [0, 1, 2]
    assert str(stacks[2]) == "Stats(0 B) | Pool(2 MiB) | CudaAsync(gpu 2)"
    some = alluvion.per_device("cuda", devices=[2, 0])
    assert list(some) == [2, 0] and some[2].device == 2
    with pytest.raises(KeyError):
        some[1]


def test_memory_of_each_device_is_for_its_peers(three):
    for source in ["cuda", "cuda-async", "mapped"]:
        stacks = alluvion.per_device(f"pool | {source}(peers=all)")
        assert len(stacks) == 3
    with pytest.raises(ValueError, match="all, reachable or numbers such as 0\\+1"):
        alluvion.per_device("cuda(peers=some)")
    with pytest.raises(errors.NoDevice):
        alluvion.per_device("cuda(peers=7)")


def test_an_exception_names_the_device(three):
    with pytest.raises(ValueError, match="another device") as raised:
        alluvion.per_device("pool | cuda(gpu=0)")
    assert raised.value.__notes__ == ["for the stack of gpu 1"]
    with pytest.raises(errors.NoDevice) as raised:
        alluvion.per_device("cuda", devices=[0, 9])
    assert raised.value.__notes__ == ["for the stack of gpu 9"]
    with pytest.raises(ValueError, match="device 1 is named twice"):
        alluvion.per_device("cuda", devices=[1, 1])
    with pytest.raises(TypeError, match="a recipe is a str"):
        alluvion.per_device(alluvion.resource("cuda"))


def current():
    return [alluvion.current_resource(device) for device in range(3)]


def test_all_are_current_for_a_while(three):
    before = current()
    stacks = alluvion.per_device("stats | pool | cuda-async")
    with alluvion.using(stacks) as entered:
        assert entered is stacks
        assert current() == list(stacks.values())
        # Some of them within: the others stay.
        inner = alluvion.per_device("cuda", devices=[1])
        with alluvion.using(inner):
            assert current() == [stacks[0], inner[1], stacks[2]]
        assert current() == list(stacks.values())
    assert current() == before
    with pytest.raises(RuntimeError, match="in between"), alluvion.using(stacks):
        raise RuntimeError("in between")
    assert current() == before
    with pytest.raises(TypeError, match="leave out 'device'"), alluvion.using(stacks, 1):
        pass


def test_what_fails_in_the_middle_changes_nothing(three):
    before = current()
    wrong = alluvion.PerDevice({0: alluvion.resource("cuda"), 1: alluvion.resource("cuda", 2)})
    with pytest.raises(errors.DeviceMismatch), alluvion.using(wrong):
        pass
    assert current() == before


def test_one_thread_may_have_its_own(three):
    before = current()
    stacks = alluvion.per_device("stats | cuda")
    seen = []
    using = alluvion.using(stacks, thread=True)
    with using:
        assert current() == list(stacks.values())
        other = threading.Thread(target=lambda: seen.extend(current()))
        other.start()
        other.join()
        with using:
            assert current() == list(stacks.values())
        assert current() == list(stacks.values())
    assert seen == before and current() == before
