"""A simulated GPU, for tests that need none."""

from __future__ import annotations

from types import TracebackType

from alluvion import _alluvion


class Simulated(_alluvion.Simulated):
    """A machine with simulated GPUs. Within `with`, every call of the package, in every thread, means it.

    At the end of the `with` block the machine says which accesses no stream orders, by an `AssertionError`, unless another
    exception is on its way or `check=False`.

    >>> import alluvion
    >>> with alluvion.Simulated(devices=2) as sim:
    ...     alluvion.device_count()
    2
    """

    def __new__(
        cls, devices: int = 1, memory: int | str | None = None, seed: int = 0, *, check: bool = True
    ) -> "Simulated":
        self = super().__new__(cls, devices, memory, seed)
        self._check = check
        return self

    def __enter__(self) -> "Simulated":
        self.enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        hazards = self.hazards()
        self.forget_resources()
        self.leave()
        if kind is None and self._check and hazards:
            raise AssertionError("accesses that no stream orders:\n" + "\n".join(hazards))


def simulated(devices: int = 1, memory: int | str | None = None, seed: int = 0, *, check: bool = True) -> Simulated:
    """A machine with simulated GPUs, to be entered by `with`."""
    return Simulated(devices, memory, seed, check=check)


__all__ = ["Simulated", "simulated"]
