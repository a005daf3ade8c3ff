"""Tools for people's own tests: a simulated GPU for each test, and a look at many schedules, or at all of them.

pytest finds the fixture by itself where the package is installed; nothing needs to be imported:

    def test_mine(simulated_gpu):
        ...

`pytest --gpu-seeds=20` runs each test that uses the fixture twenty times, each time with another seed.
"""

from __future__ import annotations

import gc
from typing import Any, Callable, Iterable, Iterator, NamedTuple

from alluvion._alluvion import Exploration
from alluvion._simulated import Simulated


class ScheduleFailed(AssertionError):
    """A program failed under one seed, or one schedule; `seed` or `schedule` says which, and `__cause__` why."""

    def __init__(self, message: str, seed: int | None = None, schedule: str | None = None) -> None:
        super().__init__(message)
        self.seed = seed
        #: For `replay`.
        self.schedule = schedule


class Explored(NamedTuple):
    """The result of an exploration."""

    #: The schedules that were run.
    schedules: int
    #: Whether these were all.
    complete: bool


def explore(program: Callable[[Simulated], Any], *, limit: int = 100_000, **machine: Any) -> Explored:
    """Runs a small program under every schedule, each time on a new machine, for at most `limit` schedules.

    If more than one queue could go on, each is tried first; each question about work that is not done is answered both ways. A hazard, or an
    exception of the program, ends the search with `ScheduleFailed`, which names the schedule, for `replay`. `machine` has the arguments
    of `alluvion.simulated` but for a seed.

    The program must do the same on the same schedule: one thread, no clock, no chance; else it is a `RuntimeError`. The collector
    is off while it runs.

    >>> import alluvion, alluvion.testing
    >>> def program(sim):
    ...     stack = alluvion.resource("pool | cuda")
    ...     for stream in (alluvion.Stream(flags=1), alluvion.Stream(flags=1)):
    ...         buffer = alluvion.empty(100, resource=stack, stream=stream)
    ...         buffer.copy_from_device(alluvion.empty(100, resource="cuda", stream=stream), stream=stream)
    ...         del buffer
    >>> alluvion.testing.explore(program).complete
    True
    """
    exploration = _exploration(None, machine)
    while exploration.schedules_begun < limit and not exploration.is_complete:
        _run(program, exploration)
    return Explored(exploration.schedules_begun, exploration.is_complete)


def replay(program: Callable[[Simulated], Any], schedule: str, **machine: Any) -> None:
    """Runs a program under one schedule, as `ScheduleFailed` of `explore` names it, with the same arguments.

    >>> import alluvion, alluvion.testing
    >>> alluvion.testing.replay(lambda sim: print(sim), "1.0")
    Simulated(devices=1)
    """
    _run(program, _exploration(schedule, machine))


def _exploration(schedule: str | None, machine: dict[str, Any]) -> Exploration:
    if "features" in machine:
        machine = {**machine, "features": list(machine["features"].items())}
    # What is garbage by now is no schedule's.
    gc.collect()
    return Exploration(schedule, **machine)


def _run(program: Callable[[Simulated], Any], exploration: Exploration) -> None:
    # What the schedule before has left in cycles, such as its machine, goes at a moment that is no schedule's. It is all young, because the
    # collector is off while a program runs. To look at all objects costs 0.3 s a schedule beside two million of them.
    gc.collect(0)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with Simulated._of(exploration) as sim:
            program(sim)
    except Exception as error:
        schedule, _ = exploration.end() or ("-", True)
        raise ScheduleFailed(f"schedule {schedule}: {type(error).__name__}: {error}", schedule=schedule) from error
    finally:
        if was_enabled:
            gc.enable()
    schedule, is_deterministic = exploration.end() or ("-", True)
    if not is_deterministic:
        raise RuntimeError(f"the program is not deterministic: under schedule {schedule} it had other choices than before")


def explore_seeds(program: Callable[[Simulated], Any], seeds: int | Iterable[int] = 100, **machine: Any) -> int:
    """Runs a program on a new machine for each seed, so that work that nothing orders runs in many orders. Returns how often.

    `machine` has the arguments of `alluvion.simulated`. A hazard, or an exception of the program, ends the search with
    `ScheduleFailed`, which names the seed: run that one alone to look at it.

    >>> import alluvion, alluvion.testing
    >>> def program(sim):
    ...     stack = alluvion.resource("pool | cuda-async")
    ...     stack.deallocate(stack.allocate(1000), 1000)
    >>> alluvion.testing.explore_seeds(program, seeds=10)
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
            raise ScheduleFailed(f"seed {seed}: {type(error).__name__}: {error}", seed=seed) from error
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


__all__ = ["Explored", "ScheduleFailed", "assert_no_leaks", "explore", "explore_seeds", "replay"]
