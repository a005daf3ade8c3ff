"""The C functions that PyTorch calls, called as it does: by ctypes, without the interpreter, from any thread."""

import ctypes
import gc
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import alluvion
import alluvion.rmm
from alluvion import _alluvion

NAMES = [
    "alluvion_torch_allocate",
    "alluvion_torch_allocate_or_throw",
    "alluvion_torch_deallocate",
    "alluvion_torch_init",
    "alluvion_torch_reset",
    "alluvion_torch_memory_fraction",
    "alluvion_torch_base_allocation",
    "alluvion_torch_record_stream",
]


def load():
    library = ctypes.CDLL(_alluvion.__file__)
    for name in ("alluvion_torch_allocate", "alluvion_torch_allocate_or_throw"):
        getattr(library, name).argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        getattr(library, name).restype = ctypes.c_void_p
    library.alluvion_torch_deallocate.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    library.alluvion_torch_deallocate.restype = None
    library.alluvion_torch_memory_fraction.argtypes = [ctypes.c_double, ctypes.c_int]
    library.alluvion_torch_memory_fraction.restype = None
    library.alluvion_torch_base_allocation.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
    library.alluvion_torch_base_allocation.restype = ctypes.c_void_p
    library.alluvion_torch_record_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.alluvion_torch_record_stream.restype = None
    return library


@pytest.fixture(scope="module")
def torch():
    return load()


@pytest.fixture
def counted(sim):
    """A resource that counts, current on device 0."""
    resource = alluvion.rmm.mr.StatisticsResourceAdaptor(alluvion.rmm.mr.CudaMemoryResource())
    alluvion.set_current_resource(resource)
    return resource


def blocks(sim):
    """How many blocks of the driver are out. Events that are kept to be used again are none."""
    return sum("event" not in str(leak) for leak in sim.leaks())


def live(resource):
    counts = resource.allocation_counts
    return counts.current_bytes, counts.current_count


def test_the_module_has_every_function():
    library = ctypes.CDLL(_alluvion.__file__)
    for name in NAMES:
        assert getattr(library, name)


def test_a_block_comes_from_the_current_resource_and_goes_back(torch, counted, sim):
    address = torch.alluvion_torch_allocate(1000, 0, None)
    assert address and address % 256 == 0
    assert live(counted) == (1000, 1)
    torch.alluvion_torch_deallocate(address, 1000, 0, None)
    assert live(counted) == (0, 0)
    assert blocks(sim) == 0


def test_a_block_goes_back_to_its_own_resource_though_another_is_current(torch, counted):
    address = torch.alluvion_torch_allocate(4096, 0, None)
    other = alluvion.rmm.mr.StatisticsResourceAdaptor(alluvion.rmm.mr.CudaMemoryResource())
    alluvion.set_current_resource(other)
    second = torch.alluvion_torch_allocate(512, 0, None)
    torch.alluvion_torch_deallocate(address, 4096, 0, None)
    assert live(counted) == (0, 0)
    assert live(other) == (512, 1)
    torch.alluvion_torch_deallocate(second, 512, 0, None)
    assert live(other) == (0, 0)


def test_the_resource_of_a_block_lives_as_long_as_the_block(torch, sim):
    alluvion.set_current_resource(alluvion.rmm.mr.PoolMemoryResource(alluvion.rmm.mr.CudaMemoryResource(), "1 MiB"))
    address = torch.alluvion_torch_allocate(4096, 0, None)
    alluvion.set_current_resource(alluvion.rmm.mr.CudaMemoryResource())
    gc.collect()
    assert blocks(sim) == 1
    torch.alluvion_torch_deallocate(address, 4096, 0, None)
    assert blocks(sim) == 0


def test_each_device_has_its_own_resource(torch, counted):
    alluvion.set_current_device(1)
    of_second = alluvion.rmm.mr.StatisticsResourceAdaptor(alluvion.rmm.mr.CudaMemoryResource())
    alluvion.set_current_resource(of_second)
    alluvion.set_current_device(0)
    address = torch.alluvion_torch_allocate(100, 1, None)
    assert (live(counted), live(of_second)) == ((0, 0), (100, 1))
    assert alluvion.current_device() == 0
    # The device is the block's own, whatever number comes back with it.
    torch.alluvion_torch_deallocate(address, 100, 1, None)
    assert live(of_second) == (0, 0)


def test_the_named_device_is_current_while_a_resource_in_python_is_asked(torch, sim):
    seen = []
    alluvion.set_current_device(1)
    inner = alluvion.rmm.mr.CudaMemoryResource()

    def allocate(nbytes, stream):
        seen.append(alluvion.current_device())
        return inner.allocate(nbytes, stream)

    alluvion.set_current_resource(alluvion.rmm.mr.CallbackMemoryResource(allocate, inner.deallocate))
    alluvion.set_current_device(0)
    address = torch.alluvion_torch_allocate(100, 1, None)
    assert seen == [1]
    assert alluvion.current_device() == 0
    torch.alluvion_torch_deallocate(address, 100, 1, None)


def test_many_streams_are_told_apart(torch, counted, sim):
    streams = [alluvion.rmm.pylibrmm.stream.Stream() for _ in range(40)]
    handles = [stream.__cuda_stream__()[1] for stream in streams]
    for _ in range(3):
        blocks = [(torch.alluvion_torch_allocate(2048, 0, handle), handle) for handle in [0, 1, 2, *handles]]
        assert len({address for address, _ in blocks}) == len(blocks)
        for address, handle in blocks:
            torch.alluvion_torch_deallocate(address, 2048, 0, handle)
    assert live(counted) == (0, 0)
    assert sim.hazards() == []


def test_a_recorded_stream_holds_the_free_back(torch, sim):
    pool = alluvion.rmm.mr.PoolMemoryResource(alluvion.rmm.mr.CudaMemoryResource(), "1 MiB", "1 MiB")
    alluvion.set_current_resource(pool)
    own, other = (alluvion.rmm.pylibrmm.stream.Stream() for _ in range(2))
    own_handle, other_handle = (stream.__cuda_stream__()[1] for stream in (own, other))
    address = torch.alluvion_torch_allocate(4096, 0, own_handle)
    torch.alluvion_torch_record_stream(address, other_handle)
    alluvion.rmm.pylibrmm.device_buffer.copy_host_to_ptr(bytes(4096), address, own)
    own.synchronize()
    # Work of the other stream, that the machine lets run late. Whoever gets the block next writes to it.
    source = alluvion.rmm.DeviceBuffer.to_device(bytes(4096), other)
    alluvion.rmm.pylibrmm.device_buffer.copy_device_to_ptr(source.ptr, address, 4096, other)
    torch.alluvion_torch_deallocate(address, 4096, 0, own_handle)
    again = torch.alluvion_torch_allocate(4096, 0, own_handle)
    alluvion.rmm.pylibrmm.device_buffer.copy_host_to_ptr(bytes(4096), again, own)
    torch.alluvion_torch_deallocate(again, 4096, 0, own_handle)
    assert again == address
    assert sim.hazards() == []


def test_no_bytes_are_no_block_and_no_failure(torch, counted):
    assert torch.alluvion_torch_allocate(0, 0, None) is None
    assert torch.alluvion_torch_allocate_or_throw(0, 0, None) is None
    torch.alluvion_torch_deallocate(None, 0, 0, None)
    assert live(counted) == (0, 0)


def test_without_memory_the_plain_pair_answers_null_and_says_why(torch, counted):
    assert torch.alluvion_torch_allocate(1 << 50, 0, None) is None
    assert "memory" in _alluvion.torch_last_error()
    assert torch.alluvion_torch_allocate((1 << 64) - 1, 0, None) is None
    assert torch.alluvion_torch_allocate(64, 77, None) is None
    assert "77" in _alluvion.torch_last_error()
    address = torch.alluvion_torch_allocate(64, 0, None)
    assert address
    torch.alluvion_torch_deallocate(address, 64, 0, None)
    assert live(counted) == (0, 0)


def test_a_block_that_nobody_knows_is_left_alone(torch, counted):
    torch.alluvion_torch_deallocate(0x1234500, 64, 0, None)
    address = torch.alluvion_torch_allocate(64, 0, None)
    torch.alluvion_torch_deallocate(address, 64, 0, None)
    torch.alluvion_torch_deallocate(address, 64, 0, None)
    assert live(counted) == (0, 0)


def test_a_fraction_bounds_what_is_out(torch, counted, sim):
    total = alluvion.memory_info()[1]
    try:
        torch.alluvion_torch_memory_fraction(0.25, 0)
        quarter = total // 4
        first = torch.alluvion_torch_allocate(quarter // 2, 0, None)
        assert first
        assert torch.alluvion_torch_allocate(quarter, 0, None) is None
        torch.alluvion_torch_deallocate(first, quarter // 2, 0, None)
        whole = torch.alluvion_torch_allocate(quarter, 0, None)
        assert whole
        torch.alluvion_torch_deallocate(whole, quarter, 0, None)
    finally:
        torch.alluvion_torch_memory_fraction(1.0, 0)
    whole = torch.alluvion_torch_allocate(total // 2, 0, None)
    assert whole
    torch.alluvion_torch_deallocate(whole, total // 2, 0, None)


def test_a_reset_gives_unused_memory_back(torch, sim):
    pool = alluvion.rmm.mr.PoolMemoryResource(alluvion.rmm.mr.CudaMemoryResource(), 0)
    alluvion.set_current_resource(pool)
    address = torch.alluvion_torch_allocate(1 << 20, 0, None)
    torch.alluvion_torch_deallocate(address, 1 << 20, 0, None)
    assert pool.pool_size() >= 1 << 20
    torch.alluvion_torch_reset()
    assert pool.pool_size() == 0


def test_the_base_of_a_block_is_the_drivers(torch, sim):
    alluvion.set_current_resource(alluvion.rmm.mr.PoolMemoryResource(alluvion.rmm.mr.CudaMemoryResource(), "1 MiB"))
    blocks = [torch.alluvion_torch_allocate(4096, 0, None) for _ in range(2)]
    size = ctypes.c_size_t(7)
    bases = {torch.alluvion_torch_base_allocation(block, ctypes.byref(size)) for block in blocks}
    assert len(bases) == 1 and min(blocks) >= min(bases)
    assert size.value == 1 << 20
    unknown = ctypes.c_size_t(7)
    assert torch.alluvion_torch_base_allocation(0x77, ctypes.byref(unknown)) == 0x77
    assert unknown.value == 0
    for block in blocks:
        torch.alluvion_torch_deallocate(block, 4096, 0, None)


def test_threads_share_the_functions(torch, counted, sim):
    failed = []

    def work():
        stream = alluvion.rmm.pylibrmm.stream.Stream()
        handle = stream.__cuda_stream__()[1]
        for turn in range(200):
            size = 256 + turn
            address = torch.alluvion_torch_allocate(size, 0, handle)
            if not address:
                failed.append(size)
            torch.alluvion_torch_deallocate(address, size, 0, handle)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert live(counted) == (0, 0)


@pytest.mark.skipif(not shutil.which("nm"), reason="there is no nm")
def test_the_names_are_exported():
    listed = subprocess.run(["nm", "-D", "--defined-only", _alluvion.__file__], capture_output=True, text=True, check=True)
    exported = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert exported >= set(NAMES)


def run(program):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)


def test_blocks_that_are_out_at_the_end_of_a_process_hurt_nobody():
    ended = run(
        """
import atexit, ctypes, sys
import alluvion
import alluvion.rmm
from alluvion import _alluvion
sys.path.insert(0, %r)
from test_torch_symbols import load
torch = load()
sim = alluvion.simulated(check=False).__enter__()
blocks = [torch.alluvion_torch_allocate(4096, 0, None) for _ in range(8)]
atexit.register(lambda: torch.alluvion_torch_deallocate(blocks[0], 4096, 0, None))
class Late:
    def __del__(self, free=torch.alluvion_torch_deallocate, block=blocks[1]):
        free(block, 4096, 0, None)
sys.late = Late()
print("done")
"""
        % str(Path(__file__).parent)
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_of_a_fork_leaves_its_parents_blocks_alone():
    ended = run(
        """
import os, sys, warnings
warnings.simplefilter("ignore")
import alluvion
from alluvion import _alluvion
sys.path.insert(0, %r)
from test_torch_symbols import load
torch = load()
with alluvion.simulated() as sim:
    alluvion.set_current_resource(_alluvion.CudaMemoryResource())
    block = torch.alluvion_torch_allocate(4096, 0, None)
    child = os.fork()
    if child == 0:
        torch.alluvion_torch_deallocate(block, 4096, 0, None)
        os._exit(0 if torch.alluvion_torch_allocate(64, 0, None) is None else 1)
    _, status = os.waitpid(child, 0)
    torch.alluvion_torch_deallocate(block, 4096, 0, None)
    print(status, sim.leaks())
"""
        % str(Path(__file__).parent)
    )
    assert (ended.returncode, ended.stdout) == (0, "0 []\n"), ended.stderr


@pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")
def test_a_caller_in_cpp_catches_bad_alloc(tmp_path):
    source = Path(__file__).parent / "native" / "throws.cpp"
    program = tmp_path / "throws"
    subprocess.run(["g++", "-o", program, source, "-ldl"], check=True)
    # The module has undefined names that the interpreter defines: they are not bound before they are called.
    ended = subprocess.run([program, _alluvion.__file__, str(1 << 50)], capture_output=True, text=True, timeout=120)
    if "undefined symbol" in ended.stderr:
        pytest.skip("the interpreter is not linked in")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "unwound\nbad_alloc\n", "")


@pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")
def test_cpp_in_a_process_of_python_catches_bad_alloc(tmp_path):
    source = Path(__file__).parent / "native" / "throws.cpp"
    library = tmp_path / "throws.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    program = f"""
import ctypes, alluvion
from alluvion import _alluvion
look = ctypes.CDLL({str(library)!r}).look
assert look(_alluvion.__file__.encode(), b"{1 << 50}") == 0
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "unwound\nbad_alloc\n", "")
