"""After a call of the stand-in a context is current on the calling thread, as after every call of CUDA's runtime.

On a simulated machine nobody sees contexts, so the calls are made over the stand-in for libcuda of the library's own tests, in a
process that finds it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

STAND_IN = Path(__file__).parents[2] / "tests/cuda_load/libcuda.rs"

PROGRAM = """
import ctypes, sys, threading

import alluvion.rmm as rmm
from alluvion.rmm.pylibrmm.cuda_stream_pool import CudaStreamPool
from alluvion.rmm.pylibrmm.stream import Stream

cuda = ctypes.CDLL(sys.argv[1])
cuda.cuCtxPushCurrent_v2.argtypes = [ctypes.c_size_t]


def current():
    context = ctypes.c_size_t()
    assert cuda.cuCtxGetCurrent(ctypes.byref(context)) == 0
    return context.value


def makes_current(name, call):
    def body():
        before = current()
        kept = call()
        made = current()
        cuda.cuCtxPushCurrent_v2(0x77)
        kept = call()
        seen[name] = (before, made, current())
        del kept

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


def pair(resource, stream):
    resource.deallocate(resource.allocate(1000, stream), 1000, stream)


seen = {}
cuda_resource = rmm.mr.CudaMemoryResource()
assert rmm._cuda.gpu.getDeviceCount() == 1 and current() == 0, "to count devices makes no context"
makes_current("pool", lambda: rmm.mr.PoolMemoryResource(cuda_resource, 1 << 20))
pool = rmm.mr.PoolMemoryResource(cuda_resource, 1 << 20)
counted = rmm.mr.StatisticsResourceAdaptor(pool)
own = Stream()
makes_current("pair", lambda: pair(counted, own))
makes_current("cached pair", lambda: pair(counted, own))
makes_current("pair on the default stream", lambda: pair(pool, rmm.pylibrmm.stream.DEFAULT_STREAM))
makes_current("stream", Stream)
makes_current("streams", lambda: CudaStreamPool(2))
makes_current("wait", own.synchronize)
makes_current("buffer", lambda: rmm.DeviceBuffer(size=100, stream=own, mr=counted))
makes_current("memory", rmm.mr.available_device_memory)
filled, target = (rmm.DeviceBuffer(size=100, stream=own, mr=counted) for _ in range(2))
makes_current("copy", lambda: target.copy_from_device(filled, own))
blocks = [counted.allocate(1000, own), counted.allocate(1000, own)]
makes_current("free", lambda: counted.deallocate(blocks.pop(), 1000, own))
primary = current()
wrong = {name: contexts for name, contexts in seen.items() if contexts != (0, primary, 0x77)}
assert primary != 0 and not wrong, (primary, wrong)
print(len(seen), "calls")
"""


def test_a_call_makes_a_context_current_and_leaves_another(tmp_path):
    rustc = shutil.which("rustc")
    if rustc is None or not STAND_IN.exists():
        pytest.skip("needs rustc and the library's tests")
    library = tmp_path / "libcuda.so"
    build = [rustc, "--edition=2024", "--crate-type=cdylib", "--crate-name=cuda", "-Cpanic=abort", "-Awarnings"]
    subprocess.run([*build, "-o", library, STAND_IN], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    environment.pop("ALLUVION_DRIVER", None)
    environment.pop("ALLUVION_RESOURCE", None)
    command = [sys.executable, "-c", PROGRAM, str(library)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "11 calls\n"
