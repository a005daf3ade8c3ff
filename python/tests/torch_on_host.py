"""The door to PyTorch beside PyTorch's own allocator, without a GPU: `ci/torch` compiles `native/torch` and starts this with the library.

    python torch_on_host.py DOOR.SO
"""

import ctypes
import sys
import threading

import alluvion
from alluvion import _alluvion
from doors import TABLE_NAME, Handle, pointer

TESTS = ("tensors", "pools", "captures", "streams", "limits", "snapshots", "threads")


def load(path):
    library = ctypes.CDLL(path)
    library.host_begin.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
    for name in TESTS:
        getattr(library, f"host_{name}").restype = ctypes.c_char_p
    library.host_pair_ns.restype = ctypes.c_double
    library.host_pair_ns.argtypes = [ctypes.c_size_t, ctypes.c_int]
    return library


def one(path, name):
    """One test, in a process of its own: what is installed stays PyTorch's allocator."""
    library = load(path)
    with alluvion.simulated(check=False):
        stack = alluvion.resource("stats | pool | mapped")
        handle = Handle(stack)
        streams = [alluvion.Stream() for _ in range(128)]
        handles = (ctypes.c_void_p * len(streams))(*(each.__cuda_stream__()[1] for each in streams))
        library.host_begin(pointer(_alluvion._C_API, TABLE_NAME), handle.address, handles, len(streams))
        if name == "interpreter":
            return interpreter(path, library)
        wrong = getattr(library, f"host_{name}")()
        if wrong:
            print(f"{name}: {wrong.decode()}")
            return 1
    return 0


def interpreter(path, library):
    """Pools that come and go with the interpreter held, while another thread asks for figures with it."""
    held = ctypes.PyDLL(path)
    held.host_pools_come_and_go.restype = ctypes.c_char_p
    library.host_install()
    ended = threading.Event()

    def ask():
        while not ended.is_set():
            held.host_allocated()

    asking = threading.Thread(target=ask)
    asking.start()
    wrong = held.host_pools_come_and_go(300)
    ended.set()
    asking.join()
    if wrong:
        print(f"interpreter: {wrong.decode()}")
    return 1 if wrong else 0


def main():
    path = sys.argv[1]
    if len(sys.argv) == 3:
        return one(path, sys.argv[2])
    import subprocess

    failed = []
    for name in (*TESTS, "interpreter"):
        try:
            ended = subprocess.run([sys.executable, __file__, path, name], timeout=120)
            status = ended.returncode
        except subprocess.TimeoutExpired:
            status = "no end after 120 s"
        print(f"{name}: {'ok' if status == 0 else status}", flush=True)
        if status != 0:
            failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    # Destructors of libraries that know nothing of each other are no part of it.
    status = main()
    sys.stdout.flush()
    __import__("os")._exit(status)
