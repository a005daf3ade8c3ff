"""The simulated machine: faults, hazards, leaks, seeds, and pytest."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

import alluvion
from alluvion import errors, testing

pytest_plugins = ["pytester"]


def test_the_nth_call_fails(sim):
    stack = alluvion.resource("cuda")
    sim.fail("cuMemAlloc", nth=2, code="out of memory")
    assert sim.faults_left == 1
    first = stack.allocate(100)
    with pytest.raises(MemoryError):
        stack.allocate(100)
    assert sim.faults_left == 0
    stack.deallocate(first, 100)
    stack.deallocate(stack.allocate(100), 100)


def test_every_call_fails_until_it_is_taken_back(sim):
    stack = alluvion.resource("cuda")
    sim.fail("cuMemAlloc", nth=None)
    for _ in range(3):
        with pytest.raises(MemoryError):
            stack.allocate(100)
    sim.clear_faults()
    stack.deallocate(stack.allocate(100), 100)


def test_a_refusal_has_the_code_of_the_driver(sim):
    stack = alluvion.resource("cuda")
    sim.fail("cuMemAlloc", code=801)
    with pytest.raises(MemoryError) as raised:
        stack.allocate(100)
    assert raised.value.code == 801


def test_faults_that_cannot_be_are_refused(sim):
    with pytest.raises(ValueError, match="no call 'cuFly'.*cuMemAlloc"):
        sim.fail("cuFly")
    with pytest.raises(ValueError, match="counted from 1"):
        sim.fail("cuMemAlloc", nth=0)
    with pytest.raises(ValueError, match="code 0 is success"):
        sim.fail("cuMemAlloc", code=0)
    with pytest.raises(ValueError, match="name a call"):
        sim.fail(nth=None)
    with pytest.raises(ValueError, match="no code is called 'bad luck'"):
        sim.fail("cuMemAlloc", code="bad luck")
    with pytest.raises(ValueError, match="does not lose a context"):
        sim.lose(0, code=2)
    with pytest.raises(errors.NoDevice):
        sim.lose(7)
    assert sim.faults_left == 0


def test_a_lost_device_fails_and_the_other_does_not(sim):
    stack, other = alluvion.resource("cuda"), alluvion.resource("cuda", device=1)
    sim.lose(0)
    with pytest.raises(MemoryError):
        stack.allocate(100)
    other.deallocate(other.allocate(100), 100)


def test_an_older_driver_has_fewer_features():
    with alluvion.simulated(version=12020):
        with pytest.raises(errors.Unsupported):
            alluvion.resource("cuda-async-managed")
    with alluvion.simulated(version=13000):
        assert str(alluvion.resource("cuda-async-managed")) == "CudaAsyncManaged(gpu 0)"
    with alluvion.simulated(features={"memory_pools": False}):
        assert str(alluvion.resource("")) == "Cuda(gpu 0)"
    with pytest.raises(ValueError, match="no feature is called 'wings'.*memory_pools"):
        alluvion.simulated(features={"wings": True})


def test_the_memory_is_as_large_as_asked():
    with alluvion.simulated(memory="1 GiB"):
        assert alluvion.memory_info() == (1 << 30, 1 << 30)
        with pytest.raises(MemoryError):
            alluvion.resource("cuda").allocate((1 << 30) + 1)
    with pytest.raises(ValueError, match="Could not parse"):
        alluvion.simulated(memory="zz")


def test_calls_are_counted(sim):
    stack = alluvion.resource("cuda")
    before = sim.driver_calls
    stack.deallocate(stack.allocate(100), 100)
    assert sim.calls()["cuMemAlloc"] == 1
    assert sim.driver_calls > before


def test_leaks_are_objects(sim):
    stack = alluvion.resource("cuda")
    address = stack.allocate(1000)
    (leak,) = sim.leaks()
    assert leak.kind == "leak" and hex(address) in str(leak)
    with pytest.raises(AssertionError, match="still out"):
        testing.assert_no_leaks(sim)
    stack.deallocate(address, 1000)
    testing.assert_no_leaks(sim)


def test_a_hazard_ends_the_block():
    with pytest.raises(alluvion.HazardError, match="no stream orders") as raised:
        with alluvion.simulated():
            free_twice()
    (hazard,) = raised.value.hazards
    assert hazard.kind in ("double free", "invalid free") and str(hazard).startswith(hazard.kind)
    with alluvion.simulated(check=False) as sim:
        free_twice()
    assert len(sim.hazards()) == 1
    with alluvion.simulated() as sim:
        free_twice()
        assert len(sim.take_hazards()) == 1
        assert sim.hazards() == []


def test_an_exception_is_not_hidden_by_a_hazard():
    with pytest.raises(KeyError), alluvion.simulated():
        free_twice()
        raise KeyError


def free_twice():
    stack = alluvion.resource("cuda")
    address = stack.allocate(100)
    stack.deallocate(address, 100)
    with pytest.raises(alluvion.errors.Misuse):
        stack.deallocate(address, 100)


def test_machines_nest(sim):
    outer = alluvion.current_resource()
    with alluvion.simulated(devices=3) as inner:
        assert alluvion.device_count() == 3
        assert alluvion.current_resource() is not outer
        with inner:
            assert alluvion.device_count() == 3
        assert alluvion.device_count() == 3
    assert alluvion.device_count() == 2
    assert alluvion.current_resource() is outer


def test_a_machine_may_be_entered_again_and_not_left_too_often():
    machine = alluvion.simulated()
    for _ in range(2):
        with machine:
            assert alluvion.device_count() == 1
    with pytest.raises(RuntimeError, match="more often than entered"):
        machine.__exit__(None, None, None)


def test_exploring_counts_and_names_the_seed():
    assert testing.explore_seeds(lambda sim: alluvion.resource("pool"), seeds=5, memory="64 MiB") == 5
    seen = []

    def program(sim):
        seen.append(sim)
        if len(seen) == 3:
            raise KeyError("on purpose")

    with pytest.raises(testing.ScheduleFailed, match="seed 12: KeyError") as raised:
        testing.explore_seeds(program, seeds=[10, 11, 12, 13])
    assert raised.value.seed == 12 and isinstance(raised.value.__cause__, KeyError)
    with pytest.raises(testing.ScheduleFailed, match="seed 0: HazardError"):
        testing.explore_seeds(lambda sim: free_twice(), seeds=1)


def test_pytest_has_the_fixture(pytester, monkeypatch):
    pytester.makepyfile(
        """
        import alluvion

        def test_mine(simulated_gpu):
            assert alluvion.device_count() == 2

        def test_hazard(simulated_gpu):
            stack = alluvion.resource("cuda")
            address = stack.allocate(100)
            stack.deallocate(address, 100)
            try:
                stack.deallocate(address, 100)
            except alluvion.errors.Misuse:
                pass
        """
    )
    monkeypatch.setenv("PYTHONPATH", str(Path(alluvion.__file__).parents[1]))
    # An installation names the plugin itself, and pytest refuses one that is named twice.
    named = any(point.value == "alluvion._pytest_plugin" for point in entry_points(group="pytest11"))
    plugin = [] if named else ["-p", "alluvion._pytest_plugin"]
    result = pytester.runpytest_subprocess(*plugin)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*HazardError*"])
    result = pytester.runpytest_subprocess(*plugin, "--gpu-seeds=3", "-k", "mine")
    result.assert_outcomes(passed=3, deselected=3)
