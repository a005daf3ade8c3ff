"""The end of the process, and of its children: no crash, no hang, nothing printed."""

import os
import subprocess
import sys
import textwrap

import pytest

START = """
import alluvion, gc, os, signal, sys, threading
from alluvion import _alluvion
from alluvion.rmm.pylibrmm.device_buffer import DeviceBuffer
from alluvion.rmm.pylibrmm.stream import Stream
sim = alluvion.simulated()
sim.__enter__()
buffer = DeviceBuffer.to_device(b"abc" * 1000)
on_stream = DeviceBuffer(size=1000, stream=Stream())
"""

PROGRAMS = {
    "module level": "",
    "after its machine": "sim.__exit__(None, None, None)",
    "cycle": "class Mine(DeviceBuffer): pass\nmine = Mine(size=10); mine.me = mine; mine.other = buffer",
    "exception": "sys.excepthook = lambda *_: None\nraise KeyError",
    "os._exit": "os._exit(0)",
    "sys.exit": "sys.exit(0)",
    "sys.exit in a thread": "threading.Thread(target=lambda: sys.exit(3)).start()",
    "daemon thread": """
        started = threading.Event()
        def work():
            while True:
                b = DeviceBuffer.to_device(b"x" * 1000); b.copy().tobytes(); started.set()
        threading.Thread(target=work, daemon=True).start()
        started.wait()
    """,
    "daemon thread with a stream": """
        started = threading.Event()
        def work():
            stream = Stream()
            while True:
                b = DeviceBuffer(size=100, stream=stream); started.set()
        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        started.wait()
    """,
    "atexit": "import atexit\natexit.register(lambda: buffer.tobytes())",
    "__del__ at exit": """
        class Late:
            def __del__(self):
                self.buffer.tobytes()
        late = Late(); late.buffer = buffer
    """,
    "capsules": "capsules = [buffer.__dlpack__(), buffer.__dlpack__(max_version=(1, 0))]; lent = alluvion.from_dlpack(buffer)",
    "deleted modules": "sys.modules.pop('alluvion.rmm.pylibrmm.device_buffer'); del DeviceBuffer",
    "recursion in the collector": "gc.set_threshold(1)\nfor _ in range(50):\n    x = [DeviceBuffer(size=8)]; x.append(x)",
}


def end_of(program, *options, environment=None, status=0):
    answer = subprocess.run(
        [sys.executable, *options, "-c", START + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | (environment or {}),
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (status, "", "")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_process_ends_in_silence(name):
    end_of(PROGRAMS[name], status=1 if name == "exception" else 0)


@pytest.mark.parametrize("name", ["module level", "cycle", "capsules", "recursion in the collector"])
def test_in_development_mode(name):
    end_of(PROGRAMS[name], "-X", "dev", "-W", "error", environment={"PYTHONMALLOC": "debug"})


def test_in_the_child_of_a_fork():
    end_of(
        """
        child = os.fork()
        if child == 0:
            for use in (
                lambda: buffer.tobytes(),
                lambda: buffer.copy(),
                lambda: buffer.copy_from_host(b"x"),
                lambda: buffer.resize(10000),
                lambda: buffer.__cuda_array_interface__,
                lambda: buffer.__dlpack__(),
                lambda: DeviceBuffer(size=10),
            ):
                try:
                    use()
                except RuntimeError:
                    continue
                os._exit(7)
            assert buffer.size == 3000
            del buffer, on_stream
            gc.collect()
            sys.exit(5)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 5, status
        assert buffer.tobytes() == b"abc" * 1000
        """
    )
