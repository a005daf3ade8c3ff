"""A simulated GPU, for tests that need none."""

from __future__ import annotations

from types import TracebackType
from typing import Any, NamedTuple, Self

from alluvion import _alluvion

#: The code of the driver for each word that a fault is named by.
_CODES = {
    "out of memory": 2,
    "invalid value": 1,
    "not initialized": 3,
    "shut down": 4,
    "not supported": 801,
    "not permitted": 800,
    "illegal address": 700,
    "launch failed": 719,
    "unknown": 999,
}


class Access(NamedTuple):
    """One use of some bytes by one operation."""

    operation: str
    stream: str
    address: int
    bytes: int
    #: `read`, `write`, `touch`, `allocation` or `free`.
    mode: str
    #: The number of the submission in the machine, from 1.
    submission: int


class Hazard(str):
    """A mistake of the program, whether or not it had an effect this time: text that says all of it, and its parts."""

    #: `race`, `use before ready`, `use after free`, `out of bounds`, `double free`, `free while in use`, `leak`, …
    kind: str
    #: The earlier of the two accesses, where there are two.
    first: Access | None
    #: The later access, which completed the mistake.
    second: Access | None
    #: The missing order, or the broken rule.
    missing: str

    def __new__(cls, text: str) -> Self:
        return super().__new__(cls, text)


class HazardError(AssertionError):
    """The machine has found mistakes: `hazards` has them."""

    def __init__(self, message: str, hazards: list[Hazard]) -> None:
        super().__init__(message)
        self.hazards = hazards


class Simulated(_alluvion.Simulated):
    """A machine with simulated GPUs. Within `with`, every call of the package, in every thread, means it; of nested machines the
    innermost one is meant.

    At the end of the `with` block the machine says which accesses no stream orders, by an `AssertionError`, unless another
    exception is on its way or `check=False`. Its current resources are forgotten then.

    - `memory`: of each device, 1 GiB if left out. It costs nothing until it is touched.
    - `seed`: decides all that is random on hardware, such as the order of work that nothing orders. The same seed gives the same
      run of a program of one thread.
    - `version`: of the driver, as CUDA numbers it: 12020 is 12.2.
    - `pinned`: the most host memory that may be pinned.
    - `features`: what the devices have or lack, such as `{"memory_pools": False}`.
    - `keep_up`: work runs as soon as a pool of the driver is asked for memory, and not as late as it may.

    >>> import alluvion
    >>> with alluvion.Simulated(devices=2) as sim:
    ...     alluvion.device_count()
    2
    >>> with alluvion.simulated(memory="1 GiB", seed=7) as sim:
    ...     alluvion.memory_info()
    (1073741824, 1073741824)
    """

    def __new__(
        cls,
        devices: int = 1,
        memory: int | str | None = None,
        seed: int = 0,
        *,
        version: int = 13000,
        pinned: int | str | None = None,
        features: dict[str, bool] | None = None,
        keep_up: bool = False,
        check: bool = True,
    ) -> Self:
        self = super().__new__(cls, devices, memory, seed, version, pinned, list((features or {}).items()), keep_up)
        self._check = check
        return self

    _check: bool

    def process(self, *, check: bool = True) -> Self:
        """Another process on the same devices: it has streams, memory and handles of its own, and can open what this one shares. Within its
        `with` block every call of the package means it.

        >>> import alluvion
        >>> with alluvion.simulated() as sim:
        ...     buffer = alluvion.empty(1 << 20, resource="cuda")
        ...     before = alluvion.memory_info()
        ...     with sim.process() as other:
        ...         print(other.leaks(), alluvion.memory_info() == before)
        ...     del buffer
        [] True
        """
        other = super().__new__(type(self), beside=self)
        other._check = check
        return other

    @classmethod
    def _of(cls, exploration: _alluvion.Exploration) -> Self:
        """The machine of the next schedule."""
        machine = super().__new__(cls, of=exploration)
        machine._check = True
        return machine

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        hazards = self.hazards()
        self.forget_resources()
        self._leave()
        if kind is None and self._check and hazards:
            lines = "\n".join(str(hazard) for hazard in hazards)
            raise HazardError(f"accesses that no stream orders:\n{lines}", hazards)

    def hazards(self) -> list[Hazard]:
        """The mistakes so far. Waits for all work first.

        >>> import alluvion
        >>> with alluvion.simulated() as sim:
        ...     sim.hazards()
        []
        """
        return [_hazard(row) for row in self._hazard_rows(False)]

    def take_hazards(self) -> list[Hazard]:
        """The mistakes so far, which the machine forgets: a test that makes them on purpose takes them."""
        return [_hazard(row) for row in self._hazard_rows(True)]

    def leaks(self) -> list[Hazard]:
        """The blocks, streams and pages that are still out. Waits for all work first."""
        return [_hazard(row) for row in self._leak_rows()]

    def calls(self) -> dict[str, int]:
        """How often each kind of driver call was made, under its name in CUDA.

        >>> import alluvion
        >>> with alluvion.simulated() as sim:
        ...     stack = alluvion.resource("cuda")
        ...     stack.deallocate(stack.allocate(100), 100)
        ...     sim.calls()["cuMemAlloc"]
        1
        """
        return dict(self._call_counts())

    def fail(self, call: str | None = None, nth: int | None = 1, code: int | str = 2, *, sticky: bool = False) -> None:
        """Lets a coming call of the driver fail.

        The `nth` coming call that is named fails, counted from 1, or of all kinds together if none is named; every one with
        `nth=None`, until `clear_faults`. The call changes nothing then. `code` is a number of the driver, or one of a few words
        such as `"out of memory"`. With `sticky`, and with codes such as 700, illegal address, the device is lost from then on.

        >>> import alluvion
        >>> with alluvion.simulated() as sim:
        ...     sim.fail("cuMemAlloc", nth=2, code="out of memory")
        ...     stack = alluvion.resource("cuda")
        ...     first = stack.allocate(100)
        ...     try:
        ...         stack.allocate(100)
        ...     except MemoryError:
        ...         print("the second one failed")
        ...     stack.deallocate(first, 100)
        the second one failed
        """
        if isinstance(code, str):
            if code not in _CODES:
                raise ValueError(f"no code is called {code!r}: there are {', '.join(_CODES)}, and all numbers")
            code = _CODES[code]
        self._inject(call, nth, code, sticky)


def _hazard(row: tuple[Any, ...]) -> Hazard:
    kind, first, second, missing, text = row
    hazard = Hazard(text)
    hazard.kind, hazard.missing = kind, missing
    hazard.first, hazard.second = first and Access(*first), second and Access(*second)
    return hazard


#: The name for `with`: `with alluvion.simulated(devices=2) as sim:`.
simulated = Simulated


__all__ = ["Access", "Hazard", "HazardError", "Simulated", "simulated"]
