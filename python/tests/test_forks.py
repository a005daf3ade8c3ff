"""Locks of the package in a child of a fork, which came while another thread held them all."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


def run(program, **environment):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)


PREPARE = """
import os, signal, sys, threading, warnings
warnings.simplefilter("ignore")
import alluvion
from alluvion import _fork, rmm
from alluvion.rmm import statistics
from alluvion.rmm.pylibrmm import logger
from alluvion.rmm.librmm._logger import level_enum

def hold_all(until):
    locks = list(_fork._locks)
    for lock in locks:
        lock.__enter__()
    held.set()
    until.wait()
    for lock in reversed(locks):
        lock.__exit__(None, None, None)
"""


def test_locks_that_another_thread_held_are_free_in_a_child(tmp_path):
    ended = run(
        PREPARE
        + """
machine = alluvion.simulated(check=False)
machine.__enter__()
from alluvion.librmm_cffi import librmm
records = statistics.ProfilerRecords()
held, over = threading.Event(), threading.Event()
holder = threading.Thread(target=hold_all, args=(over,))
holder.start()
held.wait()
child = os.fork()
if child == 0:
    # Who waits for ever is ended.
    signal.alarm(60)
    records.add("name", statistics.Statistics(1, 1, 1, 1, 1, 1))
    assert records.records["name"].num_calls == 1
    rmm.register_reinitialize_hook(print)
    rmm.unregister_reinitialize_hook(print)
    logger._log.write(level_enum.error, "of the child")
    try:
        librmm.finalize()
    except alluvion.errors.ShutDown:
        # The driver is the parent's; nobody waited for a lock.
        os._exit(7)
_, status = os.waitpid(child, 0)
over.set()
holder.join()
# The parent's are its own, and as they were.
records.add("name", statistics.Statistics(1, 1, 1, 1, 1, 1))
logger._log.write(level_enum.error, "of the parent")
print(os.waitstatus_to_exitcode(status), len(records.records))
""",
        RMM_DEBUG_LOG_FILE=str(tmp_path / "log"),
    )
    assert (ended.returncode, ended.stdout) == (0, "7 1\n"), ended.stderr
    lines = (tmp_path / "log").read_text()
    assert "of the parent" in lines, lines


def test_a_thread_that_forks_has_its_locks_in_the_child():
    ended = run(
        PREPARE
        + """
lock = _fork.ForkLock()
taken = threading.Event()

def take():
    with lock:
        taken.set()

with lock:
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        other = threading.Thread(target=take)
        other.start()
    else:
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
if child == 0:
    other.join()
    os._exit(5 if taken.is_set() else 6)
""",
    )
    assert (ended.returncode, ended.stdout) == (0, "5\n"), ended.stderr
