"""The table of functions for compiled modules: its layout, its functions, and who may call them when."""

import ctypes
import gc
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import pytest

import alluvion
from alluvion import _alluvion
from doors import HANDLE_NAME, TABLE_NAME, Body, Handle, Table, Visitor, capsule, pointer, table

HERE = Path(__file__).parent
OUT_OF_MEMORY, INVALID_ALIGNMENT, DEVICE_MISMATCH, INVALID_ARGUMENT, UNSUPPORTED = 1, 3, 5, 8, 9
CONTEXT_LOST, SHUT_DOWN = 13, 14
#: The bytes of the first table.
FIRST = Table.reserved_bytes.offset


def header():
    return Path(alluvion.get_include(), "alluvion", "door.h").read_text()


def run(program):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(HERE)])}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)


class ByCtypes:
    """The functions of `native/door.c`, for a machine without a compiler."""

    def door_size(self):
        return ctypes.sizeof(Table)

    def door_refuses(self, address):
        found = Table.from_address(address)
        return int(found.abi_version != 1 or found.size < FIRST)

    def door_newer(self, address):
        if Table.from_address(address).size < ctypes.sizeof(Table) + ctypes.sizeof(ctypes.c_void_p):
            return -1
        newer = ctypes.c_void_p.from_address(address + ctypes.sizeof(Table)).value
        return ctypes.CFUNCTYPE(ctypes.c_int32)(newer)()

    def door_allocate(self, address, handle, nbytes, stream, block):
        return Table.from_address(address).allocate(handle, nbytes, 0, stream, block)

    def door_free(self, address, handle, block, nbytes, stream):
        Table.from_address(address).deallocate(handle, block, nbytes, 0, stream)

    def door_message(self, address, text, room):
        text.value = Table.from_address(address).last_error_message()[: room - 1]


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    """`native/door.c`, compiled as another package would; the same by ctypes where nothing compiles."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return ByCtypes()
    built = tmp_path_factory.mktemp("door") / "door.so"
    python = sysconfig.get_paths()["include"]
    flags = [f"-I{python}", "-DWITH_PYTHON"] if Path(python, "Python.h").exists() else []
    command = [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread", f"-I{alluvion.get_include()}"]
    subprocess.run([*command, *flags, HERE / "native" / "door.c", "-o", built], check=True)
    library = ctypes.CDLL(built)
    address, size = ctypes.c_void_p, ctypes.c_size_t
    library.door_refuses.argtypes = library.door_newer.argtypes = [address]
    library.door_allocate.argtypes = [address, address, size, address, ctypes.POINTER(address)]
    library.door_free.argtypes = [address, address, address, size, address]
    library.door_free.restype = library.door_message.restype = None
    library.door_message.argtypes = [address, ctypes.c_char_p, size]
    if flags:
        library.python = ctypes.PyDLL(built)
        library.python.door_table.restype = library.python.door_open.restype = ctypes.py_object
        library.python.door_open.argtypes = [ctypes.py_object]
    return library


def through(door, address, handle, nbytes, stream=0):
    block = ctypes.c_void_p()
    return door.door_allocate(address, handle.address, nbytes, stream, ctypes.byref(block)), block.value


def test_the_header_the_table_and_this_file_agree(door):
    assert table().size == ctypes.sizeof(Table) == door.door_size()
    assert (table().abi_version, table().reserved) == (1, 0)
    body = re.search(r"typedef struct alv_door_table \{(.*?)\n\} alv_door_table;", header(), re.S)[1]
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    members = [found[0] or found[1] for found in re.findall(r"\(\*(\w+)\)|(\w+);", body)]
    assert members == [name for name, _ in Table._fields_]


RAW = HERE.parents[1] / "capi" / "include" / "alluvion" / "raw.h"


@pytest.mark.skipif(not RAW.exists(), reason="the tests are not in a clone, and the library for C is not here")
def test_statuses_have_the_numbers_of_the_library_for_c():
    raw = RAW.read_text()
    of_raw = {name: int(number) for name, number in re.findall(r"#define ALV_(\w+) (\d+)\n", raw)}
    of_door = {name: int(number) for name, number in re.findall(r"    ALV_DOOR_(\w+) = (\d+)", header())}
    assert len(of_door) == 26 and of_door == {name: of_raw[name] for name in of_door}


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no compiler of C++")
def test_the_header_is_one_for_cxx(tmp_path):
    source = tmp_path / "door.cpp"
    source.write_text("#include <alluvion/door.h>\nint main() { return ALV_DOOR_HAS((alv_door_table *)0 + 1, size) ? 0 : 1; }\n")
    command = ["c++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{alluvion.get_include()}", source]
    subprocess.run(command, check=True)


def test_a_door_allocates_and_frees_by_the_stack(sim, door):
    stack = alluvion.resource("stats | pool | cuda-async", 1)
    handle, at = Handle(stack), pointer(_alluvion._C_API, TABLE_NAME)
    assert door.door_refuses(at) == 0 and door.door_newer(at) == -1
    status, block = through(door, at, handle, 1000)
    assert status == 0 and block % 256 == 0
    assert (stack.stats().current_bytes, table().device_of(handle.address)) == (1000, 1)
    assert handle.stats()[1].current_bytes == 1000
    door.door_free(at, handle.address, block, 1000, 0)
    assert stack.stats().current_bytes == 0 and handle.stats()[1].peak_bytes == 1000
    assert through(door, at, handle, 0) == (0, None)
    handle.release()


def test_a_table_that_has_grown_serves_a_door_of_today(sim, door):
    class Grown(ctypes.Structure):
        _fields_ = [("first", Table), ("newer", ctypes.CFUNCTYPE(ctypes.c_int32)), ("unknown", ctypes.c_void_p * 5)]

    grown = Grown(table(), ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: 42))
    grown.first.size = ctypes.sizeof(Grown)
    stack = alluvion.resource("stats | pool | cuda-async")
    handle, at = Handle(stack), ctypes.addressof(grown)
    assert door.door_refuses(at) == 0 and door.door_newer(at) == 42
    status, block = through(door, at, handle, 512)
    assert status == 0 and stack.stats().current_bytes == 512
    door.door_free(at, handle.address, block, 512, 0)
    assert stack.stats().current_bytes == 0
    handle.release()


@pytest.mark.parametrize(("member", "value"), [("abi_version", 2), ("abi_version", 0), ("size", FIRST - 1)])
def test_another_version_of_the_table_is_refused(door, monkeypatch, member, value):
    other = Table.from_buffer_copy(table())
    setattr(other, member, value)
    assert door.door_refuses(ctypes.addressof(other)) == 1
    if hasattr(door, "python"):
        monkeypatch.setattr(_alluvion, "_C_API", capsule(ctypes.addressof(other), TABLE_NAME))
        with pytest.raises(ImportError, match=r"alluvion has version \d of its table .* built for version 1"):
            door.python.door_table()


def test_the_first_table_is_taken(door):
    first = Table.from_buffer_copy(table())
    first.size = FIRST
    assert door.door_refuses(ctypes.addressof(first)) == 0


def test_a_capsule_of_another_name_is_refused(sim, door, monkeypatch):
    stack = alluvion.resource("cuda")
    with pytest.raises(ValueError, match="incorrect name"):
        pointer(stack.__alluvion_handle__(), TABLE_NAME)
    with pytest.raises(ValueError, match="incorrect name"):
        pointer(_alluvion._C_API, HANDLE_NAME)
    if hasattr(door, "python"):
        handle = door.python.door_open(stack)
        assert table().device_of(handle) == 0
        table().release(handle)
        with pytest.raises(AttributeError, match="__alluvion_handle__"):
            door.python.door_open("no stack")

        class Liar:
            def __alluvion_handle__(self):
                return _alluvion._C_API

        with pytest.raises(ValueError, match="incorrect name"):
            door.python.door_open(Liar())
        monkeypatch.setattr(_alluvion, "_C_API", stack.__alluvion_handle__())
        with pytest.raises(ValueError, match="incorrect name"):
            door.python.door_open(stack)


def test_streams_are_bare_numbers(sim):
    stack = alluvion.resource("stats | pool | cuda-async")
    handle, stream = Handle(stack), alluvion.Stream()
    number = stream.__cuda_stream__()[1]
    blocks = {}
    for raw in (0, 1, 2, number):
        status, blocks[raw] = handle.allocate(256, raw)
        assert status == 0
    assert len(set(blocks.values())) == 4
    for raw, block in blocks.items():
        handle.free(block, 256, raw)
    # 0 and 1 are one stream, which gets back what it has freed.
    _, block = handle.allocate(256, 1)
    assert block in (blocks[0], blocks[1])
    handle.free(block, 256, 0)
    assert stack.stats().current_bytes == 0
    handle.release()


def test_what_is_wrong_has_a_status_and_a_text(sim):
    stack = alluvion.resource("stats | limiting(1MiB) | pool | cuda-async")
    handle = Handle(stack)
    assert handle.allocate(2 << 20) == (OUT_OF_MEMORY, None)
    assert "2.0 MiB" in handle.message() or "2 MiB" in handle.message()
    assert (table().last_error_status(), table().last_requested_bytes()) == (OUT_OF_MEMORY, 2 << 20)
    assert handle.allocate(100, align=3) == (INVALID_ALIGNMENT, None)
    assert table().last_requested_bytes() == 0
    assert table().allocate(None, 1, 0, None, ctypes.byref(ctypes.c_void_p())) == INVALID_ARGUMENT
    assert "handle" in handle.message()
    assert table().allocate(handle.address, 1, 0, None, None) == INVALID_ARGUMENT
    plain = Handle(alluvion.resource("cuda"))
    assert plain.stats()[0] == UNSUPPORTED and "`stats`" in plain.message()
    # Another thread has not failed.
    said = []
    thread = threading.Thread(target=lambda: said.append((table().last_error_status(), table().last_error_message())))
    thread.start()
    thread.join()
    assert said == [(0, b"")]
    handle.release()
    plain.release()


def test_a_stream_of_another_device_is_refused(sim):
    alluvion.set_current_device(1)
    other = alluvion.Stream()
    alluvion.set_current_device(0)
    handle = Handle(alluvion.resource("pool | cuda-async", 0))
    assert handle.allocate(100, other.__cuda_stream__()[1])[0] == DEVICE_MISMATCH
    handle.release()


def test_a_wrong_free_is_left_alone_counted_and_told_once():
    ended = run("""
import alluvion
from doors import Handle
with alluvion.simulated(check=False):
    stack = alluvion.resource("stats | pool | cuda-async")
    handle = Handle(stack)
    _, block = handle.allocate(1000)
    handle.free(block, 1000)
    handle.free(block, 1000)
    handle.free(block, 1000)
    handle.free(None, 1000)
    print(handle.table.refused_frees(handle.address), stack.stats().current_bytes, handle.table.last_error_status())
    handle.release()
""")
    assert (ended.returncode, ended.stdout) == (0, "2 0 16\n"), ended.stderr
    assert ended.stderr.count("\n") == 1 and ended.stderr.startswith("alluvion: a free was refused"), ended.stderr


def test_figures_and_equality(sim):
    stack = alluvion.resource("stats | pool | cuda-async")
    handle, same, other = Handle(stack), Handle(stack), Handle(alluvion.resource("stats | pool | cuda-async"))
    equal = table().equal
    assert equal(handle.address, same.address) == 1 and equal(handle.address, other.address) == 0
    assert equal(None, None) == 1 and equal(handle.address, None) == 0
    text = ctypes.create_string_buffer(12)
    assert table().describe(handle.address, text, 12) == len(str(stack)) and text.value == str(stack)[:11].encode()
    _, block = handle.allocate(1 << 20)
    handle.free(block, 1 << 20)
    trimmed, free, total = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
    alluvion.Stream().synchronize()
    assert table().trim(handle.address, 0, ctypes.byref(trimmed)) == 0
    assert trimmed.value + stack.pool_status()["reserved_bytes"] > 0
    assert table().memory_info(handle.address, ctypes.byref(free), ctypes.byref(total)) == 0
    assert 0 < free.value <= total.value == stack.memory_info()[1]
    block = ctypes.c_void_p()
    assert table().allocate_sync(handle.address, 64, 0, ctypes.byref(block)) == 0
    assert stack.stats().current_bytes == 64
    table().deallocate_sync(handle.address, block, 64, 0)
    assert stack.stats().current_bytes == 0
    for held in (handle, same, other):
        held.release()


def blocks(sim):
    """How many blocks of the driver, and pools of its, are out. Streams and events are kept to be used again."""
    return sum("allocation of" in str(leak) or "pool" in str(leak) for leak in sim.leaks())


def test_a_handle_keeps_the_stack_and_its_last_count_ends_it(sim):
    stack = alluvion.resource("stats | pool | cuda-async")
    handle = Handle(stack)
    _, block = handle.allocate(1000)
    del stack
    gc.collect()
    assert handle.stats()[1].current_bytes == 1000
    handle.free(block, 1000)
    assert blocks(sim) > 0
    # A destructor of C++ that lets go while its thread has the interpreter.
    attached("release", ctypes.c_void_p, answer=None)(handle.address)
    assert blocks(sim) == 0


def test_a_capsule_has_a_count_of_its_own(sim):
    made = alluvion.resource("pool | cuda-async").__alluvion_handle__()
    gc.collect()
    block, at = ctypes.c_void_p(), pointer(made, HANDLE_NAME)
    assert table().allocate(at, 100, 0, None, ctypes.byref(block)) == 0
    table().deallocate(at, block, 100, 0, None)
    del made
    gc.collect()
    assert blocks(sim) == 0


def test_threads_without_the_interpreter_ask_a_handler_in_python(sim):
    asked, held = [], []

    def spill(error):
        asked.append(error.requested)
        handle.free(held.pop(), 800 << 10)
        return True

    stack = alluvion.resource("limiting(1MiB) | pool | cuda-async", on_out_of_memory=spill)
    handle = Handle(stack)
    held.append(handle.allocate(800 << 10)[1])
    answers = []
    thread = threading.Thread(target=lambda: answers.append(handle.allocate(800 << 10)))
    thread.start()
    thread.join()
    assert asked == [800 << 10] and answers[0][0] == 0
    handle.free(answers[0][1], 800 << 10)
    # The handler is the Python object's, and goes with it: a handle holds nothing of Python.
    stack = None
    gc.collect()
    assert handle.allocate(2 << 20)[0] == OUT_OF_MEMORY and asked == [800 << 10]
    handle.release()


def attached(name, *kinds, answer=ctypes.c_int32):
    """A function of the table that is called with the interpreter, as C++ calls it wherever it is called from."""
    return ctypes.PYFUNCTYPE(answer, *kinds)(ctypes.cast(getattr(table(), name), ctypes.c_void_p).value)


def test_a_caller_that_has_the_interpreter_may_be_answered_by_python(sim):
    def spill(error):
        # Another thread needs the interpreter, which nobody keeps meanwhile.
        thread = threading.Thread(target=free, args=(handle.address, held.pop(), 800 << 10, 0, 0))
        thread.start()
        thread.join()
        return True

    word = ctypes.c_void_p
    allocate = attached("allocate", word, ctypes.c_size_t, ctypes.c_size_t, word, ctypes.POINTER(word))
    free = attached("deallocate", word, word, ctypes.c_size_t, ctypes.c_size_t, word, answer=None)
    stack = alluvion.resource("stats | limiting(1MiB) | cuda", on_out_of_memory=spill)
    handle, block = Handle(stack), word()
    held = [handle.allocate(800 << 10)[1]]
    assert allocate(handle.address, 800 << 10, 0, None, ctypes.byref(block)) == 0
    assert (held, stack.stats().current_bytes) == ([], 800 << 10)
    free(handle.address, block, 800 << 10, 0, None)
    assert stack.stats().current_bytes == 0
    handle.release()


def test_what_a_handler_raises_is_of_that_request_alone(sim):
    def fail(error):
        raise KeyError("of the handler")

    stack = alluvion.resource("limiting(1MiB) | cuda", on_out_of_memory=fail)
    handle = Handle(stack)
    # Two requests that each alone would fit, so that the handler is asked.
    _, block = handle.allocate(800 << 10)
    assert handle.allocate(800 << 10)[0] == OUT_OF_MEMORY
    with pytest.raises(MemoryError) as caught:
        alluvion.resource("limiting(1KiB) | cuda").allocate(2000)
    assert caught.value.__cause__ is None
    handle.free(block, 800 << 10)
    handle.release()


def test_a_stack_whose_device_is_lost_says_so(sim):
    stack = alluvion.resource("pool | cuda-async")
    handle = Handle(stack)
    sim.lose(0)
    assert handle.allocate(1 << 20)[0] == CONTEXT_LOST
    with pytest.raises(alluvion.errors.ContextLost):
        stack.__alluvion_handle__()
    handle.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_of_a_fork_is_told_and_frees_nothing():
    ended = run("""
import os, warnings
warnings.simplefilter("ignore")
import alluvion
from doors import Handle
with alluvion.simulated():
    stack = alluvion.resource("stats | pool | cuda-async")
    handle = Handle(stack)
    _, block = handle.allocate(1000)
    _, cached = handle.allocate(1000)
    handle.free(cached, 1000)
    child = os.fork()
    if child == 0:
        # The same size lies in the cache of the stream.
        answers = [handle.allocate(1000), handle.allocate(1 << 20)]
        handle.free(block, 1000)
        try:
            stack.__alluvion_handle__()
        except alluvion.errors.ShutDown:
            answers.append("no handle")
        handle.release()
        os._exit(0 if answers == [(14, None), (14, None), "no handle"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    print(stack.stats().current_bytes)
    handle.free(block, 1000)
    handle.release()
    del stack
""")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1000\n", "")


@pytest.mark.parametrize("how", ["", "del stack; gc.collect()", "threading.Thread(target=forever, daemon=True).start()"])
def test_a_process_that_ends_with_live_blocks_is_quiet(how):
    ended = run(f"""
import gc, threading
import alluvion
from doors import Handle
machine = alluvion.simulated(check=False)
machine.__enter__()
stack = alluvion.resource("stats | tracking | pool | cuda-async")
handle = Handle(stack)
handle.allocate(1000)
def forever():
    while True:
        handle.free(handle.allocate(100)[1], 100)
{how}
""")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def native(door):
    """The file of the compiled door."""
    if isinstance(door, ByCtypes):
        pytest.skip("a thread without Python needs a compiled door, and there is no C compiler")
    return str(door._name)


@pytest.mark.parametrize("recipe", ["stats | cuda", "tracking(stacks=all) | cuda"])
@pytest.mark.parametrize("second", [False, True])
def test_a_thread_without_python_waits_for_no_interpreter(door, recipe, second):
    # Who waits for it has the interpreter. A second interpreter of the process makes `PyGILState_Check` true on every thread.
    ended = run(f"""
import ctypes, alluvion, doors
if {second}:
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    interpreters.destroy(interpreters.create())
library = ctypes.PyDLL({native(door)!r})
with alluvion.simulated():
    stack = alluvion.Stack({recipe!r})
    handle = doors.Handle(stack)
    print(library.door_on_a_thread(ctypes.c_void_p(ctypes.addressof(handle.table)), ctypes.c_void_p(handle.address)))
    handle.release()
    del stack
""")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0\n", "")


def test_a_refused_free_after_the_variables_of_the_thread_is_no_end_of_the_process(door):
    ended = run(f"""
import ctypes, alluvion, doors
library = ctypes.CDLL({native(door)!r})
alluvion.simulated(check=False).__enter__()
stack = alluvion.Stack("stats | pool | cuda")
handle = doors.Handle(stack)
status, block = handle.allocate(1000)
try:
    stack.allocate(1 << 50)
except MemoryError:
    print("a failure that is remembered")
handles = ctypes.c_void_p(ctypes.addressof(handle.table)), ctypes.c_void_p(handle.address)
print(library.door_at_exit(*handles, ctypes.c_void_p(block)))
""")
    assert (ended.returncode, ended.stdout) == (0, "a failure that is remembered\n0\n")
    assert ended.stderr.startswith("alluvion: a free was refused")


def test_python_is_called_with_the_interpreter_where_pyo3_counts_a_thread_for_attached(sim):
    # The outer function is called by this library; it calls a door, which lets go of the interpreter by itself; and the stack of that
    # one calls Python once more.
    base = alluvion.Stack("cuda")
    has = []

    def inner(nbytes, stream):
        has.append(ctypes.pythonapi.PyGILState_Check())
        return base.allocate(nbytes, stream)

    handle = Handle(alluvion.Stack("stats", over=alluvion.rmm.mr.CallbackMemoryResource(inner, base.deallocate)))
    outer = alluvion.rmm.mr.CallbackMemoryResource(lambda nbytes, stream: handle.allocate(nbytes)[1], base.deallocate)
    stop = threading.Event()

    def spin():
        while not stop.is_set():
            [object() for _ in range(100)]

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        for _ in range(200):
            outer.deallocate(outer.allocate(1000), 1000)
    finally:
        stop.set()
        thread.join()
    assert has == [1] * 200
    handle.release()


def test_what_a_function_of_the_stack_has_raised_is_told(sim):
    def handler(error):
        raise ValueError("from the handler")

    handle = Handle(stack := alluvion.Stack("limiting(1MiB) | cuda", on_out_of_memory=handler))
    held = handle.allocate(1 << 19)[1]
    status, block = handle.allocate((1 << 20) - 256)
    assert (status, block) == (OUT_OF_MEMORY, None)
    assert "a function of the stack has raised ValueError: from the handler" in handle.message()
    handle.free(held, 1 << 19)
    handle.release()
    del stack


@pytest.mark.parametrize("made", ["stack", "handle", "buffer"])
def test_an_exception_that_is_on_its_way_goes_on_while_a_destructor_calls_python(sim, made):
    base, freed = alluvion.Stack("cuda"), []

    def free(address, nbytes, stream):
        freed.append(nbytes)
        base.deallocate(address, nbytes, stream)

    def one():
        source = alluvion.rmm.mr.CallbackMemoryResource(base.allocate, free)
        if made == "buffer":
            return alluvion.rmm.DeviceBuffer(size=1000, mr=source)
        stack = alluvion.Stack("pool", over=source)
        # A segment stays in the pool.
        stack.deallocate(stack.allocate(1000), 1000)
        return stack if made == "stack" else stack.__alluvion_handle__()

    with pytest.raises(TypeError, match="int"):
        int(one())
    gc.collect()
    assert len(freed) == 1


def test_what_a_stack_has_of_the_driver_and_where(sim):
    stack = alluvion.resource("stats | pool(initial=4MiB) | cuda")
    handle, plain = Handle(stack), Handle(alluvion.resource("cuda"))
    _, block = handle.allocate(1000)
    nbytes, base, found = ctypes.c_size_t(), ctypes.c_void_p(), []
    visitor = Visitor(lambda context, address, size: found.append((context, address, size)))
    assert table().reserved_bytes(handle.address, ctypes.byref(nbytes)) == 0 and nbytes.value == 4 << 20
    assert table().segments(handle.address, visitor, 7) == 0
    ((context, address, size),) = found
    assert (context, size) == (7, 4 << 20) and address <= block < address + size
    assert table().address_range(handle.address, block + 5, ctypes.byref(base), ctypes.byref(nbytes)) == 0
    assert (base.value, nbytes.value) == (address, size)
    assert table().address_range(handle.address, block, None, None) == 0
    # What a stack cannot say, and what is no address.
    assert table().reserved_bytes(plain.address, ctypes.byref(nbytes)) == UNSUPPORTED and "`pool`" in plain.message()
    assert table().segments(plain.address, visitor, None) == UNSUPPORTED
    assert table().reserved_bytes(handle.address, None) == INVALID_ARGUMENT
    assert table().address_range(handle.address, 1, ctypes.byref(base), None) == INVALID_ARGUMENT
    handle.free(block, 1000)
    handle.release()
    plain.release()


def test_a_stream_that_is_never_destroyed_is_asked_for_nothing(sim):
    stack = alluvion.resource("pool | cuda-async")
    handle, stream = Handle(stack), alluvion.Stream()
    raw = stream.__cuda_stream__()[1]
    for each in (raw, raw, None, 1, 2):
        assert table().keep_stream(handle.address, each) == 0
    _, block = handle.allocate(1000, raw)
    handle.free(block, 1000, raw)
    before = sim.calls()
    for _ in range(10):
        _, block = handle.allocate(1000, raw)
        handle.free(block, 1000, raw)
    assert sim.calls() == before
    assert table().keep_stream(None, raw) == INVALID_ARGUMENT
    handle.release()
    del stream


def test_a_body_runs_without_the_interpreter_of_its_caller():
    ended = run("""
import ctypes, sys, threading
from doors import Body, table
# Only a caller that lets go of the interpreter lets the other thread run.
sys.setswitchinterval(1000)
wait = threading.Semaphore(0)
threading.Thread(target=wait.release).start()
address = ctypes.cast(table().detached, ctypes.c_void_p).value
with_interpreter = ctypes.PYFUNCTYPE(ctypes.c_int32, Body, ctypes.c_void_p)(address)
seen = []
body = Body(lambda context: seen.append((context, wait.acquire(timeout=60))))
print(with_interpreter(body, 7), table().detached(Body(seen.append), 8), seen)
""")
    assert (ended.returncode, ended.stdout) == (0, "0 0 [(7, True), 8]\n"), ended.stderr
