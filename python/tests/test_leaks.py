"""Nothing of the native module is left behind: no object, and no reference that only C can see."""

import gc
import os
import pathlib
import subprocess
import sys

import pytest

import alluvion
from alluvion import _alluvion
from alluvion.rmm import DeviceBuffer, mr
from alluvion.rmm.pylibrmm.cuda_stream_pool import CudaStreamPool
from alluvion.rmm.pylibrmm.stream import Stream

HERE = pathlib.Path(__file__).parent

#: The tests that are run over and over in one process.
PART = ["device_buffer", "dlpack", "own_buffers", "pinned", "resources", "scopes", "stack", "statistics", "stream"]

# Each object holds a reference of its class, also one that the collector does not know. The first run imports and remembers.
AGAIN = """
import contextlib, gc, io, sys
import pytest
from alluvion import _alluvion
classes = {name: value for name, value in vars(_alluvion).items() if isinstance(value, type)}
counts = []
for _ in range(3):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        # The package is imported above, so that its plugin of pytest cannot be rewritten: where it is installed, pytest says so.
        quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        code = pytest.main(["-q", "-c", sys.argv[1], "-p", "no:cacheprovider", *quiet, *sys.argv[2:]])
    if code != 0:
        sys.exit(printed.getvalue())
    for _ in range(3):
        gc.collect()
    counts.append({name: sys.getrefcount(value) for name, value in classes.items()})
before, after = counts[1:]
print({name: after[name] - before[name] for name in classes if after[name] != before[name]})
"""


def test_a_second_run_of_the_suite_leaves_no_more_objects():
    files = [str(HERE / f"test_{name}.py") for name in PART]
    done = subprocess.run(
        [sys.executable, "-c", AGAIN, str(HERE.parent / "pyproject.toml"), *files],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert (done.returncode, done.stdout) == (0, "{}\n"), done.stderr


def refused(error, use, *arguments):
    with pytest.raises(error):
        use(*arguments)


def raises(*_):
    raise ValueError("no")


def refused_while_full(stack):
    address = stack.allocate(1000)
    refused(RuntimeError, stack.allocate, 1000)
    stack.deallocate(address, 1000)


class AStream:
    def __cuda_stream__(self):
        return (0, 0)


USES = {
    "buffers": lambda: DeviceBuffer.to_device(b"abc").copy().tobytes(),
    "a resize": lambda: DeviceBuffer(size=10).resize(100_000),
    "a copy to the host": lambda: DeviceBuffer.to_device(b"abc").copy_to_host(bytearray(3)),
    "an interface": lambda: DeviceBuffer(size=8).copy_from_device(DeviceBuffer(size=8)),
    "views": lambda: DeviceBuffer(size=8).view("f4", (2, -1)).__cuda_array_interface__,
    "capsules that nobody takes": lambda: DeviceBuffer(size=8).__dlpack__(max_version=(1, 0)),
    "loans": lambda: DeviceBuffer.from_dlpack(DeviceBuffer.from_dlpack(DeviceBuffer(size=8)), Stream()),
    "streams": lambda: DeviceBuffer(size=10, stream=Stream()),
    "foreign streams": lambda: DeviceBuffer(size=10, stream=AStream()),
    "stream pools": lambda: CudaStreamPool(2).get_stream().synchronize(),
    "pinned memory": lambda: _alluvion.PinnedBlock(100),
    "layers": lambda: mr.StatisticsResourceAdaptor(mr.LimitingResourceAdaptor(mr.CudaMemoryResource(), 100)).push_counters(),
    "bins": lambda: mr.BinningMemoryResource(mr.CudaMemoryResource()).add_bin(1000, mr.CudaMemoryResource()),
    "stacks": lambda: alluvion.resource("stats | tracking | cuda", on_out_of_memory=raises).blocks(),
    "tags": lambda: alluvion.tag("mine").__enter__().__exit__(None, None, None),
    "figures": lambda: alluvion.metrics({"one": mr.CudaMemoryResource()}),
    "a size too large": lambda: refused(MemoryError, mr.CudaMemoryResource().allocate, 1 << 50),
    "a size that is none": lambda: refused(OverflowError, mr.CudaMemoryResource().allocate, -1),
    "a stream that is none": lambda: refused(TypeError, mr.CudaMemoryResource().allocate, 1, 2),
    "a function that raises": lambda: refused(RuntimeError, mr.CallbackMemoryResource(raises, raises).allocate, 1),
    "a callback that raises": lambda: refused(
        RuntimeError, mr.FailureCallbackResourceAdaptor(mr.CudaMemoryResource(), raises).allocate, 1 << 50
    ),
    "a handler that raises": lambda: refused_while_full(alluvion.resource("limiting(1KiB) | cuda", on_out_of_memory=raises)),
    "a bin that is refused": lambda: refused(RuntimeError, mr.BinningMemoryResource(mr.CudaMemoryResource()).add_bin, 0),
    "a recipe that is none": lambda: refused(ValueError, alluvion.resource, "pool | nothing"),
    "memory that is none": lambda: refused(ValueError, DeviceBuffer.to_device, memoryview(b"abcd")[::2]),
    "a copy that is too large": lambda: refused(ValueError, DeviceBuffer(size=2).copy_from_host, b"abc"),
    "a capsule that is none": lambda: refused(TypeError, DeviceBuffer.from_dlpack, 7),
}


@pytest.mark.parametrize("name", USES)
def test_no_memory_of_the_interpreter_is_left(sim, name):
    """In blocks of the interpreter's allocator: a use that leaves one leaves five hundred here. Tables that grow leave up to 150."""
    use = USES[name]
    for _ in range(500):
        use()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(500):
        use()
    gc.collect()
    assert sys.getallocatedblocks() - before < 250
