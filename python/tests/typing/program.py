"""A user's program, for type checkers alone: `ci/python` runs mypy --strict and pyright over it.

A line that must be an error has `type: ignore`, and the checkers fail where such a line is none.
"""

from typing import Any, assert_type

import numpy
from numpy.typing import NDArray

import alluvion
import alluvion.rmm as rmm
from alluvion.errors import OutOfMemory
from alluvion.rmm import mr
from alluvion.rmm.pylibrmm.memory_resource import PoolMemoryResource
from alluvion.rmm.pylibrmm.stream import Stream


def spill(error: OutOfMemory) -> bool:
    return error.requested is not None and error.requested < 100


def stacks() -> None:
    with alluvion.using("stats | pool | cuda-async") as named:
        assert_type(named, alluvion.Stack)
    stack = alluvion.resource("stats | guard | pool | cuda-async", on_out_of_memory=spill)
    with alluvion.using(stack, thread=True) as current:
        assert_type(current, alluvion.Stack)
        assert_type(current.stats().current_bytes, int)
        for found in current.violations():
            assert_type(found.address, int)
            assert_type(found.offset, int | None)
    with alluvion.using(alluvion.per_device("pool | cuda")) as each:
        assert_type(each[0], alluvion.Stack)
    limit = stack.limit()
    limit.bytes  # type: ignore[union-attr]
    assert_type(stack.allocate_many(["1 KiB", 100]), list[alluvion.DeviceBuffer])
    with stack.reserve("1 KiB") as reservation:
        assert_type(reservation.bytes, int)
    stack.on_soft_limit(lambda crossing: print(crossing.used_bytes), soft="1 KiB")
    with stack.capture(alluvion.Stream()) as memory:
        assert_type(memory.release(), int)
    stack.on_soft_limit(7)  # type: ignore[arg-type]
    stack.allocate("1 KiB")  # type: ignore[arg-type]
    alluvion.nothing_like_it  # type: ignore[attr-defined]


def rapids() -> None:
    resource = alluvion.rapids.DeviceResource("stats | pool | cuda-async", device=1)
    assert_type(resource.stack, alluvion.Stack)
    assert_type(alluvion.rapids.install("pool | cuda-async")[0], alluvion.Stack)
    alluvion.rapids.DeviceResource(7)  # type: ignore[arg-type]


def buffers() -> None:
    buffer = alluvion.empty("1 KiB")
    assert_type(buffer, alluvion.DeviceBuffer)
    assert_type(buffer.tobytes(), bytes)
    numbers: NDArray[Any] = alluvion.pinned.zeros((2, 3), dtype="f4")
    buffer.copy_from_host(numbers.view(numpy.uint8))


def simulated() -> None:
    with alluvion.simulated(devices=2, memory="1 GiB") as sim:
        assert_type(sim, alluvion.Simulated)
        assert_type(sim.leaks(), list[alluvion.Hazard])
    assert_type(alluvion.get_include(), str)
    assert_type(alluvion.testing.explore(print).complete, bool)
    assert_type(alluvion.Stream().record(), alluvion.Event)
    assert_type(alluvion.testing.explore_seeds(lambda machine: machine.hazards(), seeds=3), int)


def old_classes() -> None:
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size="64 MiB")
    assert_type(pool, mr.PoolMemoryResource)
    assert_type(pool, PoolMemoryResource)
    assert_type(pool.pool_size(), int)
    limited = mr.LimitingResourceAdaptor(pool, 1 << 20)
    assert_type(limited.get_allocation_limit(), int)
    with mr.using(limited) as current:
        assert_type(current, mr.LimitingResourceAdaptor)
    mr.set_current_device_resource(limited)
    mr.nothing_like_it  # type: ignore[attr-defined]
    rmm.nothing_like_it  # type: ignore[attr-defined]
    mr.PoolMemoryResource()  # type: ignore[call-arg]
    assert_type(rmm.DeviceBuffer(size=100, stream=Stream()), rmm.DeviceBuffer)
    rmm.statistics.enable_statistics()
    rmm.install()
    assert_type(alluvion.rmm.mr.available_device_memory(), tuple[int, int])


class Counted(mr.CallbackMemoryResource):
    """A class that passes functions of its own."""

    def __init__(self, most: int) -> None:
        self.most, self.cuda = most, mr.CudaMemoryResource()
        super().__init__(self.take, self.give)

    def take(self, nbytes: int, stream: Stream) -> int:
        return self.cuda.allocate(nbytes, stream)

    def give(self, ptr: int, nbytes: int, stream: Stream) -> None:
        self.cuda.deallocate(ptr, nbytes, stream)


class Pages(mr.PoolMemoryResource):
    """A class that derives from one of ours."""

    def pages(self) -> int:
        return self.pool_size() // 4096
