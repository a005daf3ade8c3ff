"""Resources that threads share, that the collector finds, and that are there when the process ends."""

import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest

import alluvion
from alluvion.rmm import DeviceBuffer, mr


def blocks_out(sim):
    """The blocks that nobody has freed. The device keeps its events and streams for the next use."""
    return [str(leak) for leak in sim.leaks() if "allocation" in str(leak)]


def test_threads_share_a_resource(sim):
    tracking = mr.TrackingResourceAdaptor(
        mr.StatisticsResourceAdaptor(mr.PoolMemoryResource(mr.CudaMemoryResource(), "8 MiB"))
    )
    failures = []

    def work():
        try:
            for size in range(1, 300):
                tracking.deallocate(tracking.allocate(size), size)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and tracking.get_allocated_bytes() == 0
    counts = tracking.upstream_mr.allocation_counts
    assert (counts.current_count, counts.total_count) == (0, 8 * 299)


def test_threads_share_a_resource_in_python(sim):
    cuda = mr.CudaMemoryResource()
    asked = []

    def callback(nbytes):
        asked.append(nbytes)
        return False

    resource = mr.FailureCallbackResourceAdaptor(
        mr.PoolMemoryResource(mr.CallbackMemoryResource(cuda.allocate, cuda.deallocate), 0, "1 MiB"), callback
    )

    def work():
        for _ in range(20):
            resource.deallocate(resource.allocate(1000), 1000)
            with pytest.raises(MemoryError):
                resource.allocate(2 << 20)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked == [2 << 20] * 80


def test_bins_are_added_while_threads_allocate(sim):
    binned = mr.BinningMemoryResource(mr.CudaMemoryResource())
    stop = threading.Event()
    failures = []

    def work():
        try:
            while not stop.is_set():
                binned.deallocate(binned.allocate(3000), 3000)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for size in (16384, 8192, 4096):
        binned.add_bin(size, mr.CudaMemoryResource())
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == [] and len(binned.bin_mrs) == 3


def test_weak_references(sim):
    resource = mr.PoolMemoryResource(mr.CudaMemoryResource(), "1 MiB")
    seen = weakref.ref(resource)
    assert seen() is resource
    del resource
    gc.collect()
    assert seen() is None and blocks_out(sim) == []


class Canary:
    """Something to have a weak reference of."""


def a_callback_in_a_cycle():
    canary, cuda = Canary(), mr.CudaMemoryResource()
    held = [canary]

    def allocate(nbytes, stream):
        assert held
        return cuda.allocate(nbytes, stream)

    def deallocate(ptr, nbytes, stream):
        cuda.deallocate(ptr, nbytes, stream)
        assert held

    resource = mr.CallbackMemoryResource(allocate, deallocate)
    held.append(resource)
    return resource, canary


def test_a_cycle_through_a_function_is_collected(sim):
    resource, canary = a_callback_in_a_cycle()
    seen = weakref.ref(canary)
    del canary, resource
    gc.collect()
    assert seen() is None


def test_a_cycle_through_a_failure_callback_is_collected(sim):
    canary = Canary()
    held = [canary]
    resource = mr.FailureCallbackResourceAdaptor(mr.CudaMemoryResource(), lambda nbytes: bool(held) and False)
    held.append(resource)
    seen = weakref.ref(canary)
    del canary, resource, held
    gc.collect()
    assert seen() is None


def test_a_cycle_through_bins_and_upstreams_is_collected(sim):
    class Mine(mr.BinningMemoryResource):
        pass

    mine = Mine(mr.CudaMemoryResource())
    mine.canary = Canary()
    mine.myself = mine
    class Bin(mr.CudaMemoryResource):
        pass

    bin_ = Bin()
    bin_.of = mine
    mine.add_bin(1024, bin_)
    seen = weakref.ref(mine.canary)
    del mine, bin_
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("over", [lambda r: r, lambda r: mr.PoolMemoryResource(r, 0)])
def test_a_function_lives_as_long_as_a_buffer_needs_it(sim, over):
    resource, canary = a_callback_in_a_cycle()
    buffer = DeviceBuffer(size=1000, mr=over(resource))
    seen = weakref.ref(canary)
    del canary, resource
    gc.collect()
    assert seen() is not None
    del buffer
    gc.collect()
    assert blocks_out(sim) == []


def test_a_function_lives_as_long_as_it_is_current(sim):
    resource, canary = a_callback_in_a_cycle()
    mr.set_current_device_resource(resource)
    seen = weakref.ref(canary)
    del canary, resource
    gc.collect()
    assert seen() is not None
    gc.collect()


def test_buffers_in_a_cycle_are_freed(sim):
    class Node:
        pass

    pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), "1 MiB")
    node = Node()
    node.myself, node.buffer, node.pool = node, DeviceBuffer(size=100, mr=pool), pool
    del node, pool
    gc.collect()
    assert blocks_out(sim) == []


def test_nothing_is_left_of_many_objects(sim):
    def use():
        cuda = mr.CudaMemoryResource()
        callback = mr.CallbackMemoryResource(cuda.allocate, cuda.deallocate)
        tower = mr.FailureCallbackResourceAdaptor(
            mr.StatisticsResourceAdaptor(mr.TrackingResourceAdaptor(callback)), lambda nbytes: False
        )
        tower.deallocate(tower.allocate(100), 100)
        with pytest.raises(MemoryError):
            tower.allocate(1 << 50)
        tower.upstream_mr.push_counters()

    use()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(50):
        use()
    gc.collect()
    assert len(gc.get_objects()) - before < 25


HEAD = """
import alluvion, threading, sys, os
from alluvion.rmm import mr, DeviceBuffer
import alluvion.rmm as rmm
sim = alluvion.simulated()
sim.__enter__()
cuda = mr.CudaMemoryResource()
"""

ENDS = {
    "a pool that is current": "mr.set_current_device_resource(mr.PoolMemoryResource(cuda, '1 MiB')); b = DeviceBuffer(size=9)",
    "a function of Python": """
r = mr.CallbackMemoryResource(lambda n, s: cuda.allocate(n, s), lambda p, n, s: cuda.deallocate(p, n, s))
mr.set_current_device_resource(r)
b = DeviceBuffer(size=100)
""",
    "a pool over a function": """
r = mr.CallbackMemoryResource(lambda n, s: cuda.allocate(n, s), lambda p, n, s: cuda.deallocate(p, n, s))
p = mr.PoolMemoryResource(r, '1 MiB')
mr.set_current_device_resource(p)
sys.keep = [DeviceBuffer(size=100), p]
""",
    "a failure callback": "f = mr.FailureCallbackResourceAdaptor(cuda, lambda n: False); mr.set_current_device_resource(f); b = DeviceBuffer(size=1)",
    "tracking with blocks": "t = mr.TrackingResourceAdaptor(cuda); t.allocate(100); mr.set_current_device_resource(t)",
    "os._exit": "b = DeviceBuffer(size=100); os._exit(0)",
    "sys.exit in a thread": """
b = DeviceBuffer(size=100)
t = threading.Thread(target=sys.exit)
t.start()
t.join()
""",
    "a daemon that allocates": """
p = mr.PoolMemoryResource(cuda, '1 MiB')
def work():
    while True:
        p.deallocate(p.allocate(100), 100)
threading.Thread(target=work, daemon=True).start()
""",
    "a daemon over a function": """
r = mr.CallbackMemoryResource(lambda n, s: cuda.allocate(n, s), lambda p, n, s: cuda.deallocate(p, n, s))
def work():
    while True:
        r.deallocate(r.allocate(100), 100)
threading.Thread(target=work, daemon=True).start()
""",
    "daemons within functions of Python": """
import time
def allocate(n, s):
    time.sleep(0.001)
    return cuda.allocate(n)
def deallocate(p, n, s):
    time.sleep(0.001)
    cuda.deallocate(p, n)
def refuse(n):
    time.sleep(0.001)
    return False
r = mr.CallbackMemoryResource(allocate, deallocate)
f = mr.FailureCallbackResourceAdaptor(mr.LimitingResourceAdaptor(cuda, 10), refuse)
def work(use):
    while True:
        use()
def refused():
    try:
        f.allocate(1000)
    except MemoryError:
        pass
for use in [lambda: r.deallocate(r.allocate(100), 100), lambda: DeviceBuffer(size=100, mr=r), refused] * 3:
    threading.Thread(target=work, args=(use,), daemon=True).start()
time.sleep(0.1)
""",
    "daemons within protocols": """
import time
class AStream:
    def __cuda_stream__(self):
        time.sleep(0.001)
        return (0, 0)
class Lender:
    def __init__(self):
        self.buffer = DeviceBuffer.to_device(b"abc")
    def __dlpack_device__(self):
        time.sleep(0.001)
        return (2, 0)
    def __dlpack__(self, **keywords):
        time.sleep(0.001)
        return self.buffer.__dlpack__()
def work(use):
    while True:
        use()
for use in [lambda: DeviceBuffer(size=10, stream=AStream()), lambda: alluvion.from_dlpack(Lender())] * 4:
    threading.Thread(target=work, args=(use,), daemon=True).start()
time.sleep(0.1)
""",
    "a cycle": "class N: pass\nn = N(); n.n = n; n.b = DeviceBuffer(size=1); n.r = mr.StatisticsResourceAdaptor(cuda)",
    "a fork": """
b = DeviceBuffer(size=100)
p = mr.StatisticsResourceAdaptor(mr.PoolMemoryResource(cuda, '1 MiB'))
child = os.fork()
if child == 0:
    try:
        p.allocate(100)
    except (MemoryError, RuntimeError):
        del b, p
        os._exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
""",
}


@pytest.mark.parametrize("options", [[], ["-X", "dev"]])
@pytest.mark.parametrize("name", ENDS)
def test_a_process_ends_in_silence(name, options):
    done = subprocess.run(
        [sys.executable, *options, "-W", "ignore::DeprecationWarning", "-c", HEAD + ENDS[name]],
        env={**os.environ, "PYTHONMALLOC": "debug"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def a_spilling_stack(spill):
    return alluvion.resource("pool | cuda", on_out_of_memory=spill)


def a_spilling_stack_under_others(spill):
    return alluvion.resource("stats", over=alluvion.Stack(a_spilling_stack(spill)))


def a_failure_callback(spill):
    pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), "1 MiB")
    return mr.FailureCallbackResourceAdaptor(pool, spill)


def a_failure_callback_under_others(spill):
    return mr.StatisticsResourceAdaptor(a_failure_callback(spill))


SPILLING = [a_spilling_stack, a_spilling_stack_under_others, a_failure_callback, a_failure_callback_under_others]


@pytest.mark.parametrize("make", SPILLING)
def test_an_object_that_spills_its_own_buffers_is_collected(sim, make):
    class Cache:
        def __init__(self):
            self.stack = make(self.spill)
            self.buffers = [DeviceBuffer(size=1 << 20, mr=self.stack) for _ in range(2)]

        def spill(self, asked):
            self.buffers.clear()
            return True

    cache = Cache()
    seen = weakref.ref(cache)
    del cache
    gc.collect()
    assert seen() is None and blocks_out(sim) == []


@pytest.mark.parametrize("make", SPILLING)
def test_a_handler_lives_as_long_as_a_buffer_needs_it(sim, make):
    asked = []
    buffer = DeviceBuffer(size=100, mr=make(lambda error: asked.append(error)))
    gc.collect()
    sim.fail("cuMemAlloc", nth=None)
    with pytest.raises(MemoryError):
        buffer.resize(32 << 20)
    assert asked
    sim.clear_faults()
    del buffer


def test_a_resource_whose_functions_are_its_own_is_collected(sim):
    class Mine(mr.CallbackMemoryResource):
        def __init__(self):
            self.cuda = mr.CudaMemoryResource()
            super().__init__(self.take, self.give)

        def take(self, nbytes, stream):
            return self.cuda.allocate(nbytes, stream)

        def give(self, ptr, nbytes, stream):
            self.cuda.deallocate(ptr, nbytes, stream)

    mine = Mine()
    seen, buffer = weakref.ref(mine), DeviceBuffer(size=100, mr=mine)
    del mine
    gc.collect()
    assert seen() is not None
    del buffer
    gc.collect()
    assert seen() is None and blocks_out(sim) == []
