"""Sleep by the interfaces of others: `torch_memory_saver`, and vLLM's allocator. Blocks of the simulated machine stand for tensors."""

import importlib
import os
import subprocess
import sys
import types

import pytest

import alluvion
import alluvion.torch
import alluvion.torch_memory_saver as saver
import alluvion.vllm
from alluvion import rmm
from alluvion._per_device import PerDevice
from alluvion.torch import _torch

MIB = 1 << 20


class Torch:
    """What the adapters call of PyTorch."""

    class cuda:
        synchronize = staticmethod(lambda device: None)
        empty_cache = staticmethod(lambda: None)


@pytest.fixture
def stack(sim, monkeypatch):
    made = alluvion.resource("stats | pool(checked=true) | mapped", 0)
    monkeypatch.setattr(_torch, "genuine", lambda: Torch)
    monkeypatch.setattr(alluvion.torch, "_stacks", PerDevice({0: made}))
    with alluvion.using(made):
        yield made


def buffer(value, nbytes=4 * MIB):
    return rmm.DeviceBuffer.to_device(bytes([value]) * nbytes)


def reserved(stack):
    stack.trim()
    return stack.pool_status()["reserved_bytes"] // MIB


def test_a_paused_region_has_no_memory_and_keeps_its_address_and_contents(stack):
    pauses = saver.TorchMemorySaver()
    with pauses.region("weights", enable_cpu_backup=True):
        weights = buffer(1)
    with pauses.region("kv_cache"):
        cache = buffer(2)
    other, address = buffer(3), weights.ptr
    assert reserved(stack) == 12
    pauses.pause("kv_cache")
    assert reserved(stack) == 8
    pauses.pause("weights")
    pauses.pause("weights")
    assert reserved(stack) == 4 and other.tobytes() == b"\3" * (4 * MIB)
    pauses.resume()
    pauses.resume("weights")
    assert reserved(stack) == 12 and weights.ptr == address
    assert weights.tobytes() == b"\1" * (4 * MIB) and cache.nbytes == 4 * MIB
    pauses.pause()
    assert reserved(stack) == 4
    # Freed while they sleep.
    del weights, cache
    pauses.resume()
    assert reserved(stack) == 4


def test_one_tag_has_what_is_kept_and_what_is_not(stack):
    pauses = saver.TorchMemorySaver()
    with alluvion.tag("request"), pauses.region("both", enable_cpu_backup=True):
        kept = buffer(5)
        with pauses.disable():
            outside = buffer(6)
        with alluvion.tag("inner"):
            inner = buffer(7)
    with pauses.region("both"):
        dropped = buffer(8)
    pauses.pause("both")
    assert reserved(stack) == 4 and outside.tobytes()[0] == 6
    pauses.resume("both")
    assert kept.tobytes()[-1] == 5 and inner.tobytes()[-1] == 7 and dropped.nbytes == 4 * MIB


class Tensor:
    """A tensor over a block, with what `get_cpu_backup` asks of it."""

    device = types.SimpleNamespace(type="cuda", index=0)
    shape, dtype = (2, 2 * MIB), "uint8"

    def __init__(self, block):
        self.data_ptr, self.numel, self.element_size = (lambda: block.ptr), (lambda: block.size), (lambda: 1)

    def is_contiguous(self):
        return True


def test_what_is_kept_is_read_while_it_is_paused(stack, monkeypatch):
    class HostTensor:
        def __init__(self, contents, dtype):
            self.contents, self.dtype = contents, dtype

        def view(self, shape):
            self.shape = shape
            return self

    monkeypatch.setattr(Torch, "frombuffer", HostTensor, raising=False)
    pauses = saver.TorchMemorySaver()
    with pauses.region("weights", enable_cpu_backup=True):
        weights = buffer(1)
    with pauses.region("kv_cache"):
        cache = buffer(2)
    assert pauses.get_cpu_backup(Tensor(weights)) is None
    pauses.pause()
    kept = pauses.get_cpu_backup(Tensor(weights), zero_copy=True)
    assert (bytes(kept.contents), kept.dtype, kept.shape) == (b"\1" * (4 * MIB), "uint8", (2, 2 * MIB))
    assert pauses.get_cpu_backup(Tensor(cache)) is None
    longer = Tensor(weights)
    longer.numel = lambda: 4 * MIB + 1
    assert pauses.get_cpu_backup(longer) is None
    pauses.resume()
    assert pauses.get_cpu_backup(Tensor(weights)) is None
    host = Tensor(weights)
    host.device = types.SimpleNamespace(type="cpu", index=None)
    with pytest.raises(ValueError, match="contiguous tensor on a GPU"):
        pauses.get_cpu_backup(host)


def test_what_cannot_be_is_said(stack):
    pauses = saver.TorchMemorySaver()
    with pytest.warns(RuntimeWarning, match="no region with the tag 'wieghts'"):
        pauses.pause("wieghts")
    with pytest.raises(ValueError, match="contents are kept once"):
        pauses.region("weights", enable_cpu_backup=True, enable_disk_backup=True)
    with pytest.raises(ValueError, match='cpu_backup_backend is "pinned" or "mmap"'):
        pauses.region("weights", cpu_backup_backend="paper")


def test_a_pause_that_fails_leaves_all_awake_and_a_resume_without_room_can_be_tried_again(sim, stack):
    pauses = saver.TorchMemorySaver()
    with pauses.region("weights", enable_cpu_backup=True):
        weights = buffer(1)
    pauses.pause("weights")
    hog = alluvion.resource("cuda")
    free = rmm.mr.available_device_memory()[0]
    address = hog.allocate(free - MIB)
    with pytest.raises(MemoryError):
        pauses.resume("weights")
    hog.deallocate(address, free - MIB)
    pauses.resume("weights")
    assert weights.tobytes() == b"\1" * (4 * MIB)


def test_vllm_learns_of_too_little_room_as_from_its_own_allocator(stack):
    memory = alluvion.vllm.MemAllocator()
    with memory.use_memory_pool():
        weights = buffer(1)
    memory.sleep()
    hog = alluvion.resource("cuda")
    free = rmm.mr.available_device_memory()[0]
    address = hog.allocate(free - MIB)
    with pytest.raises(RuntimeError) as refused:
        memory.wake_up()
    assert isinstance(refused.value, alluvion.vllm.NoRoom) and refused.value.report == refused.value.__cause__.report
    assert str(refused.value) == str(refused.value.__cause__)
    hog.deallocate(address, free - MIB)
    memory.wake_up()
    assert weights.tobytes() == b"\1" * (4 * MIB)


def test_vllms_levels(stack):
    memory = alluvion.vllm.MemAllocator()
    assert memory.get_current_usage() == 0
    other = buffer(9)
    with memory.use_memory_pool("weights"):
        weights = buffer(1)
    with memory.use_memory_pool(tag="kv_cache"):
        cache = buffer(2)
    assert memory.get_current_usage() == 8 * MIB
    memory.sleep(offload_tags=("weights",))
    memory.sleep(offload_tags=("weights",))
    assert reserved(stack) == 4 and memory.get_current_usage() == 0
    memory.wake_up(tags=["weights"])
    assert weights.tobytes() == b"\1" * (4 * MIB) and reserved(stack) == 8
    memory.wake_up()
    assert reserved(stack) == 12 and cache.nbytes == 4 * MIB
    # Level 2: all is lost.
    memory.sleep(())
    memory.wake_up()
    memory.discard(("kv_cache",))
    assert reserved(stack) == 8 and other.tobytes()[0] == 9
    memory.wake_up()
    memory.release_pools()
    memory.close()


def test_a_hundred_cycles_leave_nothing(stack):
    memory = alluvion.vllm.MemAllocator()
    with memory.use_memory_pool("weights"):
        weights = buffer(1)
    with memory.use_memory_pool("kv_cache"):
        cache = buffer(2)
    memory.sleep("weights")
    memory.wake_up()
    held = (reserved(stack), stack.stats().current_count)
    for _ in range(100):
        memory.sleep("weights")
        assert reserved(stack) == 0
        memory.wake_up()
        assert weights.tobytes()[::MIB] == b"\1" * 4
    assert (reserved(stack), stack.stats().current_count) == held and cache.nbytes == 4 * MIB


VLLM = """
import sys, alluvion.vllm
alluvion.vllm.register()
alluvion.vllm.register()
from vllm.device_allocator import cumem
print(cumem.CuMemAllocator.instance is alluvion.vllm.instance, sum("AfterImport" in repr(each) for each in sys.meta_path))
cumem.CuMemAllocator.instance = None
alluvion.vllm.register()
print(cumem.CuMemAllocator.instance is alluvion.vllm.instance)
"""


@pytest.mark.parametrize(("wish", "printed"), [("1", "True 1\nTrue\n"), ("", "False 0\nFalse\n"), ("pool(checked=true) | mapped", "True 1\nTrue\n")])
def test_the_plug_in_puts_itself_into_vllm_if_it_is_told_to(tmp_path, wish, printed):
    package = tmp_path / "vllm" / "device_allocator"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "cumem.py").write_text("class CuMemAllocator:\n    instance = None\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]), "ALLUVION_VLLM": wish}
    ended = subprocess.run([sys.executable, "-c", VLLM], capture_output=True, text=True, env=environment, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, printed), ended.stderr


def test_the_module_takes_the_place_of_the_package(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch_memory_saver", raising=False)
    saver.install()
    saver.install()
    import torch_memory_saver

    assert torch_memory_saver is saver and torch_memory_saver.torch_memory_saver.enabled
    with torch_memory_saver.configure_subprocess():
        pass
    monkeypatch.setitem(sys.modules, "torch_memory_saver", types.ModuleType("torch_memory_saver"))
    with pytest.raises(RuntimeError, match="torch_memory_saver is imported already"):
        saver.install()
    monkeypatch.delitem(sys.modules, "torch_memory_saver")


def test_a_folder_on_the_path_has_the_module():
    folder = subprocess.run([sys.executable, "-m", "alluvion.torch_memory_saver", "--path"], capture_output=True, text=True, check=True).stdout.strip()
    assert os.listdir(folder) == ["torch_memory_saver"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, os.environ["PYTHONPATH"]]), "PYTHONDONTWRITEBYTECODE": "1"}
    program = "import torch_memory_saver as t; print(t.__name__, t.torch_memory_saver.enabled)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "alluvion.torch_memory_saver True\n"), ended.stderr


def test_a_region_within_another_one_is_its_own(stack):
    pauses = saver.TorchMemorySaver()
    with pauses.region("weights"):
        outer = buffer(1)
        with alluvion.tag("layer"), pauses.region("kv_cache", enable_cpu_backup=True):
            inner = buffer(2)
        back = buffer(3)
    pauses.pause("weights")
    assert reserved(stack) == 4 and inner.tobytes() == b"\2" * (4 * MIB), "it has a tag of its own"
    pauses.pause("kv_cache")
    assert reserved(stack) == 0
    pauses.resume("kv_cache")
    assert inner.tobytes() == b"\2" * (4 * MIB)
    pauses.resume("weights")
    assert reserved(stack) == 12 and outer.nbytes == back.nbytes == 4 * MIB


def test_an_exception_in_a_region_ends_it(stack):
    pauses = saver.TorchMemorySaver()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), pauses.region("weights"), pauses.region("inner"):
            within = buffer(1)
            1 / 0
        assert alluvion.current_tag() == ""
    outside = buffer(2)
    pauses.pause()
    assert outside.tobytes()[0] == 2 and reserved(stack) == 4
    pauses.resume()
    assert within.nbytes == 4 * MIB


def test_what_was_made_since_sleeps_by_the_next_sleep(stack):
    memory = alluvion.vllm.MemAllocator()
    with memory.use_memory_pool("weights"):
        first = buffer(1)
    memory.sleep("weights")
    with memory.use_memory_pool("weights"):
        second = buffer(2)
    with alluvion.tag("adapter"), memory.use_memory_pool("weights"):
        third = buffer(3)
    assert memory.get_current_usage() == 8 * MIB
    memory.sleep(["weights"])
    assert memory.get_current_usage() == 0 and reserved(stack) == 0
    memory.wake_up("weights")
    for value, block in ((1, first), (2, second), (3, third)):
        assert block.tobytes() == bytes([value]) * (4 * MIB)


def test_a_pause_of_all_that_fails_half_way_leaves_all_awake(stack, monkeypatch):
    pauses, memory = saver.TorchMemorySaver(), alluvion.vllm.MemAllocator()
    with pauses.region("first", enable_cpu_backup=True):
        first = buffer(1)
    with memory.use_memory_pool("other"):
        other = buffer(3)
    with pauses.region("second"):
        second = buffer(2)
    with memory.use_memory_pool("second_there"):
        pass
    sleep = alluvion.Stack.sleep

    def fails(self, tag=None, **given):
        if tag.startswith("second"):
            raise MemoryError("no pinned memory")
        return sleep(self, tag, **given)

    monkeypatch.setattr(alluvion.Stack, "sleep", fails)
    with pytest.raises(MemoryError, match="no pinned memory"):
        pauses.pause()
    with pytest.raises(MemoryError, match="no pinned memory"):
        memory.sleep("other")
    assert first.tobytes()[0] == 1 and other.tobytes()[0] == 3 and second.tobytes()[0] == 2
    monkeypatch.undo()


def test_one_that_cannot_be_woken_after_an_error_is_woken_later(sim, stack, monkeypatch):
    pauses = saver.TorchMemorySaver()
    with pauses.region("first", enable_cpu_backup=True):
        first = buffer(1)
    with pauses.region("second"):
        second = buffer(2)
    sleep = alluvion.Stack.sleep

    def fails(self, tag=None, **given):
        if tag.startswith("second"):
            sim.fail("cuMemCreate")
            raise KeyError("the cause")
        return sleep(self, tag, **given)

    monkeypatch.setattr(alluvion.Stack, "sleep", fails)
    with pytest.raises(KeyError, match="the cause"):
        pauses.pause()
    monkeypatch.setattr(alluvion.Stack, "sleep", sleep)
    pauses.resume()
    assert first.tobytes() == b"\1" * (4 * MIB) and second.tobytes()[0] == 2


def test_contents_go_to_a_disk(stack, tmp_path):
    pauses = saver.TorchMemorySaver()
    pauses.set_disk_backup_dir(tmp_path / "missing")
    with pauses.region("weights", enable_disk_backup=True):
        weights = buffer(1)
    with pauses.region("weights", enable_cpu_backup=True):
        on_host = buffer(2)
    with pytest.raises(alluvion.errors.Unwritable):
        pauses.pause("weights")
    assert weights.tobytes()[0] == 1 and on_host.tobytes()[0] == 2
    pauses.set_disk_backup_dir(tmp_path)
    pauses.pause("weights")
    assert reserved(stack) == 0 and len(list(tmp_path.iterdir())) == 1
    pauses.resume("weights")
    assert list(tmp_path.iterdir()) == []
    assert weights.tobytes() == b"\1" * (4 * MIB) and on_host.tobytes() == b"\2" * (4 * MIB)


def test_a_module_that_is_loaded_again_knows_what_sleeps(stack):
    memory, pauses = alluvion.vllm.instance, saver.torch_memory_saver
    with memory.use_memory_pool("reloaded"):
        weights = buffer(1)
    memory.sleep("reloaded")
    importlib.reload(alluvion.vllm)
    importlib.reload(saver)
    assert alluvion.vllm.instance is memory and saver.torch_memory_saver is pauses
    alluvion.vllm.instance.wake_up()
    assert weights.tobytes() == b"\1" * (4 * MIB)


ENDS = """
import os, sys
import alluvion, alluvion.torch, alluvion.torch_memory_saver as saver
from alluvion import rmm
from alluvion._per_device import PerDevice
from alluvion.torch import _torch

class Torch:
    class cuda:
        synchronize = staticmethod(lambda device: None)
        empty_cache = staticmethod(lambda: None)

_torch.genuine = lambda: Torch
alluvion.simulated().__enter__()
stack = alluvion.resource("pool(checked=true) | mapped", 0)
alluvion.torch._stacks = PerDevice({0: stack})
pauses = saver.torch_memory_saver
pauses.set_disk_backup_dir(sys.argv[1])
with alluvion.using(stack):
    with pauses.region("host", enable_cpu_backup=True):
        host = rmm.DeviceBuffer.to_device(b"1" * 4_000_000)
    with pauses.region("disk", enable_disk_backup=True):
        disk = rmm.DeviceBuffer.to_device(b"2" * 4_000_000)
pauses.pause()
child = os.fork()
if child == 0:
    try:
        pauses.resume()
    except Exception as error:
        print(type(error).__name__, flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print(len(os.listdir(sys.argv[1])))
if sys.argv[2] == "awake":
    pauses.resume()
    print(host.tobytes()[:1], disk.tobytes()[:1])
"""


@pytest.mark.parametrize(("how", "printed"), [("awake", "ShutDown\n1\nb'1' b'2'\n"), ("asleep", "ShutDown\n1\n")])
def test_a_fork_takes_nothing_and_an_end_asleep_is_an_end(tmp_path, how, printed):
    ended = subprocess.run([sys.executable, "-c", ENDS, tmp_path, how], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, printed), ended.stderr
    assert os.listdir(tmp_path) == []


def test_a_vllm_without_the_allocator_is_told(tmp_path):
    package = tmp_path / "vllm" / "device_allocator"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "cumem.py").write_text("class AnotherName:\n    pass\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]), "ALLUVION_VLLM": "1"}
    program = "import alluvion.vllm\nalluvion.vllm.register()\nimport vllm.device_allocator.cumem"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)
    assert ended.returncode == 1 and "has no CuMemAllocator" in ended.stderr.splitlines()[-1], ended.stderr
