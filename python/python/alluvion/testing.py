"""Tools for people's own tests: a simulated GPU for each test, and a look at many schedules.

pytest finds the fixture by itself where the package is installed; nothing needs to be imported:

    def test_mine(simulated_gpu):
        ...

`pytest --gpu-seeds=20` runs each test that uses the fixture twenty times, each time with another seed.
"""

from __future__ import annotations

import gc
from typing import Any, Callable, Iterable, Iterator

from alluvion._simulated import Simulated


class ScheduleFailed(AssertionError):
    """A program failed under one seed; `seed` says which, and `__cause__` why."""

    def __init__(self, message: str, seed: int) -> None:
        super().__init__(message)
        self.seed = seed


def explore(program: Callable[[Simulated], Any], seeds: int | Iterable[int] = 100, **machine: Any) -> int:
    """Runs a program on a new machine for each seed, so that work that nothing orders runs in many orders. Returns how often.

    `machine` has the arguments of `alluvion.simulated`. A hazard, or an exception of the program, ends the search with
    `ScheduleFailed`, which names the seed: run that one alone to look at it.

    >>> import alluvion, alluvion.testing
    >>> def program(sim):
    ...     stack = alluvion.resource("pool | cuda-async")
    ...     stack.deallocate(stack.allocate(1000), 1000)
    >>> alluvion.testing.explore(program, seeds=10)
    10
    """
    runs = 0
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        runs += 1
        try:
            with Simulated(seed=seed, **machine) as sim:
                program(sim)
                gc.collect()
        except Exception as error:
            raise ScheduleFailed(f"seed {seed}: {type(error).__name__}: {error}", seed) from error
    return runs


def assert_no_leaks(sim: Simulated) -> None:
    """Fails if blocks are still out, after a collection: current resources are forgotten first.

    >>> import alluvion, alluvion.testing
    >>> with alluvion.simulated() as sim:
    ...     alluvion.testing.assert_no_leaks(sim)
    """
    sim.forget_resources()
    gc.collect()
    leaks = sim.leaks()
    if leaks:
        raise AssertionError("still out:\n" + "\n".join(str(leak) for leak in leaks))


def _simulated_machine(seed: int) -> Iterator[Simulated]:
    with Simulated(devices=2, seed=seed) as sim:
        yield sim
        gc.collect()


__all__ = ["ScheduleFailed", "assert_no_leaks", "explore"]
