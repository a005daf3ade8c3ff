"""Every class of `rmm.mr`: arguments, defaults, methods, errors and texts."""

import copy
import gc
import pickle
import re
import sys
import threading
from pathlib import Path

import pytest

import alluvion
import alluvion.rmm
from alluvion.rmm import DeviceBuffer, mr
from alluvion.rmm.pylibrmm.stream import DEFAULT_STREAM

KIB, MIB = 1 << 10, 1 << 20

LEAVES = [
    "CallbackMemoryResource",
    "CudaAsyncMemoryResource",
    "CudaMemoryResource",
    "ManagedMemoryResource",
    "PinnedHostMemoryResource",
    "SamHeadroomMemoryResource",
    "SystemMemoryResource",
]
ADAPTORS = [
    "ArenaMemoryResource",
    "BinningMemoryResource",
    "FailureCallbackResourceAdaptor",
    "FixedSizeMemoryResource",
    "LimitingResourceAdaptor",
    "LoggingResourceAdaptor",
    "PoolMemoryResource",
    "PrefetchResourceAdaptor",
    "StatisticsResourceAdaptor",
    "TrackingResourceAdaptor",
]


def made(name, upstream, tmp_path):
    """An object of an adaptor class."""
    arguments = {
        "PoolMemoryResource": (MIB,),
        "ArenaMemoryResource": (2 * MIB,),
        "FixedSizeMemoryResource": (KIB, 4),
        "LimitingResourceAdaptor": (8 * MIB,),
        "LoggingResourceAdaptor": (tmp_path / "log.csv",),
        "FailureCallbackResourceAdaptor": (lambda nbytes: False,),
    }
    return getattr(mr, name)(upstream, *arguments.get(name, ()))


@pytest.mark.parametrize("name", LEAVES)
def test_leaves_have_no_upstream(name):
    kind = getattr(mr, name)
    assert kind.__base__ is mr.DeviceMemoryResource
    assert not hasattr(kind, "upstream_mr")


@pytest.mark.parametrize("name", ADAPTORS)
def test_adaptors_give_their_upstream_back(sim, tmp_path, name):
    assert getattr(mr, name).__base__ is mr.UpstreamResourceAdaptor
    upstream = mr.CudaMemoryResource()
    resource = made(name, upstream, tmp_path)
    assert resource.upstream_mr is upstream and resource.get_upstream() is upstream
    with pytest.raises(AttributeError):
        resource.upstream_mr = upstream
    with pytest.raises(AttributeError):
        resource.anything = 1
    address = resource.allocate(nbytes=1000)
    assert address % 256 == 0 and address > 0
    resource.deallocate(ptr=address, nbytes=1000)
    assert resource.allocate(0) == 0
    resource.deallocate(0, 0)
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            copied(resource)
    assert resource == resource and resource != made(name, upstream, tmp_path)
    assert hash(resource) == hash(resource)


@pytest.mark.parametrize("name", ADAPTORS)
def test_adaptors_refuse_what_is_no_upstream(sim, tmp_path, name):
    with pytest.raises(Exception, match="must not be None"):
        made(name, None, tmp_path)
    with pytest.raises(TypeError, match="incorrect type"):
        made(name, "pool", tmp_path)


@pytest.mark.parametrize("name", ADAPTORS)
def test_the_upstream_lives_as_long_as_what_stands_over_it(sim, tmp_path, name):
    resource = made(name, mr.CudaMemoryResource(), tmp_path)
    gc.collect()
    resource.deallocate(resource.allocate(100), 100)


def test_a_python_subclass_has_a_dict(sim):
    class Mine(mr.CudaMemoryResource):
        pass

    mine = Mine()
    mine.name = "mine"
    mr.set_current_device_resource(mine)
    assert mr.get_current_device_resource() is mine and mr.get_current_device_resource().name == "mine"


@pytest.mark.parametrize("name", ["CudaMemoryResource", "ManagedMemoryResource", "PinnedHostMemoryResource"])
def test_a_class_without_arguments_leaves_them_to_an_init_of_a_subclass(sim, name):
    base = getattr(mr, name)

    class Named(base):
        def __init__(self, name, size=0):
            super().__init__()
            self.name = name

    class Plain(base):
        pass

    named = Named("mine", size=5)
    named.deallocate(named.allocate(100), 100)
    assert named.name == "mine" and Plain() is not None
    for wrong in (lambda: base(1), lambda: base(size=1), lambda: Plain(1)):
        with pytest.raises(TypeError, match="takes no arguments, and 1 were given"):
            wrong()
    assert sim.leaks() == []


@pytest.mark.parametrize("name", ["CudaMemoryResource", "ManagedMemoryResource", "PinnedHostMemoryResource"])
def test_sources_hand_out_memory(sim, name):
    resource = getattr(mr, name)()
    address = resource.allocate(100)
    assert address % 256 == 0
    resource.deallocate(address, 100)
    assert sim.leaks() == []


def test_a_source_can_be_made_without_a_driver():
    mr.CudaMemoryResource()
    mr.ManagedMemoryResource()
    mr.PinnedHostMemoryResource()


def test_memory_of_the_host_needs_a_device_that_reads_it(sim):
    with pytest.raises(RuntimeError, match="pageable"):
        mr.SystemMemoryResource()
    with pytest.raises(RuntimeError, match="pageable"):
        mr.SamHeadroomMemoryResource(headroom=MIB)
    with pytest.raises(TypeError):
        mr.SamHeadroomMemoryResource()
    with pytest.raises(OverflowError):
        mr.SamHeadroomMemoryResource(-1)


def test_a_pool_of_the_driver(sim):
    resource = mr.CudaAsyncMemoryResource(initial_pool_size="4 MiB", release_threshold=0, enable_ipc=False)
    assert resource.pool_handle() != 0
    resource.deallocate(resource.allocate(100), 100)
    with pytest.raises(RuntimeError, match="Requested IPC memory handle type not supported$"):
        mr.CudaAsyncMemoryResource(enable_fabric=True)
    with pytest.raises(ValueError, match="Could not parse"):
        mr.CudaAsyncMemoryResource("2k")
    with pytest.raises(OverflowError):
        mr.CudaAsyncMemoryResource(-1)
    with pytest.raises(MemoryError):
        mr.CudaAsyncMemoryResource("1 TiB")


def test_a_pool_of_the_driver_is_made_on_the_device_that_it_is_set_for(sim):
    resources = [mr.CudaAsyncMemoryResource() for _ in range(2)]
    for device, resource in enumerate(resources):
        mr.set_per_device_resource(device, resource)
        assert f"(gpu {device})" in repr(resource)
    for device, resource in enumerate(resources):
        alluvion.set_current_device(device)
        buffer = alluvion.rmm.DeviceBuffer(size=1000)
        assert mr.get_current_device_resource() is resource and resource.pool_handle() != 0
        del buffer
    alluvion.set_current_device(0)
    assert resources[0].pool_handle() != resources[1].pool_handle()


class cudaMemPool_t(int):
    """What cuda-bindings calls a handle."""


def test_a_pool_of_another_owner(sim):
    owner = mr.CudaAsyncMemoryResource()
    view = mr.CudaAsyncViewMemoryResource(cudaMemPool_t(owner.pool_handle()))
    assert view.pool_handle() == owner.pool_handle()
    view.deallocate(view.allocate(100), 100)
    for wrong in (owner.pool_handle(), None, "pool"):
        with pytest.raises(ValueError):
            mr.CudaAsyncViewMemoryResource(wrong)
    with pytest.raises((RuntimeError, ValueError)):
        mr.CudaAsyncViewMemoryResource(cudaMemPool_t(0))


def test_a_pool_that_its_owner_destroyed():
    # The machine calls the use of the handle a hazard, which it is.
    with alluvion.simulated(check=False):
        owner = mr.CudaAsyncMemoryResource()
        view = mr.CudaAsyncViewMemoryResource(cudaMemPool_t(owner.pool_handle()))
        view.deallocate(view.allocate(100), 100)
        DEFAULT_STREAM.synchronize()
        # It destroys its pool at once, because nothing of it is out.
        del owner
        gc.collect()
        for _ in range(2):
            with pytest.raises(MemoryError):
                view.allocate(100)


def test_a_pool_of_managed_memory(sim):
    assert mr.experimental.CudaAsyncManagedMemoryResource is not None
    resource = mr.experimental.CudaAsyncManagedMemoryResource()
    assert resource.pool_handle() != 0
    resource.deallocate(resource.allocate(100), 100)


def test_a_pool_has_its_initial_size(sim):
    calls = []
    cuda = mr.CudaMemoryResource()

    def allocate(nbytes, stream):
        calls.append(nbytes)
        return cuda.allocate(nbytes, stream)

    upstream = mr.CallbackMemoryResource(allocate, cuda.deallocate)
    pool = mr.PoolMemoryResource(upstream, initial_pool_size="1 MiB", maximum_pool_size=4 * MIB)
    assert calls == [MIB] and pool.pool_size() == MIB
    pool.deallocate(pool.allocate(MIB), MIB)
    assert calls == [MIB] and pool.pool_size() == MIB


def test_a_pool_takes_half_of_what_is_free(sim):
    free, _ = mr.available_device_memory()
    first = mr.PoolMemoryResource(mr.CudaMemoryResource())
    assert first.pool_size() == free // 2 // 256 * 256
    free, _ = mr.available_device_memory()
    second = mr.PoolMemoryResource(mr.CudaMemoryResource())
    assert second.pool_size() == free // 2 // 256 * 256


def test_limits_of_a_pool(sim):
    cuda = mr.CudaMemoryResource()
    with pytest.raises(RuntimeError, match="Initial pool size exceeds the maximum pool size"):
        mr.PoolMemoryResource(cuda, 2048, 1024)
    with pytest.raises(MemoryError):
        mr.PoolMemoryResource(cuda, "1 TiB")
    with pytest.raises(MemoryError):
        mr.PoolMemoryResource(cuda, "1 GiB")
    with pytest.raises(ValueError, match="Could not parse"):
        mr.PoolMemoryResource(cuda, "zz")
    with pytest.raises(TypeError):
        mr.PoolMemoryResource(cuda, 1.5)
    with pytest.raises(OverflowError):
        mr.PoolMemoryResource(cuda, -1)
    small = mr.PoolMemoryResource(cuda, 2048, 4096)
    assert small.pool_size() == 2048
    none = mr.PoolMemoryResource(cuda, 0, 1000)
    assert none.pool_size() == 0
    address = none.allocate(1000)
    with pytest.raises(MemoryError):
        none.allocate(256)
    none.deallocate(address, 1000)
    with pytest.raises(MemoryError):
        none.allocate(2000)


def test_an_arena(sim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arena = mr.ArenaMemoryResource(mr.CudaMemoryResource(), arena_size="4 MiB", dump_log_on_failure=True)
    arena.deallocate(arena.allocate(MIB), MIB)
    with pytest.raises(MemoryError):
        arena.allocate(8 * MIB)
    assert "Arena" in (tmp_path / "rmm_arena_memory_dump.log").read_text()
    mr.ArenaMemoryResource(mr.CudaMemoryResource(), 256 * KIB)
    on_pool = mr.ArenaMemoryResource(mr.PoolMemoryResource(mr.CudaMemoryResource(), 2 * MIB, 2 * MIB), 2 * MIB)
    on_pool.deallocate(on_pool.allocate(100), 100)


def test_blocks_of_one_size(sim):
    counted = mr.StatisticsResourceAdaptor(mr.CudaMemoryResource())
    fixed = mr.FixedSizeMemoryResource(counted)
    assert counted.allocation_counts.current_bytes == 128 * MIB
    fixed.deallocate(fixed.allocate(MIB), MIB)
    with pytest.raises(MemoryError):
        fixed.allocate(MIB + 1)
    with pytest.raises(RuntimeError):
        mr.FixedSizeMemoryResource(counted, block_size=0)
    with pytest.raises(RuntimeError):
        mr.FixedSizeMemoryResource(counted, blocks_to_preallocate=0)


def test_bins(sim):
    counted = mr.StatisticsResourceAdaptor(mr.CudaMemoryResource())
    binned = mr.BinningMemoryResource(counted, 10, 12)
    assert counted.allocation_counts.current_count == 3
    assert counted.allocation_counts.current_bytes == 128 * (1024 + 2048 + 4096)
    small = binned.allocate(1500)
    large = binned.allocate(5000)
    assert counted.allocation_counts.current_count == 4
    # The bin comes between: the block goes back to where it came from.
    own = mr.StatisticsResourceAdaptor(mr.CudaMemoryResource())
    assert binned.bin_mrs == []
    binned.add_bin(8192, own)
    assert binned.bin_mrs == [own]
    binned.deallocate(large, 5000)
    assert counted.allocation_counts.current_count == 3
    assert own.allocation_counts.total_count == 0
    large = binned.allocate(5000)
    assert own.allocation_counts.current_bytes == 5000
    binned.deallocate(large, 5000)
    binned.deallocate(small, 1500)
    assert own.allocation_counts.current_bytes == 0


def test_bins_of_one_size_and_small_ones(sim):
    binned = mr.BinningMemoryResource(mr.CudaMemoryResource())
    first, second = (mr.StatisticsResourceAdaptor(mr.CudaMemoryResource()) for _ in range(2))
    binned.add_bin(100, first)
    binned.add_bin(100, second)
    binned.add_bin(allocation_size=100)
    assert binned.bin_mrs == [first, second]
    binned.deallocate(binned.allocate(50), 50)
    assert (first.allocation_counts.total_count, second.allocation_counts.total_count) == (1, 0)
    with pytest.raises(ValueError):
        binned.add_bin(0, first)
    with pytest.raises(TypeError):
        binned.add_bin(100, "bin")
    with pytest.raises(OverflowError):
        mr.BinningMemoryResource(mr.CudaMemoryResource(), 200, 2)
    with pytest.raises(RuntimeError):
        mr.BinningMemoryResource(mr.CudaMemoryResource(), 12, 10)
    mr.BinningMemoryResource(mr.CudaMemoryResource(), 12)


def test_a_limit(sim):
    limited = mr.LimitingResourceAdaptor(mr.CudaMemoryResource(), allocation_limit=MIB)
    assert (limited.get_allocation_limit(), limited.get_allocated_bytes()) == (MIB, 0)
    address = limited.allocate(1)
    assert limited.get_allocated_bytes() == 256
    with pytest.raises(MemoryError, match=rf"requested {MIB} bytes, allocated 256, limit {MIB}") as refused:
        limited.allocate(MIB)
    error = refused.value
    assert (error.requested, error.limit, error.layer) == (MIB, MIB, "Limiting") and "256" in error.report
    limited.deallocate(address, 1)
    assert limited.get_allocated_bytes() == 0
    with pytest.raises(TypeError):
        mr.LimitingResourceAdaptor(mr.CudaMemoryResource())
    assert mr.LimitingResourceAdaptor(mr.CudaMemoryResource(), "1 KiB").get_allocation_limit() == KIB


def test_tracking(sim, capfd):
    from alluvion import rmm

    cuda = mr.CudaMemoryResource()
    tracking = mr.TrackingResourceAdaptor(cuda)
    assert tracking.get_outstanding_allocations_str() == "" and tracking.get_allocated_bytes() == 0
    addresses = [tracking.allocate(100), tracking.allocate(200)]
    assert tracking.get_allocated_bytes() == 300
    assert tracking.get_outstanding_allocations_str() == f"{addresses[0]:#x}: 100 B\n{addresses[1]:#x}: 200 B\n"
    tracking.log_outstanding_allocations()
    rmm.set_logging_level(rmm.level_enum.debug)
    try:
        tracking.log_outstanding_allocations()
    finally:
        rmm.set_logging_level(rmm.level_enum.info)
    assert capfd.readouterr().err.count("Outstanding Allocations: ") == 1
    for address, size in zip(addresses, (100, 200)):
        tracking.deallocate(address, size)
    foreign = cuda.allocate(1000)
    tracking.deallocate(foreign, 1000)
    assert "[error ] Deallocating a pointer that was not tracked" in capfd.readouterr().err
    wrong = tracking.allocate(1000)
    tracking.deallocate(wrong, 500)
    assert "Alloc bytes (1000) and Dealloc bytes (500) do not match" in capfd.readouterr().err
    assert tracking.get_allocated_bytes() == 0 and sim.leaks() == []
    left = tracking.allocate(100)
    del tracking
    gc.collect()
    assert capfd.readouterr().err == ""
    cuda.deallocate(left, 100)


def test_call_stacks(sim):
    tracking = mr.TrackingResourceAdaptor(mr.CudaMemoryResource(), capture_stacks=True)
    address = tracking.allocate(100)
    text = tracking.get_outstanding_allocations_str()
    assert text.startswith(f"{address:#x}: 100 B : callstack:\n#0 in test_call_stacks ({__file__}:")
    assert "\n#1 in pytest_pyfunc_call (" in text
    # No call of the package's own. Its name alone may be part of any path: of a clone, of an environment within it.
    assert str(Path(alluvion.__file__).parent) not in text and not re.search(r" in \S*alluvion", text)
    tracking.deallocate(address, 100)


def test_call_stacks_are_those_of_the_line_that_asks(sim):
    """Whether the interpreter is let go on the way, and whatever the class is that asks."""
    for upstream in (mr.CudaMemoryResource(), mr.PoolMemoryResource(mr.CudaMemoryResource(), "1 MiB")):
        tracking = mr.TrackingResourceAdaptor(mr.LimitingResourceAdaptor(upstream, MIB), capture_stacks=True)

        def ask():
            return DeviceBuffer(size=100, mr=tracking)

        buffer = ask()
        lines = tracking.get_outstanding_allocations_str().splitlines()
        assert lines[1].startswith("#0 in test_call_stacks_are_those_of_the_line_that_asks.<locals>.ask (")
        assert lines[1].endswith(f"{__file__}:{ask.__code__.co_firstlineno + 1})")
        assert lines[2].startswith("#1 in test_call_stacks_are_those_of_the_line_that_asks (")
        del buffer


def test_prefetch(sim):
    for upstream in (mr.ManagedMemoryResource(), mr.CudaMemoryResource()):
        prefetched = mr.PrefetchResourceAdaptor(upstream)
        prefetched.deallocate(prefetched.allocate(MIB), MIB)


class Recorded:
    """Two functions over a source, and what they were called with."""

    def __init__(self):
        self.cuda = mr.CudaMemoryResource()
        self.calls = []

    def allocate(self, nbytes, stream):
        self.calls.append(("allocate", nbytes, stream))
        return self.cuda.allocate(nbytes, stream)

    def deallocate(self, ptr, nbytes, stream):
        self.calls.append(("deallocate", nbytes, stream))
        self.cuda.deallocate(ptr, nbytes, stream)


def test_a_resource_in_python(sim):
    recorded = Recorded()
    resource = mr.CallbackMemoryResource(recorded.allocate, recorded.deallocate)
    address = resource.allocate(77)
    resource.deallocate(address, 77)
    assert [call[:2] for call in recorded.calls] == [("allocate", 77), ("deallocate", 77)]
    assert all(stream.is_default() for _, _, stream in recorded.calls)
    mr.CallbackMemoryResource(1, None)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (MemoryError("no more"), MemoryError),
        (ValueError("no more"), RuntimeError),
        (KeyboardInterrupt("no more"), RuntimeError),
        (SystemExit("no more"), RuntimeError),
    ],
)
@pytest.mark.parametrize("layer", [lambda r: r, lambda r: mr.PoolMemoryResource(r, 0), lambda r: mr.StatisticsResourceAdaptor(r)])
def test_exceptions_of_functions(sim, raised, expected, layer):
    def allocate(nbytes, stream):
        raise raised

    resource = layer(mr.CallbackMemoryResource(allocate, lambda *_: None))
    with pytest.raises(expected, match="no more") as failed:
        resource.allocate(100)
    assert failed.value.__cause__ is raised
    # Nothing is left of it: the next failure has its own reason.
    with pytest.raises(MemoryError) as failed:
        mr.CudaMemoryResource().allocate(1 << 50)
    assert failed.value.__cause__ is None


@pytest.mark.parametrize("answer", [None, "x", -1, 1 << 70])
def test_answers_that_are_no_address(sim, answer):
    resource = mr.CallbackMemoryResource(lambda nbytes, stream: answer, lambda *_: None)
    with pytest.raises(RuntimeError):
        resource.allocate(100)


def test_exceptions_of_a_function_that_frees(sim, monkeypatch):
    seen = []
    # What the hook is given has the frames, and the collector does not look into it.
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: seen.append(type(unraisable.exc_value)))
    cuda = mr.CudaMemoryResource()

    def deallocate(ptr, nbytes, stream):
        cuda.deallocate(ptr, nbytes, stream)
        raise ValueError("not so")

    resource = mr.CallbackMemoryResource(cuda.allocate, deallocate)
    resource.deallocate(resource.allocate(100), 100)
    assert seen == [ValueError]
    assert resource.allocate(0) == 0


def test_a_failure_callback_is_asked_as_long_as_it_says_so(sim):
    asked = []

    def callback(nbytes):
        asked.append(nbytes)
        return len(asked) < 6

    resource = mr.FailureCallbackResourceAdaptor(mr.CudaMemoryResource(), callback)
    with pytest.raises(MemoryError):
        resource.allocate(int(1e11))
    assert asked == [int(1e11)] * 6
    for answer in (False, None, 0):
        quiet = mr.FailureCallbackResourceAdaptor(mr.CudaMemoryResource(), lambda nbytes: answer)
        with pytest.raises(MemoryError):
            quiet.allocate(int(1e11))


def test_a_failure_callback_may_free_and_allocate(sim):
    limited = mr.LimitingResourceAdaptor(mr.CudaMemoryResource(), MIB)
    kept = [limited.allocate(MIB)]
    inner = []

    def callback(nbytes):
        with pytest.raises(MemoryError):
            resource.allocate(MIB)
        inner.append(1)
        if not kept:
            return False
        limited.deallocate(kept.pop(), MIB)
        return True

    resource = mr.FailureCallbackResourceAdaptor(limited, callback)
    resource.deallocate(resource.allocate(MIB), MIB)
    assert inner == [1]


def test_an_exception_of_a_failure_callback(sim):
    def callback(nbytes):
        raise KeyError("my text")

    resource = mr.FailureCallbackResourceAdaptor(mr.CudaMemoryResource(), callback)
    with pytest.raises(RuntimeError, match="my text") as failed:
        resource.allocate(int(1e11))
    assert type(failed.value.__cause__) is KeyError


def test_only_a_lack_of_memory_is_asked_about(sim):
    def allocate(nbytes, stream):
        raise ValueError("broken")

    asked = []
    broken = mr.CallbackMemoryResource(allocate, lambda *_: None)
    resource = mr.FailureCallbackResourceAdaptor(broken, lambda nbytes: asked.append(nbytes))
    with pytest.raises(RuntimeError, match="broken"):
        resource.allocate(100)
    assert asked == []


def test_the_current_resource(sim):
    first = mr.get_current_device_resource()
    assert type(first) is mr.CudaMemoryResource and mr.get_per_device_resource(0) is first
    other = mr.CudaMemoryResource()
    assert mr.set_per_device_resource(1, other) is None
    assert mr.get_per_device_resource(1) is not first
    for wrong in (None, 1, "mr", mr.CudaMemoryResource):
        with pytest.raises(TypeError):
            mr.set_current_device_resource(wrong)
        with pytest.raises(TypeError):
            mr.set_per_device_resource(0, wrong)
    with pytest.raises(TypeError):
        mr.get_per_device_resource(None)
    assert mr.get_current_device_resource() is first
    assert mr.is_initialized() and len(mr.available_device_memory()) == 2


def test_using_a_resource(sim):
    before = mr.get_current_device_resource()
    other = mr.CudaMemoryResource()
    with pytest.raises(KeyError), mr.using(other) as given:
        assert given is other and mr.get_current_device_resource() is other
        raise KeyError
    assert mr.get_current_device_resource() is before
    for wrong in (None, "pool | cuda"):
        with pytest.raises(TypeError, match="expected DeviceMemoryResource"), mr.using(wrong):
            raise AssertionError


def test_using_a_resource_in_one_thread(sim):
    before, other, seen = mr.get_current_device_resource(), mr.StatisticsResourceAdaptor(mr.CudaMemoryResource()), []
    with pytest.raises(KeyError), mr.using(other, thread=True) as given:
        assert given is other and mr.get_current_device_resource() is other
        thread = threading.Thread(target=lambda: seen.append(mr.get_current_device_resource()))
        thread.start()
        thread.join()
        DeviceBuffer(size=100)
        raise KeyError
    assert mr.get_current_device_resource() is before and seen == [before]
    assert other.allocation_counts.total_count == 1


def test_one_scope_that_threads_enter_at_the_same_time(sim):
    scope, failures = alluvion.using(mr.ManagedMemoryResource(), thread=True), []
    before, meet = mr.get_current_device_resource(), threading.Barrier(2)

    def work(own):
        try:
            with mr.using(own, thread=True):
                meet.wait()
                with scope:
                    meet.wait()
                    assert mr.get_current_device_resource() not in (own, before)
                meet.wait()
                assert mr.get_current_device_resource() is own
        except BaseException as error:
            failures.append(error)
            meet.abort()

    threads = [threading.Thread(target=work, args=(mr.CudaMemoryResource(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_deprecated_names(sim):
    with pytest.warns(FutureWarning):
        assert mr.get_current_device_resource_type() is mr.CudaMemoryResource
    with pytest.warns(FutureWarning):
        assert mr.get_per_device_resource_type(1) is mr.CudaMemoryResource
    with pytest.raises(AttributeError):
        mr.nothing


def test_a_class_may_pass_functions_of_its_own(sim):
    """Its `__init__` takes other arguments than that of the class which it derives from."""
    class Counted(mr.CallbackMemoryResource):
        def __init__(self, most):
            self.cuda, self.left = mr.CudaMemoryResource(), most
            super().__init__(self.take, self.give)

        def take(self, nbytes, stream):
            if nbytes > self.left:
                raise MemoryError
            self.left -= nbytes
            return self.cuda.allocate(nbytes, stream)

        def give(self, ptr, nbytes, stream):
            self.left += nbytes
            self.cuda.deallocate(ptr, nbytes, stream)

    counted = Counted(most=1000)
    buffer = DeviceBuffer(size=600, mr=counted)
    assert counted.left == 400
    with pytest.raises(MemoryError):
        DeviceBuffer(size=600, mr=counted)
    del buffer
    assert counted.left == 1000
    with pytest.raises(RuntimeError, match="has its functions"):
        mr.CallbackMemoryResource.__init__(counted, counted.take, counted.give)
    with pytest.raises(TypeError, match="allocate_func"):
        mr.CallbackMemoryResource()
