"""Memory that several processes use: simulated processes on one simulated machine."""

import ctypes
import gc
import os
import pickle
import signal
import socket
import threading
import weakref

import pytest

import alluvion
from alluvion import errors

WAYS = ["cuda", "pool | cuda", "cuda-async(handles=fd)", "mapped(handles=fd)", "pool | mapped(handles=fd)"]


def descriptors():
    return sorted(os.listdir("/proc/self/fd"))


def memory_left(process):
    """What a process has not given back but events and streams, which it keeps for later."""
    return [leak for leak in process.leaks() if not leak.startswith(("leak: event", "leak: stream"))]


@pytest.fixture
def two(sim):
    """Two processes. At the end both have given everything back, and no descriptor is left."""
    before = descriptors()
    with sim.process() as other:
        pass
    yield sim, other
    gc.collect()
    with other:
        assert alluvion.sharing_figures() == (0, 0, 0, 0)
        other.forget_resources()
    assert memory_left(other) == []
    assert alluvion.sweep_shared() == 0 and alluvion.sharing_figures() == (0, 0, 0, 0)
    gc.collect()
    assert len(descriptors()) == len(before)


def opened(shared, **options):
    fd = shared.fileno() if shared.needs_descriptor else None
    return alluvion.open_shared(shared.message, fd, **options)


@pytest.mark.parametrize("way", WAYS)
def test_another_process_reads_the_bytes(two, way):
    _, other = two
    with alluvion.using(way):
        buffer = alluvion.Buffer.to_device(bytes(range(100)))
        shared = buffer.share()
        assert isinstance(shared, alluvion.Shared)
        assert shared.nbytes == 100 <= shared.visible_bytes
        assert not shared.is_writable and not shared.is_over and shared.importers == 0
        assert shared.needs_descriptor == ("handles" in way)
        with other:
            there = opened(shared)
            assert there.tobytes() == bytes(range(100)) and there.nbytes == len(there) == 100
            assert alluvion.sharing_figures()[:2] == (1, 100)
            again = opened(shared)
            assert alluvion.sharing_figures()[:2] == (2, 200)
            assert again.ptr == there.ptr
        assert shared.importers == 1
        del there, again
        shared.end(timeout=0)
        assert shared.is_over
        shared.end()
        # The buffer was its owner's all the time.
        assert buffer.tobytes() == bytes(range(100))
        del buffer, shared


def test_a_pool_shares_its_segment_once(two):
    _, other = two
    with alluvion.using("pool(initial=8MiB) | cuda"):
        buffers = [alluvion.Buffer.to_device(bytes([n]) * 300) for n in range(10)]
        shared = [buffer.share() for buffer in buffers]
        with other:
            calls = other.calls().get("cuIpcOpenMemHandle_v2", 0) + other.calls().get("cuIpcOpenMemHandle", 0)
            there = [opened(one) for one in shared]
            assert [one.tobytes() for one in there] == [bytes([n]) * 300 for n in range(10)]
            found = other.calls().get("cuIpcOpenMemHandle_v2", 0) + other.calls().get("cuIpcOpenMemHandle", 0)
            assert found - calls == 1
        assert shared[0].visible_bytes >= 8 << 20
        del there
        for one in shared:
            one.end(timeout=0)
        del buffers, shared, one


def share_lines(page):
    found = dict(line.split("{device=\"0\"} ") for line in page.splitlines() if line.startswith("alluvion_share_"))
    names = ("imports", "imported_bytes", "parked", "parked_bytes")
    assert len(found) == len(names)
    return tuple(int(found[f"alluvion_share_{name}"]) for name in names)


def test_a_page_of_metrics_says_what_is_shared(two):
    _, other = two
    shared = alluvion.empty(100, resource="cuda").share()
    assert share_lines(alluvion.metrics()) == (0, 0, 0, 0)
    with other:
        there = opened(shared)
        assert share_lines(alluvion.metrics()) == (1, 100, 0, 0) == alluvion.sharing_figures()
        assert share_lines(alluvion.resource("cuda").metrics()) == (1, 100, 0, 0)
    del shared
    gc.collect()
    assert share_lines(alluvion.metrics()) == (0, 0, 1, 100) == alluvion.sharing_figures()
    with other:
        del there
        assert share_lines(alluvion.metrics()) == (0, 0, 0, 0)
    assert alluvion.sweep_shared() == 1
    assert share_lines(alluvion.metrics()) == (0, 0, 0, 0)


def test_no_bytes_are_shared_too(two):
    _, other = two
    shared = alluvion.empty(0).share()
    with other:
        there = opened(shared)
        assert (there.ptr, there.nbytes, there.tobytes()) == (0, 0, b"")
        del there
    shared.end(timeout=0)


def test_to_be_read_means_that_the_interfaces_say_so(two):
    _, other = two
    with pytest.raises(errors.Unsupported, match="handle type"):
        # The default of the machine is a pool of the driver's without handles.
        alluvion.empty(10, resource="cuda-async").share()
    buffer = alluvion.empty(4, resource="cuda")
    buffer.copy_from_host(b"abcd")
    shared = buffer.share()
    with other:
        there = opened(shared)
        assert there.__cuda_array_interface__["data"] == (there.ptr, True)
        with pytest.raises(BufferError, match="read-only"):
            there.__dlpack__()
        capsule = there.__dlpack__(max_version=(1, 0))
        view = alluvion.from_dlpack(there)
        assert view.tobytes() == b"abcd"
        for write in (lambda: there.copy_from_host(b"x"), lambda: view.copy_from_host(b"x")):
            with pytest.raises((ValueError, BufferError, RuntimeError), match="read"):
                write()
        with pytest.raises(errors.InvalidArgument, match="to be read"):
            opened(shared, writable=True)
        with pytest.raises(errors.Unsupported, match="another process"):
            there.share()
        del there, capsule, view, write
    shared.end(timeout=0)
    del buffer


def test_to_be_written(two):
    _, other = two
    buffer = alluvion.empty(4, resource="cuda")
    buffer.copy_from_host(b"abcd")
    shared = buffer.share(writable=True)
    assert shared.is_writable
    with other:
        there = opened(shared, writable=True)
        assert there.__cuda_array_interface__["data"] == (there.ptr, False)
        there.copy_from_host(b"xy")
        del there
    shared.end(timeout=0)
    assert buffer.tobytes() == b"xycd"
    del buffer


def test_what_an_importer_does_follows_what_the_exporter_did(two):
    # The machine notes a race of two processes over one memory: its check at the end is the proof.
    _, other = two
    stream = alluvion.Stream(flags=1)
    buffer = alluvion.empty(1 << 20, resource="cuda", stream=stream)
    source = alluvion.Buffer.to_device(b"q" * (1 << 20))
    buffer.copy_from_device(source, stream)
    shared = buffer.share(stream=alluvion.Stream(flags=1))
    with other:
        theirs = alluvion.Stream(flags=1)
        there = opened(shared, stream=theirs)
        mine = alluvion.empty(1 << 20, stream=alluvion.Stream(flags=1))
        mine.copy_from_device(there, alluvion.Stream(flags=1))
        del there
        assert mine.tobytes(alluvion.Stream(flags=1)) == b"q" * (1 << 20)
        del mine, theirs
    shared.end(timeout=0)
    del shared, buffer, source, stream


def test_the_end_waits_and_gives_up_in_time(two):
    _, other = two
    buffer = alluvion.empty(100, resource="cuda")
    shared = buffer.share()
    with other:
        there = opened(shared)
    with pytest.raises(TimeoutError, match="still has"):
        shared.end(timeout=0)
    with pytest.raises(TimeoutError):
        shared.end(timeout=0.01)
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            shared.end(timeout=wrong)
    assert not shared.is_over and shared.importers == 1
    ended = threading.Thread(target=shared.end)
    ended.start()
    # Whatever the other thread waits for, this one is not kept from the interpreter.
    assert not shared.is_over
    del there
    ended.join()
    assert shared.is_over
    del buffer


@pytest.fixture
def ctrl_c():
    # A shell starts what runs in the background with this signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_the_wait_and_not_the_sharing(two, ctrl_c):
    _, other = two
    shared = alluvion.empty(100, resource="cuda").share()
    with other:
        there = opened(shared)
    waiting = threading.Event()

    def interrupt():
        waiting.wait()
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        waiting.set()
        shared.end()
    thread.join()
    assert shared.importers == 1 and not shared.is_over
    del there
    shared.end(timeout=0)


def test_a_block_waits_for_the_importers_unless_it_fails(two):
    _, other = two
    buffer = alluvion.empty(100, resource="cuda")
    with buffer.share() as shared, other:
        there = opened(shared)
        del there
    assert shared.is_over
    with pytest.raises(ZeroDivisionError), buffer.share() as shared:
        with other:
            there = opened(shared)
        1 // 0
    assert not shared.is_over
    del there
    shared.end(timeout=0)
    del buffer


def test_what_is_dropped_lives_until_the_importers_are_done(two):
    _, other = two
    with alluvion.using("stats | cuda") as stack:
        shared = alluvion.Buffer.to_device(b"abc").share()
        message = shared.message
        with other:
            there = alluvion.open_shared(message)
        weak = weakref.ref(shared)
        del shared
        assert weak() is None
        assert alluvion.sharing_figures()[2:] == (1, 3)
        assert stack.stats().current_bytes == 3
        assert alluvion.sweep_shared() == 0
        with other:
            assert there.tobytes() == b"abc"
            del there
        assert alluvion.sweep_shared() == 1
        assert stack.stats().current_bytes == 0
        with other, pytest.raises(errors.Stale):
            alluvion.open_shared(message)


def test_a_buffer_that_is_shared_does_not_move(two):
    buffer = alluvion.empty(100, resource="cuda")
    shared = buffer.share()
    with pytest.raises(BufferError, match="shared"):
        buffer.resize(1 << 20)
    shared.end(timeout=0)
    buffer.resize(1 << 20)
    del buffer


def test_messages_that_cannot_be_opened(two):
    _, other = two
    shared = alluvion.empty(100, resource="cuda").share()
    with pytest.raises(errors.OwnProcess):
        opened(shared)
    with pytest.raises(TypeError, match="message"):
        alluvion.open_shared(shared)
    for wrong in (b"", b"x" * 400, shared.message[:-1], b"ALVS\xff\xff" + shared.message[6:]):
        with other, pytest.raises(errors.Malformed):
            alluvion.open_shared(wrong)
    with other, pytest.raises(RuntimeError, match=r"GPU 0|device 0|gpu 0"):
        opened(shared, device=1)
    with other, pytest.raises(errors.NoDevice):
        opened(shared, device=7)
    with pytest.raises(ValueError, match="no descriptor"):
        shared.fileno()
    shared.end(timeout=0)
    with other, pytest.raises(errors.Stale):
        opened(shared)
    with pytest.raises(ValueError, match="over"):
        pickle.dumps(shared)

    pages = alluvion.empty(100, resource="mapped(handles=fd)").share()
    with other:
        with pytest.raises(errors.InvalidArgument, match="descriptor"):
            alluvion.open_shared(pages.message)
        with pytest.raises(ValueError, match="-1"):
            alluvion.open_shared(pages.message, -1)
        with pytest.raises(OSError):
            alluvion.open_shared(pages.message, 1 << 20)
        with open(os.devnull) as null, pytest.raises(RuntimeError):
            alluvion.open_shared(pages.message, null)
        with open(os.dup(pages.fileno()), "rb", buffering=0) as copy:
            there = alluvion.open_shared(pages.message, copy)
        del there
    pages.end(timeout=0)
    with pytest.raises(ValueError, match="over"):
        pages.fileno()


def test_a_peer_is_opened_when_it_is_asked_for(two):
    _, other = two
    buffer = alluvion.empty(3, resource="cuda")
    buffer.copy_from_host(b"abc")
    shared = buffer.share()
    with other:
        there = opened(shared, device=1, peer=True)
        assert there.tobytes() == b"abc"
        assert alluvion.sharing_figures(1)[:2] == (1, 3) and alluvion.sharing_figures(0)[:2] == (0, 0)
        del there
    shared.end(timeout=0)
    del buffer


def test_memory_that_cannot_be_shared_says_why(two):
    for resource in ("managed", "cuda-async", "mapped"):
        buffer = alluvion.empty(100, resource=resource)
        with pytest.raises(errors.Unsupported):
            buffer.share()
        assert alluvion.sharing_figures() == (0, 0, 0, 0)
        # Nothing is left of it: the buffer moves and frees as before.
        buffer.resize(1 << 20)
        del buffer


def test_faults_lose_nothing(two):
    sim, other = two
    buffer = alluvion.empty(100, resource="cuda")
    for call in ("cuIpcGetMemHandle", "cuEventRecord"):
        sim.fail(call, code="unknown")
        with pytest.raises(RuntimeError):
            buffer.share()
        sim.clear_faults()
    # Without an event the host waits instead.
    sim.fail("cuIpcGetEventHandle", code="unknown")
    buffer.share().end(timeout=0)
    assert sim.faults_left == 0
    shared = buffer.share()
    for call in ("cuIpcOpenMemHandle", "cuIpcOpenEventHandle", "cuEventQuery"):
        with other:
            other.fail(call, code="unknown")
            with pytest.raises(RuntimeError):
                opened(shared)
            assert other.faults_left == 0
            assert alluvion.sharing_figures() == (0, 0, 0, 0)
    shared.end(timeout=0)
    del buffer


def test_an_exporter_that_dies_leaves_what_is_open(sim):
    # Here the child process exports, and is killed.
    with sim.process(check=False) as exporter:
        buffer = alluvion.empty(3, resource="cuda")
        buffer.copy_from_host(b"abc")
        shared = buffer.share()
        message = shared.message
    there = alluvion.open_shared(message)
    exporter.kill()
    assert there.tobytes() == b"abc"
    del there
    with exporter:
        shared.end(timeout=0)
        with pytest.raises(errors.ShutDown):
            buffer.tobytes()
        del buffer, shared
    with pytest.raises(errors.Stale):
        alluvion.open_shared(message)
    assert memory_left(sim) == []


def test_pickles_are_bytes_by_default_and_handles_within_sharing(two):
    _, other = two
    with alluvion.using("cuda"):
        buffer = alluvion.Buffer.to_device(bytes(range(200)))
        assert len(pickle.dumps(buffer)) > 200
        assert pickle.loads(pickle.dumps(buffer)).tobytes() == bytes(range(200))
        with alluvion.sharing(writable=True) as given:
            sent = pickle.dumps([buffer, buffer, "rest"], protocol=5)
            # One object is pickled once.
            assert len(given.shared) == 1
            with other:
                one, two, rest = pickle.loads(sent)
                assert one is two and rest == "rest"
                assert one.tobytes() == bytes(range(200))
                one.copy_from_host(b"!")
                del one, two
        assert given.shared == []
        assert buffer.tobytes()[:2] == b"!\x01"
        # A `Shared` is a handle everywhere.
        shared = buffer.share()
        sent = pickle.dumps(shared)
        with other:
            there = pickle.loads(sent)
            assert there.tobytes()[:2] == b"!\x01"
            del there
        shared.end(timeout=0)
        # The block has ended: bytes again, also in another thread's block.
        with alluvion.sharing() as given:
            thread = threading.Thread(target=lambda: pickle.dumps(buffer))
            thread.start()
            thread.join()
            assert given.shared == []
            with pytest.raises(RuntimeError, match="entered already"):
                given.__enter__()
        assert len(pickle.dumps(buffer)) > 200 and given.shared == []
        with pytest.raises(TimeoutError), alluvion.sharing(timeout=0) as given:
            sent = pickle.dumps(buffer)
            with other:
                there = pickle.loads(sent)
        del there
        given.end(timeout=0)
        del buffer, shared


def test_a_pickle_has_a_descriptor_where_one_is_needed(two):
    from multiprocessing import resource_sharer

    _, other = two
    with alluvion.using("mapped(handles=fd)"), alluvion.sharing() as given:
        buffer = alluvion.Buffer.to_device(b"abc")
        try:
            sent = pickle.dumps(buffer)
            with other:
                there = pickle.loads(sent)
                assert there.tobytes() == b"abc"
                del there
        finally:
            # Its thread and its socket are the standard library's.
            resource_sharer.stop()
        given.end(timeout=0)
        del buffer


def test_a_block_on_several_pages_goes_by_one_descriptor(two):
    from multiprocessing import resource_sharer

    _, other = two
    here, there = socket.socketpair()
    sent_bytes = bytes(range(256)) * (3 << 12)
    # One page is there, of 2 MiB, and the block is longer.
    with here, there, alluvion.using("pool(initial=2MiB) | mapped(handles=fd)"), alluvion.sharing() as given:
        buffer = alluvion.Buffer.to_device(sent_bytes)
        shared = buffer.share()
        assert (shared.nbytes, shared.visible_bytes) == (3 << 20, 4 << 20)
        alluvion.send_shared(here, shared)
        try:
            pickled = pickle.dumps(buffer)
            with other:
                got = [opened(shared), alluvion.receive_shared(there), pickle.loads(pickled)]
                assert all(one.tobytes() == sent_bytes for one in got)
                del got
        finally:
            # Its thread and its socket are the standard library's.
            resource_sharer.stop()
        given.end(timeout=0)
        shared.end(timeout=0)
        del buffer, shared


@pytest.mark.parametrize("way", ["cuda", "cuda-async(handles=fd)", "mapped(handles=fd)"])
def test_a_socket_carries_message_and_descriptor(two, way):
    _, other = two
    here, there = socket.socketpair()
    with here, there, alluvion.using(way):
        buffers = [alluvion.Buffer.to_device(bytes([65 + n]) * 9) for n in range(3)]
        shared = [buffer.share() for buffer in buffers]
        for one in shared:
            alluvion.send_shared(here, one)
        with other:
            got = [alluvion.receive_shared(there) for _ in shared]
            assert [one.tobytes() for one in got] == [b"A" * 9, b"B" * 9, b"C" * 9]
            del got
        for one in shared:
            one.end(timeout=0)
        del buffers, shared, one


def test_a_socket_that_ends_or_lies(two):
    before = descriptors()
    here, there = socket.socketpair()
    with there, pytest.raises(EOFError):
        with here:
            here.sendall(b"\0\0\1")
        alluvion.receive_shared(there)
    here, there = socket.socketpair()
    with here, there:
        # With a descriptor that nobody asked for.
        socket.send_fds(here, [b"\xff\xff\xff\xff"], [0])
        with pytest.raises(ValueError, match="announces"):
            alluvion.receive_shared(there)
    assert descriptors() == before


class Ending:
    """A socket that has a `Shared` ended, and the number of its descriptor taken by another file, before anything is sent."""

    def __init__(self, connection, shared, elsewhere):
        self.connection, self.shared, self.elsewhere = connection, shared, elsewhere

    def sendmsg(self, *arguments):
        number = self.shared.fileno()
        self.shared.end(timeout=0)
        self.opened = os.open(self.elsewhere, os.O_RDONLY)
        if self.opened != number:
            os.dup2(self.opened, number)
            os.close(self.opened)
            self.opened = number
        return self.connection.sendmsg(*arguments)

    def sendall(self, data):
        self.connection.sendall(data)


def test_an_end_meanwhile_sends_no_other_file(sim, tmp_path):
    elsewhere = tmp_path / "private"
    elsewhere.touch()
    here, there = socket.socketpair()
    with here, there, alluvion.using("mapped(handles=fd)"):
        shared = alluvion.empty(100).share()
        ending = Ending(here, shared, elsewhere)
        alluvion.send_shared(ending, shared)
        _, [received], _, _ = socket.recv_fds(there, 4096, 1)
        assert not os.path.samestat(os.fstat(received), os.fstat(ending.opened))
        os.close(received)
        os.close(ending.opened)


def test_a_child_of_a_fork_waits_for_no_thread_of_its_parent(sim):
    buffer = alluvion.empty(100, resource="mapped(handles=fd)")
    shared = buffer.share()
    done = threading.Event()

    def ask():
        while not done.is_set():
            shared.importers

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for _ in range(50):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    # A child that waits for ever is ended.
                    signal.alarm(60)
                    answers = []
                    for look in (lambda: shared.importers, shared.fileno, lambda: shared.end(timeout=0)):
                        try:
                            look()
                        except errors.ShutDown:
                            answers.append("shut down")
                    code = 0 if len(answers) == 3 else 2
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        done.set()
        thread.join()
    shared.end(timeout=0)
    del buffer, shared


def test_many_threads_share_open_and_end(sim):
    other = sim.process()
    problems = []

    def work(n):
        try:
            for round in range(10):
                buffer = alluvion.Buffer.to_device(bytes([n, round]) * 50)
                shared = buffer.share()
                assert shared.importers == 0
                shared.end()
                assert shared.is_over
        except BaseException as problem:
            problems.append(problem)

    with alluvion.using("pool | cuda"):
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert problems == []
    del other


def test_a_child_of_a_fork_has_no_part(sim):
    with alluvion.using("cuda"):
        buffer = alluvion.Buffer.to_device(b"abc")
        shared = buffer.share()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                try:
                    shared.end(timeout=0)
                except errors.ShutDown:
                    del shared
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert not shared.is_over and shared.importers == 0
        shared.end(timeout=0)
        del buffer, shared


def test_pytorch_shares_the_segment_that_a_block_lies_in(sim):
    library = ctypes.CDLL(alluvion._alluvion.__file__)
    base = library.alluvion_torch_base_allocation
    base.restype, base.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
    with alluvion.using("pool(initial=8MiB) | cuda"):
        first, second = alluvion.empty(1000), alluvion.empty(1000)
        size = ctypes.c_size_t()
        start = base(second.ptr, ctypes.byref(size))
        assert start <= first.ptr < start + size.value and start <= second.ptr
        # It is what another process opens.
        shared = second.share()
        assert shared.visible_bytes == size.value
        shared.end(timeout=0)
        del first, second, shared
    # Of an address that no allocation has, nothing is made up.
    size.value = 77
    assert base(4096, ctypes.byref(size)) == 4096 and size.value == 0
    assert base(None, None) is None
