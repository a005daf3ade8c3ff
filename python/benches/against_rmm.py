"""What calls cost, here and beside: the genuine `rmm`, CuPy's and Numba's own memory. Beside PyTorch's is `training_step.py`.

    python benches/against_rmm.py [--peer FOLDER] [--rounds N] [--rows NAME,NAME]

FOLDER has the unpacked wheels of rmm-cu13, librmm-cu13 and rapids-logger. Each contestant runs in a process of its own, in turns;
a figure is the best of the rounds, and in a round the median of the repeats. Each line of the output is one figure, as JSON:
`{"row": .., "who": .., "value": .., "unit": ..}`. Times are of one call, or of one pair of calls.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

MIB = 1 << 20
Figure = tuple[str, float, str]


def load(who: str) -> Any:
    """RMM, ours or the genuine one."""
    if who == "rmm":
        import rmm
    else:
        import alluvion.rmm as rmm
    return rmm


def median_of(body: Callable[[int], None], calls: int, repeats: int = 15) -> float:
    """Nanoseconds of one call."""
    body(calls)
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        body(calls)
        times.append((time.perf_counter_ns() - start) / calls)
    return statistics.median(times)


def calls(who: str) -> Iterator[Figure]:
    """Blocks, layers, threads, copies."""
    rmm = load(who)
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 256 * MIB)
    rmm.mr.set_current_device_resource(pool)
    make = rmm.DeviceBuffer

    def buffers(count: int) -> None:
        for _ in range(count):
            make(size=256)

    yield "DeviceBuffer(size=256) over a pool", median_of(buffers, 2000), "ns"
    layers = {
        "pool": pool,
        "statistics over a pool": rmm.mr.StatisticsResourceAdaptor(pool),
        "tracking over a pool": rmm.mr.TrackingResourceAdaptor(pool),
        "tracking with call stacks over a pool": rmm.mr.TrackingResourceAdaptor(pool, True),
    }
    for name, resource in layers.items():
        allocate, deallocate = resource.allocate, resource.deallocate

        def pairs(count: int) -> None:
            for _ in range(count):
                deallocate(allocate(256), 256)

        yield f"allocate and deallocate, {name}", median_of(pairs, 200 if "stacks" in name else 2000), "ns"

    stream_class = rmm.pylibrmm.stream.Stream

    spans: list[tuple[float, float]] = []

    def work(barrier: threading.Barrier, count: int) -> None:
        stream = stream_class()
        allocate, deallocate = pool.allocate, pool.deallocate
        barrier.wait()
        # Each thread says when it began and ended: who waits for them may get the interpreter long after.
        start = time.perf_counter()
        for _ in range(count):
            deallocate(allocate(256, stream), 256, stream)
        spans.append((start, time.perf_counter()))

    for threads in (1, 8):
        best = 0.0
        for _ in range(3):
            spans.clear()
            barrier, count = threading.Barrier(threads), 400_000 // threads if who == "ours" else 40_000 // threads
            workers = [threading.Thread(target=work, args=(barrier, count)) for _ in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            seconds = max(end for _, end in spans) - min(start for start, _ in spans)
            best = max(best, threads * count / seconds / 1e6)
        yield f"pairs of {threads} threads, a stream each", best, "M/s"

    data = bytes(MIB)
    to_device = rmm.DeviceBuffer.to_device

    def uploads(count: int) -> None:
        for _ in range(count):
            to_device(data)

    yield "to_device of 1 MiB", median_of(uploads, 50) / 1000, "us"
    buffer = to_device(data)

    def downloads(count: int) -> None:
        for _ in range(count):
            buffer.tobytes()

    yield "tobytes of 1 MiB", median_of(downloads, 50) / 1000, "us"


def imports(who: str) -> Iterator[Figure]:
    """A cold import, without what NumPy takes itself."""
    name = "rmm" if who == "rmm" else "alluvion.rmm"
    start = time.perf_counter_ns()
    __import__(name)
    yield "import, cold", (time.perf_counter_ns() - start) / 1e6, "ms"
    if who == "ours":
        guests = [guest for guest in ("cupy", "numba", "torch", "cuda.bindings", "numpy") if guest in sys.modules]
        yield "foreign modules that the import loads", float(len(guests)), "modules"


def cupy_arrays(who: str) -> Iterator[Figure]:
    """`cupy.empty(256)`."""
    import cupy

    if who != "own":
        rmm = load(who)
        rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 256 * MIB))
        if who == "rmm":
            from rmm.allocators.cupy import rmm_cupy_allocator
        else:
            from alluvion.rmm.allocators.cupy import rmm_cupy_allocator
        cupy.cuda.set_allocator(rmm_cupy_allocator)
    empty = cupy.empty

    def arrays(count: int) -> None:
        for _ in range(count):
            empty(256)

    yield "cupy.empty(256)", median_of(arrays, 2000), "ns"
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        yield "cupy.empty(256) on a stream of its own", median_of(arrays, 2000), "ns"


def numba_arrays(who: str) -> Iterator[Figure]:
    """`numba.cuda.device_array` of 1 MiB."""
    from numba import cuda

    if who != "own":
        rmm = load(who)
        rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 256 * MIB))
        if who == "rmm":
            from rmm.allocators.numba import RMMNumbaManager
        else:
            from alluvion.rmm.allocators.numba import RMMNumbaManager
        cuda.set_memory_manager(RMMNumbaManager)
    make = cuda.device_array

    def arrays(count: int) -> None:
        for _ in range(count):
            make(MIB, dtype="u1")

    yield "numba device_array of 1 MiB", median_of(arrays, 200, 9) / 1000, "us"
    if who == "ours":

        def empties(count: int) -> None:
            for _ in range(count):
                make(0, dtype="u1")

        yield "numba device_array of 0 bytes", median_of(empties, 200, 9) / 1000, "us"


def pinned(who: str) -> Iterator[Figure]:
    """A pinned array of 1 GiB, made and dropped."""
    if who == "own":
        import cupyx

        make: Callable[..., Any] = cupyx.empty_pinned
    else:
        import alluvion.pinned

        make = alluvion.pinned.empty
    # The first call of a process makes the driver's context.
    make(256, "u1")
    times = []
    for _ in range(3):
        start = time.perf_counter_ns()
        array = make(1 << 30, "u1")
        times.append((time.perf_counter_ns() - start) / 1e6)
        del array
        gc.collect()
        # The pools give back the memory that they kept, so that each array is made anew.
        if who == "own":
            import cupy

            cupy.get_default_pinned_memory_pool().free_all_blocks()
        else:
            alluvion.pinned.trim()
    yield "pinned array of 1 GiB, the first", times[0], "ms"
    yield "pinned array of 1 GiB, best of 3", min(times), "ms"


#: For each row: what is run, for whom, and how often more than once is too dear.
ROWS: dict[str, tuple[Callable[[str], Iterator[Figure]], list[str], int]] = {
    "calls": (calls, ["ours", "rmm"], 99),
    "cupy": (cupy_arrays, ["ours", "own", "rmm"], 99),
    "imports": (imports, ["ours", "rmm"], 99),
    "numba": (numba_arrays, ["ours", "own", "rmm"], 1),
    "pinned": (pinned, ["ours", "own"], 1),
}


def child(row: str, who: str, peer: str | None) -> list[Figure]:
    """The figures of one contestant, from a process of its own."""
    command = [sys.executable, os.path.abspath(__file__), "--child", row, who]
    environment = dict(os.environ)
    if who == "rmm":
        assert peer is not None
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [peer, environment.get("PYTHONPATH")]))
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    except subprocess.TimeoutExpired:
        print(json.dumps({"row": row, "who": who, "failed": "not done in 60 s"}), flush=True)
        return []
    figures = [tuple(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")]
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason"])[-1][:200]
        print(json.dumps({"row": row, "who": who, "failed": reason}), flush=True)
        print(done.stderr, file=sys.stderr)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="the folder with the unpacked wheels of rmm")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        row, who = options.child
        for figure in ROWS[row][0](who):
            print(json.dumps(figure), flush=True)
        return
    for row in options.rows.split(","):
        _, contestants, most = ROWS[row]
        best: dict[tuple[str, str], tuple[float, str]] = {}
        # A contestant that fails once is not run again: each try takes seconds.
        failed: set[str] = set()
        for _ in range(min(options.rounds, most)):
            for who in contestants:
                if who in failed or (who == "rmm" and options.peer is None):
                    continue
                figures = child(row, who, options.peer and os.path.abspath(options.peer))
                if not figures:
                    failed.add(who)
                for name, value, unit in figures:
                    before = best.get((name, who))
                    choose = max if unit == "M/s" else min
                    best[name, who] = (value if before is None else choose(value, before[0]), unit)
        for (name, who), (value, unit) in best.items():
            print(json.dumps({"row": name, "who": who, "value": round(value, 3), "unit": unit}), flush=True)


if __name__ == "__main__":
    main()
