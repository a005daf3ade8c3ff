"""Uses that no program means: rings, towers, chains and nests without end, numbers beyond reason, text that is no text."""

import gc
import os
import subprocess
import sys
import threading

import pytest

import alluvion
from alluvion import rmm
from alluvion.rmm import DeviceBuffer, mr, statistics
from alluvion.rmm.pylibrmm.cuda_stream_pool import CudaStreamPool

LAYERS = {
    "statistics": mr.StatisticsResourceAdaptor,
    "tracking": lambda r: mr.TrackingResourceAdaptor(r, True),
    "pool": lambda r: mr.PoolMemoryResource(r, 0),
    "failure": lambda r: mr.FailureCallbackResourceAdaptor(r, lambda n: False),
    "limiting": lambda r: mr.LimitingResourceAdaptor(r, 1 << 40),
    "base": mr.UpstreamResourceAdaptor,
    "binning": mr.BinningMemoryResource,
    "stack": lambda r: alluvion.Stack("stats", over=r),
    "handler": lambda r: alluvion.Stack(r, on_out_of_memory=lambda error: False),
}


def highest(layer):
    """As many layers as may be, and how many they are."""
    tower, layers = mr.CudaMemoryResource(), 1
    with pytest.raises(RuntimeError, match="sure to hold 256"):
        while True:
            tower = layer(tower)
            layers += 1
            assert layers < 1000
    return tower, layers


@pytest.mark.parametrize("name", LAYERS)
def test_a_tower_ends_before_the_stack_of_a_thread_does(sim, name):
    tower, layers = highest(LAYERS[name])
    assert 100 < layers <= 256
    address = tower.allocate(1000)
    assert repr(tower).endswith("Cuda(gpu 0)")
    tower.deallocate(address, 1000)
    with pytest.raises(MemoryError):
        tower.allocate(1 << 41)
    before = threading.stack_size(4 << 20)
    try:
        failures = []

        def use():
            nonlocal tower
            try:
                DeviceBuffer(size=100, mr=tower)
                with pytest.raises(MemoryError):
                    tower.allocate(1 << 41)
                tower = None
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert failures == [] and tower is None
    finally:
        threading.stack_size(before)


def test_a_recipe_is_no_higher_than_a_tower(sim):
    tower, layers = mr.CudaMemoryResource(), 1
    with pytest.raises(RuntimeError, match="sure to hold 256"):
        while layers < 1000:
            tower = alluvion.Stack(" | ".join(["stats"] * 20), over=tower)
            layers += 20
    assert layers == len(tower.layers) <= 256
    tower.deallocate(tower.allocate(10), 10)


def ring(binned):
    return {
        "itself": lambda: binned,
        "a layer": lambda: mr.StatisticsResourceAdaptor(binned),
        "layers": lambda: mr.PoolMemoryResource(mr.TrackingResourceAdaptor(binned), 0),
        "a stack": lambda: alluvion.Stack("stats | tracking", over=binned),
        "the same stack": lambda: alluvion.Stack(binned),
        "a handler": lambda: alluvion.Stack(binned, on_out_of_memory=lambda error: False),
    }


@pytest.mark.parametrize("name", ring(None))
def test_a_bin_does_not_stand_on_what_it_serves(sim, name):
    binned = mr.BinningMemoryResource(mr.CudaMemoryResource())
    with pytest.raises(ValueError, match="round for ever"):
        binned.add_bin(1000, ring(binned)[name]())
    assert binned.bin_mrs == []
    binned.deallocate(binned.allocate(500), 500)


def test_bins_make_no_ring_of_two(sim):
    first, second = (mr.BinningMemoryResource(mr.CudaMemoryResource()) for _ in range(2))
    first.add_bin(1000, mr.StatisticsResourceAdaptor(second))
    with pytest.raises(ValueError, match="round for ever"):
        second.add_bin(1000, mr.LimitingResourceAdaptor(first, 1 << 20))
    # Twice the same is no ring.
    first.add_bin(2000, second)
    first.deallocate(first.allocate(1500), 1500)


def test_bins_are_put_under_no_higher_tower(sim):
    """From the outermost on, so that each new bin is low, and what stands on it high."""
    outermost = innermost = mr.BinningMemoryResource(mr.CudaMemoryResource())
    made = 1
    with pytest.raises(RuntimeError, match="sure to hold 256"):
        while made < 1000:
            bin_ = mr.BinningMemoryResource(mr.CudaMemoryResource())
            innermost.add_bin(1000, bin_)
            innermost = bin_
            made += 1
    assert made < 256
    outermost.deallocate(outermost.allocate(500), 500)


def test_a_bin_that_was_refused_leaves_nothing_behind(sim):
    binned = mr.BinningMemoryResource(mr.CudaMemoryResource())
    alluvion.set_current_device(1)
    other = mr.StatisticsResourceAdaptor(mr.CudaMemoryResource())
    alluvion.set_current_device(0)
    with pytest.raises(RuntimeError, match="device mismatch"):
        binned.add_bin(1000, other)
    assert binned.bin_mrs == []


def test_a_chain_of_loans_is_given_back(sim):
    buffer = DeviceBuffer.to_device(b"abc")
    for _ in range(50_000):
        buffer = DeviceBuffer.from_dlpack(buffer)
    assert buffer.tobytes() == b"abc"
    del buffer
    assert not any("allocation" in leak for leak in sim.leaks())


def test_a_function_that_asks_its_own_resource_ends(sim):
    """Whatever is between the two, and however high Python's own limit is."""
    calls = 0

    def allocate(nbytes, stream):
        nonlocal calls
        calls += 1
        return outermost.allocate(nbytes)

    own = mr.CallbackMemoryResource(allocate, lambda ptr, nbytes, stream: None)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        for outermost in [
            own,
            mr.PoolMemoryResource(own, 0),
            mr.FailureCallbackResourceAdaptor(
                mr.StatisticsResourceAdaptor(mr.TrackingResourceAdaptor(mr.PoolMemoryResource(own, 0), True)), lambda n: True
            ),
        ]:
            calls = 0
            with pytest.raises(RuntimeError) as caught:
                outermost.allocate(1000)
            # One call a level: a pool does not ask again after an exception.
            assert 1 < calls < 100_000
            innermost = caught.value
            while innermost.__cause__ is not None:
                innermost = innermost.__cause__
            assert isinstance(innermost, RecursionError)
    finally:
        sys.setrecursionlimit(before)


def test_a_function_that_drops_buffers_of_its_own_resource_ends(sim, monkeypatch):
    cuda, seen = mr.CudaMemoryResource(), []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: seen.append(type(unraisable.exc_value.__cause__)))

    def deallocate(ptr, nbytes, stream):
        cuda.deallocate(ptr, nbytes)
        DeviceBuffer(size=10, mr=resource)

    resource = mr.CallbackMemoryResource(lambda nbytes, stream: cuda.allocate(nbytes), deallocate)
    DeviceBuffer(size=10, mr=resource)
    assert RecursionError in seen
    assert len(seen) < 100


def test_functions_may_nest(sim):
    resource = mr.CudaMemoryResource()
    for _ in range(20):
        resource = mr.PoolMemoryResource(
            mr.CallbackMemoryResource(
                lambda nbytes, stream, under=resource: under.allocate(nbytes, stream),
                lambda ptr, nbytes, stream, under=resource: under.deallocate(ptr, nbytes, stream),
            ),
            0,
        )
    assert DeviceBuffer.to_device(b"abc").tobytes() == b"abc"
    resource.deallocate(resource.allocate(1000), 1000)


def test_an_exception_ends_the_request(sim):
    """Also in a pool, which asks again when memory is short: nobody wants to press Ctrl-C twice."""
    asked = []

    def allocate(nbytes, stream):
        asked.append(nbytes)
        raise KeyboardInterrupt

    pool = mr.PoolMemoryResource(mr.CallbackMemoryResource(allocate, print), 0)
    with pytest.raises(RuntimeError, match="KeyboardInterrupt") as caught:
        pool.allocate(1000)
    assert len(asked) == 1 and isinstance(caught.value.__cause__, KeyboardInterrupt)
    assert isinstance(caught.value, alluvion.errors.CallbackFailed)


def test_an_exception_that_cannot_be_printed(sim):
    class Mute(BaseException):
        def __str__(self):
            raise ValueError("mute")

    def allocate(nbytes, stream):
        raise Mute

    with pytest.raises(RuntimeError, match="Mute: an exception that cannot be printed") as caught:
        mr.CallbackMemoryResource(allocate, print).allocate(10)
    assert isinstance(caught.value.__cause__, Mute)


@pytest.mark.parametrize("devices", [65, 100_000, 4_000_000_000])
def test_a_machine_has_no_more_devices_than_a_host(devices):
    with pytest.raises(ValueError, match="1 to 64 devices"):
        alluvion.simulated(devices=devices)


@pytest.mark.parametrize("size", [(1 << 16) + 1, 10**12, 2**64 - 1])
def test_a_pool_has_no_more_streams_than_a_device_can_use(sim, size):
    with pytest.raises(RuntimeError, match="at most 65536"):
        CudaStreamPool(size)


@pytest.mark.parametrize("shape", [(0, 2**62, 2**62), (2**62, 0, 2**62, 2**62), (2**63 - 1, 2**63 - 1, 0)])
def test_lengths_of_an_array_without_elements(sim, shape):
    view = DeviceBuffer(size=96).view("f4", shape)
    assert view.nbytes == 0 and view.shape == shape
    assert DeviceBuffer.from_dlpack(view).size == 0


class Array:
    def __init__(self, **interface):
        self.__cuda_array_interface__ = {"data": (0, False), "shape": (0,), "typestr": "|u1", "version": 3, **interface}


def test_an_array_at_no_address(sim):
    buffer = DeviceBuffer(size=10)
    with pytest.raises(ValueError, match="at no address"):
        buffer.copy_from_device(Array(shape=(3,)))
    with pytest.raises(ValueError, match="no type of elements"):
        buffer.copy_from_device(Array(typestr="é1", shape=(1,), data=(buffer.ptr, False)))
    buffer.copy_from_device(Array())


def test_a_file_whose_name_is_no_text(sim):
    stack = alluvion.resource("tracking(stacks=all) | cuda")
    names = {"stack": stack}
    exec(compile("address = stack.allocate(100)", "\udcff.py", "exec"), names)
    (block,) = stack.blocks()
    assert block.call.line == 1 and block.call.file.endswith(".py")
    stack.deallocate(names["address"], 100)


INTERPRETERS = """
try:
    import _interpreters as interpreters
    create, run = interpreters.create, interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    create, run = interpreters.create, interpreters.run_string
{before}
text = '''
try:
    import alluvion
except ImportError as error:
    print('refused' if 'interpreter' in str(error) else error, flush=True)
else:
    print('imported', flush=True)
'''
for _ in range(2):
    run(create(), text)
"""


@pytest.mark.parametrize("before, printed", [("import alluvion", ["refused"] * 2), ("", ["imported", "refused"])])
def test_one_interpreter_of_a_process(before, printed):
    if sys.version_info >= (3, 12):
        # An interpreter with a lock of its own takes no module of PyO3 at all.
        printed = ["refused"] * 2
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETERS.format(before=before)],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout.split()) == (0, printed), done.stderr


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_threads_that_are_given_one_capsule(sim, version):
    """One of them gets the tensor, whatever else runs."""
    buffer = DeviceBuffer.to_device(b"abc" * 100)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(200):
            capsule, start, got = buffer.__dlpack__(max_version=version), threading.Barrier(4), []

            def take():
                start.wait()
                try:
                    got.append(DeviceBuffer.from_dlpack(capsule))
                except BufferError as error:
                    got.append(error)

            threads = [threading.Thread(target=take) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sum(isinstance(answer, DeviceBuffer) for answer in got) == 1 and len(got) == 4
            del capsule, got
    finally:
        sys.setswitchinterval(before)
    buffer.resize(10_000)


def test_a_capsule_that_is_refused_keeps_its_tensor(sim):
    buffer = DeviceBuffer.to_device(b"abc")
    capsule = buffer.__dlpack__()
    smaller = alluvion.simulated()
    alluvion.set_current_device(1)
    other = DeviceBuffer.to_device(b"xyz").__dlpack__()
    alluvion.set_current_device(0)
    with smaller, pytest.raises(BufferError, match="no such device"):
        DeviceBuffer.from_dlpack(other)
    assert DeviceBuffer.from_dlpack(other).size == 3
    with pytest.raises(BufferError, match="after it was taken"):
        DeviceBuffer.from_dlpack(other)
    del capsule, other
    buffer.resize(10_000)


def test_a_dict_that_changes_while_it_is_shown(sim):
    """Resources that are made at their first use, so that the other thread runs meanwhile."""
    resources, stop = {}, threading.Event()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def change():
        number = 0
        while not stop.is_set():
            number += 1
            resources[str(number % 50)] = mr.ManagedMemoryResource()
            resources.pop(str((number + 20) % 50), None)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(100):
            alluvion.metrics(resources)
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)


def test_a_stream_that_comes_back_to_the_log(sim, monkeypatch):
    # Its frees go to the resource that the blocks come from, which it has not seen them of.
    cuda = mr.CudaMemoryResource()
    tracking, written = mr.TrackingResourceAdaptor(cuda), []

    class Noisy:
        def write(self, text):
            written.append(text)
            if len(written) < 5:
                tracking.deallocate(cuda.allocate(10), 10)

        def flush(self):
            raise RuntimeError("no")

    monkeypatch.setattr(sys, "stderr", Noisy())
    tracking.deallocate(cuda.allocate(100), 100)
    rmm.flush_logger()
    assert len(written) >= 5 and all("not tracked" in text for text in written)


def test_a_destructor_that_is_profiled(sim):
    """The collector runs it, wherever it finds it."""
    records = statistics.ProfilerRecords()
    statistics.enable_statistics()

    class Node:
        def __init__(self):
            self.myself = self

        @statistics.profiler(records=records)
        def __del__(self):
            rmm.register_reinitialize_hook(len, ())
            rmm.unregister_reinitialize_hook(len)

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for number in range(50):
            Node()
            with statistics.profiler(records=records, name=str(number)):
                rmm.register_reinitialize_hook(max, ())
            records.report(), records.records
            rmm.unregister_reinitialize_hook(max)
    finally:
        gc.set_threshold(*before)
    assert len(records.records) == 51


def test_an_object_that_is_its_own_base():
    class Own:
        base = property(lambda self: self)

    assert not alluvion.pinned.is_pinned(Own())
