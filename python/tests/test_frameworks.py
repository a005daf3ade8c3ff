"""What CuPy, Numba and PyTorch are called with. The genuine ones need a GPU: `tests/gpu`."""

import gc
import subprocess
import sys
import types
import weakref

import pytest

import alluvion
import alluvion.rmm


class FakeStream:
    """What CuPy has as a stream, over one of ours."""

    __module__ = "cupy.cuda.stream"

    def __init__(self, ptr=None):
        self.owned = None
        if ptr is None:
            self.owned = alluvion.rmm.pylibrmm.stream.Stream()
            ptr = self.owned.__cuda_stream__()[1]
        self.ptr = ptr

    def __cuda_stream__(self):
        return (0, self.ptr)


@pytest.fixture
def cupy(sim, monkeypatch):
    """A module that records what the allocator calls."""
    fake = types.ModuleType("cupy")
    fake.cuda = types.SimpleNamespace()
    fake.current = FakeStream(0)
    fake.cuda.get_current_stream = lambda: fake.current
    fake.cuda.UnownedMemory = lambda ptr, size, owner, device_id=-1: types.SimpleNamespace(
        ptr=ptr, size=size, _owner=owner, device_id=device_id
    )
    fake.cuda.MemoryPointer = lambda mem, offset: types.SimpleNamespace(mem=mem, offset=offset)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


@pytest.fixture
def allocator():
    from alluvion.rmm.allocators.cupy import rmm_cupy_allocator

    return rmm_cupy_allocator


def test_cupy_gets_a_buffer_and_its_device(cupy, allocator):
    pointer = allocator(1000)
    assert pointer.offset == 0
    buffer = pointer.mem._owner
    assert type(buffer) is alluvion.rmm.DeviceBuffer
    assert (pointer.mem.ptr, pointer.mem.size, pointer.mem.device_id) == (buffer.ptr, 1000, 0)
    empty = allocator(0)
    assert (empty.mem.ptr, empty.mem.size, empty.mem.device_id) == (0, 0, 0)
    alluvion.set_current_device(1)
    try:
        assert allocator(10).mem.device_id == 1
    finally:
        alluvion.set_current_device(0)


def test_cupy_memory_is_on_cupys_stream_and_keeps_it(cupy, allocator, sim):
    cupy.current = FakeStream()
    alive = weakref.ref(cupy.current)
    pointers = [allocator(4096) for _ in range(3)]
    cupy.current = FakeStream(0)
    gc.collect()
    assert alive() is not None
    del pointers
    gc.collect()
    assert alive() is None
    assert sim.hazards() == []


def test_one_stream_of_cupy_is_one_stream_here(cupy, allocator, sim):
    pool = alluvion.rmm.mr.PoolMemoryResource(alluvion.rmm.mr.CudaMemoryResource(), "1 MiB", "1 MiB")
    alluvion.set_current_resource(pool)
    cupy.current = FakeStream()
    first = allocator(4096).mem.ptr
    # The same block again, without a wait: it is known to be the same stream.
    calls = sim.driver_calls
    assert all(allocator(4096).mem.ptr == first for _ in range(10))
    # Each time: which device is current, and which stream it is, at the allocation and at the free; an event at the free.
    assert sim.driver_calls - calls <= 12 * 10


def test_without_cupy_the_call_says_so(allocator, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ModuleNotFoundError, match="No module named 'cupy'"):
        allocator(10)


def test_torch_gets_our_file_and_our_names(monkeypatch):
    made = []

    class Inner:
        def __init__(self):
            self.hooks = {}

        def set_reset_fn(self, address):
            self.hooks["reset"] = address

        def set_record_stream_fn(self, address):
            self.hooks["record_stream"] = address

    class CUDAPluggableAllocator:
        def __init__(self, path, allocate, free):
            made.append((path, allocate, free))
            self.inner = Inner()

        def allocator(self):
            return self.inner

    for name in ("torch", "torch.cuda", "torch.cuda.memory"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["torch.cuda.memory"].CUDAPluggableAllocator = CUDAPluggableAllocator
    monkeypatch.delitem(sys.modules, "alluvion.rmm.allocators.torch", raising=False)
    from alluvion.rmm.allocators import torch as ours

    first = ours.rmm_torch_allocator
    assert ours.rmm_torch_allocator is first
    assert set(first.inner.hooks) == {"reset", "record_stream"} and all(first.inner.hooks.values())
    assert ours.rmm_torch_pool_allocator.inner.hooks == {}
    file = alluvion._alluvion.__file__
    assert made == [
        (file, "alluvion_torch_allocate_or_throw", "alluvion_torch_deallocate"),
        (file, "alluvion_torch_allocate", "alluvion_torch_deallocate"),
    ]
    monkeypatch.delitem(sys.modules, "alluvion.rmm.allocators.torch")


def test_without_torch_there_is_none():
    program = """
import sys
sys.modules["torch"] = None
from alluvion.rmm.allocators.torch import rmm_torch_allocator
import alluvion.rmm.allocators.torch as module
assert rmm_torch_allocator is None and module.rmm_torch_pool_allocator is None
try:
    module.nothing
except AttributeError:
    print("done")
"""
    import os

    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(alluvion.__file__))}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)
    assert (ended.stdout, ended.stderr) == ("done\n", "")


def test_the_package_of_allocators_is_empty():
    import alluvion.rmm.allocators as package

    # pytest puts names with an `@` into what it rewrites: where the package is installed, its modules too.
    assert [name for name in vars(package) if name[0] not in "_@" and name not in ("cupy", "numba", "torch")] == []


@pytest.fixture
def numba_manager(sim):
    try:
        from alluvion.rmm.allocators import numba
    except Exception as missing:
        pytest.skip(f"Numba's part for CUDA is not here: {missing}")
    return numba


def test_numba_gets_pointers_that_free(numba_manager):
    assert numba_manager._numba_memory_manager is numba_manager.RMMNumbaManager
    manager = numba_manager.RMMNumbaManager(context=None)
    manager.initialize()
    manager.initialize()
    assert manager.interface_version == 1
    counted = alluvion.rmm.mr.StatisticsResourceAdaptor(alluvion.rmm.mr.CudaMemoryResource())
    alluvion.set_current_resource(counted)
    pointer = manager.memalloc(1000)
    assert list(manager.allocations) == [int(pointer.device_pointer)]
    assert counted.allocation_counts.current_bytes == 1000
    pointer.free()
    assert not manager.allocations and counted.allocation_counts.current_bytes == 0
    empties = [manager.memalloc(0) for _ in range(3)]
    assert [int(empty.device_pointer) for empty in empties] == [0, 0, 0]
    assert len(manager.allocations) == 3
    manager.allocations.clear()
    for empty in empties:
        empty.free()


def test_the_port_of_numba_for_metax_has_a_manager_of_its_own(sim, monkeypatch):
    """MetaX's package is not to be had: this is what the manager needs of it."""

    class Manager:
        def __init__(self, context=None):
            self.context, self.allocations = context, {}

    cuda = types.ModuleType("numbax.cuda")
    cuda.HostOnlyCUDAMemoryManager, cuda.IpcHandle = Manager, None
    cuda.MemoryInfo = lambda free, total: (free, total)
    cuda.MemoryPointer = lambda context, pointer, size, finalizer: types.SimpleNamespace(size=size, finalizer=finalizer)
    for name in ("numbax", "numbax.cuda.cudadrv", "numbax.cuda.cudadrv.driver"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "numbax.cuda", cuda)
    monkeypatch.delitem(sys.modules, "alluvion.rmm.allocators.numba", raising=False)
    from importlib import import_module

    module = import_module("alluvion.rmm.allocators.numba")
    try:
        manager = module.RMMNumbaManager(context=None)
        assert isinstance(manager, Manager) and manager.get_memory_info()[1] == alluvion.memory_info()[1]
        pointer = manager.memalloc(1000)
        assert pointer.size == 1000 and len(manager.allocations) == 1
        pointer.finalizer()
        assert manager.allocations == {}
    finally:
        # The next one that asks has Numba's own.
        sys.modules.pop("alluvion.rmm.allocators.numba", None)
        vars(alluvion.rmm.allocators).pop("numba", None)


def test_numba_is_told_the_memory(numba_manager):
    manager = numba_manager.RMMNumbaManager(context=None)
    assert tuple(manager.get_memory_info()) == alluvion.memory_info()


@pytest.fixture
def core(sim):
    return pytest.importorskip("cuda.core")


def test_cuda_core_has_a_resource_of_ours(core):
    import alluvion.cuda_core

    resource = alluvion.cuda_core.MemoryResource()
    assert isinstance(resource, core.MemoryResource)
    assert alluvion.cuda_core.MemoryResource is type(resource)
    assert (resource.is_device_accessible, resource.is_host_accessible, resource.is_managed) == (True, False, False)
    assert resource.device_id == 0
    managed = alluvion.cuda_core.MemoryResource(alluvion.rmm.mr.ManagedMemoryResource())
    assert (managed.is_host_accessible, managed.is_managed) == (True, True)
    pool = alluvion.rmm.mr.PoolMemoryResource(alluvion.rmm.mr.PinnedHostMemoryResource(), "1 MiB")
    pinned = alluvion.cuda_core.MemoryResource(pool)
    assert (pinned.is_host_accessible, pinned.is_managed) == (True, False)


def test_without_cuda_core_the_module_is_there(monkeypatch):
    import alluvion.cuda_core

    monkeypatch.delitem(vars(alluvion.cuda_core), "MemoryResource", raising=False)
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(ImportError):
        alluvion.cuda_core.MemoryResource()
