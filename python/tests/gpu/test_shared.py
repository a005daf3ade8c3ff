"""Memory that two real processes use."""

import gc
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import time

import pytest

import alluvion
from alluvion import errors

PATTERN = bytes(range(256)) * 4096

WAYS = ["cuda", "pool(initial=64MiB) | cuda", "cuda-async(handles=fd)", "mapped(handles=fd)", "pool | mapped(handles=fd)"]

#: What the other process does: a line of Python a line, with its answer on a line of its own, until its input ends.
OTHER = """
import os, pickle, socket, sys
import alluvion
connection = socket.socket(fileno=int(sys.argv[1]))
names = {"alluvion": alluvion, "connection": connection, "pickle": pickle}
for line in sys.stdin:
    try:
        exec(line, names)
        answer = repr(names.pop("answer", None))
    except BaseException as problem:
        answer = type(problem).__name__
    print(answer, flush=True)
    del line
"""


class Other:
    """Another process, which does what it is told."""

    def __init__(self):
        self.connection, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self.process = subprocess.Popen(
                [sys.executable, "-c", OTHER, str(number)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[number],
            )

    def do(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.connection.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def other(gpu):
    other = Other()
    yield other
    other.close()


def made(way):
    resource = alluvion.resource(way)
    buffer = alluvion.empty(len(PATTERN), resource=resource)
    buffer.copy_from_host(PATTERN)
    return buffer


RECEIVE = "there = alluvion.receive_shared(connection, writable=%s); answer = there.tobytes() == bytes(range(256)) * 4096"


@pytest.mark.parametrize("way", WAYS)
def test_another_process_reads_and_writes(other, way):
    buffer = made(way)
    shared = buffer.share(writable=True)
    alluvion.send_shared(other.connection, shared)
    assert other.do(RECEIVE % True) == "True"
    assert shared.importers == 1
    with pytest.raises(TimeoutError):
        shared.end(timeout=0)
    assert other.do("there.copy_from_host(b'written there'); del there") == "None"
    shared.end(timeout=60)
    assert buffer.tobytes()[:13] == b"written there"


@pytest.mark.parametrize("way", WAYS)
def test_an_importer_that_is_killed_has_it_no_more(other, way):
    buffer = made(way)
    shared = buffer.share()
    alluvion.send_shared(other.connection, shared)
    assert other.do(RECEIVE % False) == "True"
    assert other.do("there.copy_from_host(b'x')") in ("ValueError", "BufferError", "RuntimeError", "InvalidArgument", "Unsupported")
    other.kill()
    shared.end(timeout=60)
    assert buffer.tobytes() == PATTERN


@pytest.mark.parametrize("way", WAYS)
def test_an_exporter_that_is_killed_leaves_what_is_open(other, way):
    assert other.do(f"resource = alluvion.resource({way!r})") == "None"
    assert other.do("buffer = alluvion.empty(1 << 20, resource=resource); buffer.copy_from_host(bytes(range(256)) * 4096)") == "None"
    assert other.do("shared = buffer.share(); alluvion.send_shared(connection, shared)") == "None"
    there = alluvion.receive_shared(other.connection)
    message = eval(other.do("answer = shared.message"))
    assert there.tobytes() == PATTERN
    other.kill()
    assert there.tobytes() == PATTERN
    del there
    gc.collect()
    if "fd" not in way:
        stale_in_the_end(message)


def stale_in_the_end(message):
    # The lock of a process that was killed is there until the kernel and the driver have let go of its memory.
    deadline = time.monotonic() + 60
    while True:
        try:
            late = alluvion.open_shared(message)
        except errors.Stale:
            return
        except RuntimeError as problem:
            late = problem
        assert time.monotonic() < deadline, late
        del late
        time.sleep(0.01)


def test_the_process_itself_cannot_open_it(gpu):
    shared = made("cuda").share()
    with pytest.raises(errors.OwnProcess):
        alluvion.open_shared(shared.message)
    shared.end(timeout=0)


def child(queue, answers):
    buffer = queue.get()
    answers.put(buffer.tobytes() == PATTERN)
    del buffer
    gc.collect()
    answers.put("closed")


@pytest.mark.parametrize("way", ["cuda", "mapped(handles=fd)"])
def test_a_queue_of_multiprocessing_carries_a_handle(gpu, way):
    context = multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(queue, answers))
    process.start()
    try:
        with made(way).share() as shared:
            queue.put(shared)
            assert answers.get(timeout=50) is True
            assert answers.get(timeout=50) == "closed"
    finally:
        process.join(timeout=50)
        process.kill()


def test_nothing_is_left_after_many(other):
    buffer = made("pool(initial=64MiB) | mapped(handles=fd)")
    shared = buffer.share()
    alluvion.send_shared(other.connection, shared)
    assert other.do(RECEIVE % False + "; del there") == "True"
    shared.end(timeout=60)
    here, before = len(os.listdir("/proc/self/fd")), alluvion.memory_info()[0]
    theirs = other.do("import os; answer = len(os.listdir('/proc/self/fd'))")
    for _ in range(100):
        shared = buffer.share()
        alluvion.send_shared(other.connection, shared)
        assert other.do(RECEIVE % False + "; del there") == "True"
        shared.end(timeout=60)
    assert len(os.listdir("/proc/self/fd")) == here
    assert other.do("answer = len(os.listdir('/proc/self/fd'))") == theirs
    assert alluvion.sharing_figures() == (0, 0, 0, 0)
    # A driver keeps some memory of its own: not a share for each time.
    assert before - alluvion.memory_info()[0] < 64 << 20


def test_pickle_within_sharing(other):
    with alluvion.using("cuda"), alluvion.sharing() as given:
        sent = pickle.dumps(made("cuda"))
        assert other.do(f"there = pickle.loads({sent!r}); answer = there.nbytes; del there") == str(len(PATTERN))
        assert len(given.shared) == 1


def make(size):
    return alluvion.Buffer.to_device(bytes(range(256)) * (size // 256))


def measure(buffer):
    return buffer.nbytes, buffer.tobytes() == bytes(range(256)) * (buffer.nbytes // 256)


def sent():
    from alluvion import _dask_transfer

    return _dask_transfer.lender.total


@pytest.mark.parametrize("way", ["pool(initial=64MiB) | cuda", "cuda-async"])
def test_dask_moves_a_buffer_between_workers(gpu, way):
    distributed = pytest.importorskip("distributed")
    import alluvion.dask

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        client.register_plugin(alluvion.dask.MemorySetup(way))
        first, second = sorted(client.scheduler_info(n_workers=-1)["workers"])
        for size in (1 << 20, 32 << 20):
            there = client.submit(make, size, workers=[first], pure=False)
            assert client.submit(measure, there, workers=[second], pure=False).result() == (size, True)
        # By handles, where the memory can be opened by bytes alone.
        assert sum(client.run(sent).values()) == (2 if "pool" in way else 0)
