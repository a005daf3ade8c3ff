"""Warp, nvmath and Numba allocate from a stack. Warp and nvmath are not to be had without a GPU: this is what the doors need of them."""

import gc
import importlib
import sys
import types

import pytest

import alluvion
from alluvion.rmm.pylibrmm.stream import Stream


class WarpStream:
    def __init__(self, device):
        self.device, self.of, self.waited_for, self.is_capturing = device, Stream(), [], False

    def __cuda_stream__(self):
        return self.of.__cuda_stream__()

    def wait_stream(self, other):
        self.waited_for.append(other)


@pytest.fixture
def warp(sim, monkeypatch):
    """A module with two devices, on each of which one stream is current."""
    fake = types.ModuleType("warp")
    fake.MemoryKind = types.SimpleNamespace(CUDA_DEVICE=3)
    fake.devices = []
    for ordinal in range(2):
        alluvion.set_current_device(ordinal)
        device = types.SimpleNamespace(is_capturing=False, allocator=None)
        device.stream = WarpStream(device)
        fake.devices.append(device)
    alluvion.set_current_device(0)
    fake.get_cuda_device = lambda ordinal: fake.devices[ordinal]
    fake.init = lambda: None

    def set_cuda_allocator(allocator):
        for device in fake.devices:
            device.allocator = allocator

    fake.set_cuda_allocator = set_cuda_allocator
    fake.set_device_allocator = lambda device, allocator: setattr(fake.devices[device], "allocator", allocator)
    monkeypatch.setitem(sys.modules, "warp", fake)
    return fake


def test_an_array_of_warp_comes_from_the_stack_of_its_device(warp):
    import alluvion.warp

    stacks = alluvion.per_device("stats | pool | cuda")
    allocator = alluvion.warp.install(stacks)
    assert all(device.allocator is allocator for device in warp.devices)
    assert allocator.memory_kind == 3 and allocator.deallocate_requires_context_guard is False
    first = allocator.allocate(1000)
    alluvion.set_current_device(1)
    second = allocator.allocate(2000)
    alluvion.set_current_device(0)
    assert [stacks[device].stats().current_bytes for device in (0, 1)] == [1000, 2000]
    assert allocator.live_blocks() == 2
    allocator.deallocate(second, 2000)
    allocator.deallocate(first, 1000)
    assert [stacks[device].stats().current_bytes for device in (0, 1)] == [0, 0]
    assert allocator.live_blocks() == 0
    warp.set_cuda_allocator(None)


def test_an_array_of_warp_goes_behind_the_stream_that_is_current_then(warp):
    import alluvion.warp

    stack = alluvion.resource("stats | pool | cuda")
    allocator = alluvion.warp.Allocator(stack)
    device = warp.devices[0]
    made_on = device.stream
    blocks = [allocator.allocate(4096) for _ in range(3)]
    allocator.deallocate(blocks.pop(), 4096)
    assert made_on.waited_for == []
    device.stream = other = WarpStream(device)
    allocator.deallocate(blocks.pop(), 4096)
    assert made_on.waited_for == [other]
    device.is_capturing = True
    allocator.deallocate(blocks.pop(), 4096)
    assert made_on.waited_for == [other]
    assert stack.stats().current_bytes == 0


def test_an_array_of_warp_waits_for_nothing_while_its_own_stream_is_captured(warp):
    import alluvion.warp

    allocator = alluvion.warp.Allocator(alluvion.resource("pool | cuda"))
    device = warp.devices[0]
    made_on = device.stream
    block = allocator.allocate(4096)
    device.stream = WarpStream(device)
    # By somebody else: the device does not know.
    made_on.is_capturing = True
    allocator.deallocate(block, 4096)
    assert made_on.waited_for == [] and allocator.live_blocks() == 0


def test_an_array_of_warp_is_not_lost_when_the_wait_fails(warp):
    import alluvion.warp

    stack = alluvion.resource("stats | pool | cuda")
    allocator = alluvion.warp.Allocator(stack)
    device = warp.devices[0]
    made_on = device.stream
    block = allocator.allocate(4096)
    device.stream = other = WarpStream(device)

    def fail(stream):
        raise RuntimeError("no wait")

    made_on.wait_stream, wait = fail, made_on.wait_stream
    with pytest.raises(RuntimeError, match="no wait"):
        allocator.deallocate(block, 4096)
    assert allocator.live_blocks() == 1 and stack.stats().current_bytes == 4096
    made_on.wait_stream = wait
    allocator.deallocate(block, 4096)
    assert made_on.waited_for == [other]
    assert allocator.live_blocks() == 0 and stack.stats().current_bytes == 0


def test_warp_gets_no_bytes_and_an_error_that_says_why(warp):
    import alluvion.warp

    allocator = alluvion.warp.Allocator(alluvion.resource("limiting(1MiB) | cuda"))
    assert allocator.allocate(0) == 0
    allocator.deallocate(0, 0)
    with pytest.raises(MemoryError, match="Limiting"):
        allocator.allocate(2 << 20)
    assert allocator.live_blocks() == 0
    missing = alluvion.warp.Allocator({1: alluvion.resource("cuda")})
    with pytest.raises(ValueError, match=r"for the devices \[1\], and none for device 0"):
        missing.allocate(100)


def test_warp_takes_what_is_current_where_nothing_is_named(warp):
    import alluvion.warp

    stack = alluvion.resource("stats | cuda")
    allocator = alluvion.warp.install(device=0)
    assert warp.devices[0].allocator is allocator and warp.devices[1].allocator is None
    with alluvion.using(stack):
        block = allocator.allocate(1000)
    assert stack.stats().current_bytes == 1000
    # Not to what is current by now.
    allocator.deallocate(block, 1000)
    assert stack.stats().current_bytes == 0


@pytest.fixture
def nvmath(sim, monkeypatch):
    import weakref

    class MemoryPointer:
        def __init__(self, device_ptr, size, finalizer):
            self.device_ptr, self.size, self.freed = device_ptr, size, weakref.finalize(self, finalizer)

    fake, memory = types.ModuleType("nvmath"), types.ModuleType("nvmath.memory")
    memory.MemoryPointer = MemoryPointer
    fake.memory = memory
    monkeypatch.setitem(sys.modules, "nvmath", fake)
    monkeypatch.setitem(sys.modules, "nvmath.memory", memory)
    return fake


class CoreStream:
    def __init__(self, device=0):
        self.device, self.of = types.SimpleNamespace(device_id=device), Stream()

    def __cuda_stream__(self):
        return self.of.__cuda_stream__()


def test_a_workspace_of_nvmath_comes_from_a_stack_and_goes_with_its_pointer(nvmath):
    import alluvion.nvmath

    stack = alluvion.resource("stats | pool | cuda")
    allocator = alluvion.nvmath.Allocator(stack)
    pointer = allocator.memalloc_async(5000, CoreStream())
    gc.collect()
    assert pointer.device_ptr % 256 == 0 and pointer.size == 5000
    assert stack.stats().current_bytes == 5000
    del pointer
    gc.collect()
    assert stack.stats().current_bytes == 0
    with pytest.raises(ValueError, match="none for device 1"):
        alluvion.nvmath.Allocator({0: stack}).memalloc_async(1, CoreStream(device=1))
    with pytest.raises(MemoryError):
        allocator.memalloc_async(1 << 40, CoreStream())


def test_numba_finds_its_manager_by_the_name_of_the_module(sim):
    pytest.importorskip("numba.cuda")
    module = importlib.import_module("alluvion.numba")
    assert module._numba_memory_manager is module.NumbaManager


class CupyStream:
    def __init__(self, ptr=None):
        self.of = None if ptr == 0 else Stream()
        self.ptr = 0 if ptr == 0 else self.of.__cuda_stream__()[1]


@pytest.fixture
def cupy(sim, monkeypatch):
    """A module that records what the allocator calls."""
    fake = types.ModuleType("cupy")
    fake.current, fake.allocator = CupyStream(0), None

    class UnownedMemory:
        def __init__(self, ptr, size, owner, device_id):
            self.ptr, self.size, self.owner, self.device_id = ptr, size, owner, device_id

    fake.cuda = types.SimpleNamespace(
        get_current_stream=lambda: fake.current,
        UnownedMemory=UnownedMemory,
        MemoryPointer=lambda mem, offset: types.SimpleNamespace(mem=mem, offset=offset),
        set_allocator=lambda allocator: setattr(fake, "allocator", allocator),
    )
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


@pytest.mark.parametrize("ptr", [0, None])
def test_an_array_of_cupy_comes_from_the_stack_and_goes_with_its_pointer(cupy, ptr):
    import alluvion.cupy

    cupy.current = CupyStream(ptr)
    stack = alluvion.resource("stats | pool | cuda")
    allocator = alluvion.cupy.install(stack)
    assert cupy.allocator is allocator
    pointers = [allocator(1000), allocator(0)]
    assert [pointer.mem.size for pointer in pointers] == [1000, 0]
    assert pointers[0].mem.ptr % 256 == 0 and pointers[1].mem.ptr == 0
    assert pointers[0].mem.device_id == 0 and pointers[0].offset == 0
    assert stack.stats().current_bytes == 1000
    del pointers
    assert stack.stats().current_bytes == 0
    # The same block again, without a wait.
    first = allocator(4096).mem.ptr
    assert all(allocator(4096).mem.ptr == first for _ in range(10))


def test_cupy_gets_the_stack_of_its_device_or_an_error(cupy):
    import alluvion.cupy

    stacks = alluvion.per_device("stats | cuda")
    each, one, current = alluvion.cupy.Allocator(stacks), alluvion.cupy.Allocator(stacks[0]), alluvion.cupy.Allocator()
    alluvion.set_current_device(1)
    try:
        pointer = each(2000)
        assert pointer.mem.device_id == 1 and stacks[1].stats().current_bytes == 2000
        with pytest.raises(alluvion.errors.DeviceMismatch, match="gpu 0 was given something of gpu 1"):
            one(100)
        with pytest.raises(ValueError, match="there is no stack for device 1"):
            alluvion.cupy.Allocator({0: stacks[0]})(100)
        with alluvion.using(stacks[1]):
            second = current(100)
        assert stacks[1].stats().current_bytes == 2100
    finally:
        alluvion.set_current_device(0)
    del pointer, second
    assert stacks[1].stats().current_bytes == 0
    with pytest.raises(MemoryError, match="Cuda of gpu 0 refused"):
        one(1 << 40)
    for wrong in ("cuda", 7, {0: "cuda"}):
        with pytest.raises(TypeError):
            alluvion.cupy.Allocator(wrong)


def test_an_allocator_of_cupy_is_collected_with_what_it_holds(cupy):
    import weakref

    import alluvion.cupy

    class Holder:
        pass

    holder = Holder()
    stack = alluvion.resource("cuda", on_out_of_memory=lambda error: bool(holder) and False)
    holder.allocator = alluvion.cupy.Allocator(stack)
    gone = weakref.ref(holder)
    del holder, stack
    gc.collect()
    assert gone() is None
