"""A genuine resource of RMM on each of two GPUs of one host. Skipped where there is one GPU, or no RMM that the door is for."""

import gc
import os
import subprocess
import sys

import pytest

import alluvion
from test_shared import PATTERN

rmm = pytest.importorskip("rmm")
runtime = pytest.importorskip("cuda.bindings.runtime")

MIB = 1 << 20


@pytest.fixture
def two(gpu):
    """Both devices, with RMM's own resources on them before and after."""
    if gpu < 2:
        pytest.skip("there is one GPU")
    rmm.reinitialize(devices=[0, 1])
    yield
    gc.collect()
    rmm.reinitialize(devices=[0, 1])
    rmm._cuda.gpu.setDevice(0)


def on_each():
    for device in (0, 1):
        rmm._cuda.gpu.setDevice(device)
        yield device


def device_of(buffer):
    error, attributes = runtime.cudaPointerGetAttributes(buffer.ptr)
    assert error == runtime.cudaError_t.cudaSuccess
    return attributes.device


def live(stacks):
    gc.collect()
    return [stacks[device].stats().current_count for device in (0, 1)]


def install(recipe):
    import alluvion.rapids

    return alluvion.rapids.install(recipe)


@pytest.mark.parametrize("recipe", ["stats | cuda", "stats | pool | cuda-async", "stats | pool | mapped"])
def test_each_device_allocates_from_its_own_stack(two, recipe):
    stacks = install(recipe)
    made = []
    for device in on_each():
        made += [rmm.DeviceBuffer.to_device(PATTERN) for _ in range(device + 1)]
        assert device_of(made[-1]) == device
    assert live(stacks) == [1, 2]
    # RMM copies by a stream of the current device, which does not reach pools and pages of another one that it was not named for.
    for device in on_each():
        assert [buffer.tobytes() for buffer in made[device : 2 * device + 1]] == [PATTERN] * (device + 1)
    rmm._cuda.gpu.setDevice(0)
    # They are freed while the first device is current, which two of them are not of.
    del made
    assert live(stacks) == [0, 0]
    assert [stacks[device].stats().total_count for device in (0, 1)] == [1, 2]


def test_resources_go_under_devices_as_rmm_puts_them_there(two):
    from alluvion.rapids import DeviceResource

    resources = []
    for device in on_each():
        resources.append(DeviceResource("stats | pool | cuda-async"))
        rmm.mr.set_per_device_resource(device, resources[-1])
    assert [each.stack.device for each in resources] == [0, 1]
    for device in on_each():
        assert rmm.mr.get_per_device_resource(device) is resources[device]
        assert rmm.mr.get_current_device_resource() is resources[device]
        buffer = rmm.DeviceBuffer(size=MIB)
        assert device_of(buffer) == device and resources[device].stack.stats().current_bytes >= MIB
        assert resources[1 - device].stack.stats().current_bytes == 0
        del buffer
        gc.collect()


@pytest.mark.parametrize("source", ["cuda(peers=all)", "cuda-async(peers=all)", "mapped(peers=all)"])
def test_buffers_are_copied_from_one_to_the_other(two, source):
    stacks = install(f"stats | pool | {source}")
    for round in range(4):
        data = PATTERN[round:] + PATTERN[:round]
        there = []
        for device in on_each():
            there.append(rmm.DeviceBuffer.to_device(data if device == 0 else bytes(len(data))))
        there[1].copy_from_device(there[0])
        assert there[1].tobytes() == data
        rmm._cuda.gpu.setDevice(0)
        back = rmm.DeviceBuffer(size=len(data))
        back.copy_from_device(there[1])
        assert back.tobytes() == data
        assert live(stacks) == [2, 1]
        del back, there
    assert live(stacks) == [0, 0]


def test_layers_of_rmm_count_what_each_device_has(two):
    from alluvion.rapids import DeviceResource

    counted = []
    for device in on_each():
        counted.append(rmm.mr.StatisticsResourceAdaptor(DeviceResource("stats | pool | cuda-async", device)))
        rmm.mr.set_per_device_resource(device, counted[-1])
    made = [rmm.DeviceBuffer(size=(device + 1) * MIB) for device in on_each()]
    assert [each.allocation_counts.current_bytes for each in counted] == [MIB, 2 * MIB]
    assert [each.get_upstream().stack.stats().current_bytes for each in counted] == [MIB, 2 * MIB]
    del made
    gc.collect()
    assert [each.allocation_counts.current_bytes for each in counted] == [0, 0]


def test_the_stack_of_a_device_sleeps_while_the_other_works(two):
    stacks = install("stats | tracking | pool | mapped")
    made = [rmm.DeviceBuffer.to_device(PATTERN) for _ in on_each()]
    addresses = [buffer.ptr for buffer in made]
    for device in on_each():
        with stacks[device].sleep() as asleep:
            assert asleep.is_asleep and stacks[device].pool_status()["reserved_bytes"] == 0
            assert stacks[1 - device].pool_status()["reserved_bytes"] > 0
            rmm._cuda.gpu.setDevice(1 - device)
            assert made[1 - device].tobytes() == PATTERN
            more = rmm.DeviceBuffer.to_device(PATTERN)
            assert device_of(more) == 1 - device
            del more
            rmm._cuda.gpu.setDevice(device)
        assert made[device].ptr == addresses[device] and made[device].tobytes() == PATTERN
    with stacks[0].sleep(), stacks[1].sleep():
        assert [stacks[device].pool_status()["reserved_bytes"] for device in (0, 1)] == [0, 0]
    assert [made[device].tobytes() for device in on_each()] == [PATTERN] * 2


def test_a_stream_of_the_other_device_is_refused(two):
    from rmm.pylibrmm.stream import Stream

    stacks = install("stats | pool | cuda-async")
    streams = [Stream() for _ in on_each()]
    rmm._cuda.gpu.setDevice(0)
    with pytest.raises(RuntimeError):
        rmm.mr.get_per_device_resource(0).allocate(MIB, streams[1])
    assert live(stacks) == [0, 0]
    again = rmm.DeviceBuffer(size=MIB, stream=streams[0])
    assert live(stacks) == [1, 0]
    del again


PROGRAM = """
import alluvion.rapids, rmm
stacks = alluvion.rapids.install("{recipe}")
kept = []
for device in (0, 1):
    rmm._cuda.gpu.setDevice(device)
    kept.append(rmm.DeviceBuffer.to_device(b"kept" * 1000))
print([stacks[device].stats().current_count for device in (0, 1)])
{end}
"""

ENDS = {
    "with the module": "",
    "in a cycle": "kept.append(kept); del kept",
    "without the stacks": "del stacks",
    "with the other device current": "rmm._cuda.gpu.setDevice(0)",
}


@pytest.mark.parametrize("recipe", ["stats | pool | cuda-async", "stats | tracking | pool | mapped"])
@pytest.mark.parametrize("end", ENDS)
def test_a_process_ends_quietly_with_buffers_on_both(two, recipe, end):
    program = PROGRAM.format(recipe=recipe, end=ENDS[end])
    # RMM may lie in another folder than this library.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[1, 1]\n", "")
