"""Who keeps the memory, until when: objects of Python, copies in C++, the map of devices, a process that ends or forks."""

import gc
import os

import pytest
import rmm

import alluvion
import alluvion.rapids
from alluvion.rapids import DeviceResource


def test_a_buffer_keeps_the_pool_that_it_frees(sim, blocks):
    buffer = rmm.DeviceBuffer(size=1000, mr=DeviceResource("pool | cuda-async"))
    assert blocks() == 1
    del buffer
    assert blocks() == 0


def test_the_stack_goes_with_the_last_that_has_it(sim, blocks):
    stack = alluvion.resource("stats | pool | cuda-async")
    mr = DeviceResource(stack)
    mr.deallocate(mr.allocate(1000), 1000)
    del mr
    assert blocks() == 1 and stack.stats().total_bytes >= 1000
    del stack
    assert blocks() == 0


def test_every_device_gets_its_own(sim, blocks):
    stacks = alluvion.rapids.install("stats | pool | cuda-async")
    assert list(stacks) == [0, 1]
    for device, stack in stacks.items():
        mr = rmm.mr.get_per_device_resource(device)
        assert type(mr) is DeviceResource and mr.stack is stack and stack.device == device
        mr.deallocate(mr.allocate(1000), 1000)
    del stacks, stack, mr
    # The map of RMM has them.
    assert blocks() == 2
    for device in (0, 1):
        rmm.mr.set_per_device_resource(device, rmm.mr.CudaMemoryResource())
    assert blocks() == 0


def test_stacks_that_were_made_before_go_under_their_devices(sim):
    stack = alluvion.resource("stats | cuda", 1)
    assert alluvion.rapids.install(stack)[1] is stack
    assert rmm.mr.get_per_device_resource(1).stack is stack
    both = alluvion.per_device("stats | pool | cuda-async")
    assert dict(alluvion.rapids.install(both)) == dict(both)
    assert rmm.mr.get_per_device_resource(0).stack is both[0]
    assert list(alluvion.rapids.install("cuda", [1])) == [1]
    with pytest.raises(ValueError, match="leave `devices` out"):
        alluvion.rapids.install(both, [0])
    with pytest.raises(TypeError, match="not int"):
        alluvion.rapids.install(7)
    # None of them where one cannot be.
    before = rmm.mr.get_per_device_resource(0)
    with pytest.raises(ValueError, match="cannot be a resource of gpu 1"):
        alluvion.rapids.install({0: both[0], 1: both[0]})
    assert rmm.mr.get_per_device_resource(0) is before
    for device in (0, 1):
        rmm.mr.set_per_device_resource(device, rmm.mr.CudaMemoryResource())


def test_resources_that_others_set_behind_us_leave_our_buffers_alone(sim, blocks):
    # What `rmm.reinitialize` does, which asks CUDA for the device.
    stacks = alluvion.rapids.install("stats | pool | cuda-async")
    buffer = rmm.DeviceBuffer(size=1000, mr=rmm.mr.get_per_device_resource(0))
    for device in (0, 1):
        rmm.mr.set_per_device_resource(device, rmm.mr.CudaMemoryResource())
    assert stacks[0].stats().current_bytes >= 1000
    del stacks
    assert blocks() == 1
    del buffer
    assert blocks() == 0


def test_a_worker_of_dask_gets_the_recipe_of_the_environment(sim, monkeypatch):
    from alluvion.rapids import preload

    monkeypatch.setenv("ALLUVION_RESOURCE", "stats | pool | cuda-async")
    alluvion.set_current_device(1)
    preload.dask_setup(None)
    assert repr(rmm.mr.get_per_device_resource(1)) == "DeviceResource(Stats(0 B) | Pool(0 B) | CudaAsync(gpu 1))"
    monkeypatch.delenv("ALLUVION_RESOURCE")
    preload.dask_setup(None)
    assert "Pool(0 B)" in repr(rmm.mr.get_per_device_resource(1))
    rmm.mr.set_per_device_resource(1, rmm.mr.CudaMemoryResource())


BEGIN = """
import gc, threading
import alluvion, alluvion.rapids, rmm
machine = alluvion.simulated(devices=2, check=False)
machine.__enter__()
stacks = alluvion.rapids.install("stats | tracking | pool | cuda-async")
mr = rmm.mr.get_per_device_resource(0)
buffer = rmm.DeviceBuffer(size=1000, mr=mr)
"""

ENDS = {
    "a module": "",
    "the interpreter": "import builtins; builtins.buffer = buffer; del mr, stacks, buffer",
    "no object of python": "del stacks, mr; gc.collect()",
    "a cycle": "cycle = [buffer]; cycle.append(cycle); del buffer, cycle",
    "a thread": """
def forever():
    while True:
        mr.deallocate(mr.allocate(1000), 1000)
threading.Thread(target=forever, daemon=True).start()
""",
    "a layer": "mr = rmm.mr.StatisticsResourceAdaptor(mr); rmm.mr.set_per_device_resource(0, mr)",
}


@pytest.mark.parametrize("what", ENDS)
def test_a_process_ends_quietly_where_buffers_live_in(run, what):
    ended = run(BEGIN + ENDS[what])
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_of_a_fork_is_told_and_frees_nothing(run):
    ended = run(
        BEGIN
        + """
import os, sys, warnings
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    said = []
    for size in (1000, 1 << 20):
        try:
            mr.allocate(size)
        except RuntimeError as error:
            said.append("belongs to the parent process" in str(error))
    try:
        alluvion.rapids.DeviceResource(stacks[0])
    except alluvion.errors.ShutDown:
        said.append(True)
    del buffer
    gc.collect()
    os._exit(0 if said == [True, True, True] else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(stacks[0].stats().current_bytes >= 1000)
"""
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True\n", "")
