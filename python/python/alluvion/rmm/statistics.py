"""Counts of the current device's memory, and a profile of functions.

>>> import alluvion
>>> from alluvion import rmm
>>> from alluvion.rmm import statistics
>>> with alluvion.simulated():
...     with statistics.statistics():
...         mr = rmm.mr.get_current_device_resource()
...         mr.deallocate(mr.allocate(1000), 1000)
...         statistics.get_statistics().peak_bytes
1000
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, TypeVar

from alluvion._fork import ForkLock
from alluvion.rmm import mr

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass
class Statistics:
    """How much is allocated, and how much there was at most and in all: bytes, and allocations.

    A figure can be read as an attribute or by its name: `counts.peak_bytes`, `counts["peak_bytes"]`.
    """

    current_bytes: int
    current_count: int
    peak_bytes: int
    peak_count: int
    total_bytes: int
    total_count: int

    def __getitem__(self, name: str) -> int:
        if name not in self.__dataclass_fields__:
            raise KeyError(name)
        return getattr(self, name)  # type: ignore[no-any-return]


def _adaptor() -> mr.StatisticsResourceAdaptor | None:
    """The current device's resource, if it counts."""
    resource = mr.get_current_device_resource()
    return resource if isinstance(resource, mr.StatisticsResourceAdaptor) else None


def enable_statistics() -> None:
    """Counts from now on what is allocated from the current device's resource, unless it does so already."""
    resource = mr.get_current_device_resource()
    if not isinstance(resource, mr.StatisticsResourceAdaptor):
        mr.set_current_device_resource(mr.StatisticsResourceAdaptor(resource))


def get_statistics() -> Statistics | None:
    """The counts since the last push that was not popped; `None` if nothing is counted."""
    adaptor = _adaptor()
    return None if adaptor is None else adaptor.allocation_counts


def push_statistics() -> Statistics | None:
    """Counts from zero until the next pop. Returns the counts until now; `None` if nothing is counted."""
    adaptor = _adaptor()
    return None if adaptor is None else adaptor.push_counters()


def pop_statistics() -> Statistics | None:
    """Returns the counts since the last push, and adds them to those before it; `None` if nothing is counted."""
    adaptor = _adaptor()
    return None if adaptor is None else adaptor.pop_counters()


@contextmanager
def statistics() -> Iterator[None]:
    """Counts within the block. If counting is on already, the block counts from zero, and its counts are added at the end.

    Otherwise the earlier resource is put back at the end. If the current resource was changed in the block and not put back,
    `ValueError` says so.
    """
    if push_statistics() is not None:
        counting = mr.get_current_device_resource()
        try:
            yield
        finally:
            counting.pop_counters()
            _require_unchanged(counting)
        return
    before = mr.get_current_device_resource()
    adaptor = mr.StatisticsResourceAdaptor(before)
    mr.set_current_device_resource(adaptor)
    try:
        yield
    finally:
        _require_unchanged(adaptor)
        mr.set_current_device_resource(before)


def _require_unchanged(adaptor: mr.DeviceMemoryResource) -> None:
    if mr.get_current_device_resource() is not adaptor:
        raise ValueError(
            "the current memory resource was changed within the context of statistics, and not put back: "
            "put it back before the context ends"
        )


class ProfilerRecords:
    """What `profiler` has measured: a record for each name.

    >>> records = ProfilerRecords()
    >>> records.add("load", Statistics(0, 0, 100, 1, 300, 3))
    >>> records.records["load"].memory_peak
    100
    """

    @dataclass
    class MemoryRecord:
        """How often a function ran, how much it allocated in all, and how much it held at most."""

        num_calls: int = 0
        memory_total: int = 0
        memory_peak: int = 0

        def add(self, memory_total: int, memory_peak: int) -> None:
            """Adds one call."""
            self.num_calls += 1
            self.memory_total += memory_total
            self.memory_peak = max(self.memory_peak, memory_peak)

    def __init__(self) -> None:
        # The collector may run at any line, and a destructor of the program's own may be profiled.
        self._lock = ForkLock()
        self._records: dict[str, ProfilerRecords.MemoryRecord] = {}

    def add(self, name: str, data: Statistics) -> None:
        """Adds a call under a name."""
        with self._lock:
            record = self._records.setdefault(name, self.MemoryRecord())
            record.add(memory_total=data.total_bytes, memory_peak=data.peak_bytes)

    @property
    def records(self) -> dict[str, MemoryRecord]:
        """The records by their names: a copy."""
        with self._lock:
            return {
                name: self.MemoryRecord(record.num_calls, record.memory_total, record.memory_peak)
                for name, record in list(self._records.items())
            }

    def report(self, ordered_by: Literal["num_calls", "memory_peak", "memory_total"] = "memory_peak") -> str:
        """The records as a table, the largest first."""
        if ordered_by not in ("num_calls", "memory_peak", "memory_total"):
            raise ValueError(
                f"ordered_by must be 'num_calls', 'memory_peak' or 'memory_total', and not {ordered_by!r}"
            )
        title = "Memory Profiling"
        lines = [title, "=" * len(title)]
        with self._lock:
            rows = [
                (getattr(record, ordered_by), record.num_calls, record.memory_peak, record.memory_total, name)
                for name, record in list(self._records.items())
            ]
        if not rows:
            return "\n".join([*lines, "", "No data, maybe profiling wasn't enabled?"])
        rows.sort(key=lambda row: row[0], reverse=True)
        lines += [
            "",
            "Legends:",
            "  ncalls       - number of times the function or code block was called",
            "  memory_peak  - peak memory of the function or code block (in bytes)",
            "  memory_total - total memory of the function or code block (in bytes)",
            "",
            f"Ordered by: {ordered_by}",
            "",
            "ncalls     memory_peak    memory_total  filename:lineno(function)",
        ]
        lines += [f"{calls:6,} {peak:15,} {total:15,}  {name}" for _, calls, peak, total, name in rows]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"ProfilerRecords({self.records!r})"

    def __str__(self) -> str:
        return self.report()


def _get_descriptive_name_of_object(obj: object) -> str:
    """The file, the line and the name of a function or a class, as `file:line(name)`.

    Decorators that name what they wrap are looked through. The line is that of the first decorator.
    """
    import inspect

    obj = inspect.unwrap(obj)  # type: ignore[arg-type]
    _, line = inspect.getsourcelines(obj)  # type: ignore[arg-type]
    file = inspect.getfile(obj)  # type: ignore[arg-type]
    return f"{file}:{line}({obj.__qualname__})"  # type: ignore[attr-defined]


#: Where `profiler` records if it is not told otherwise.
default_profiler_records = ProfilerRecords()


class ProfilerContext(ContextDecorator):
    """Measures a function as a decorator, or a block of code with `with`. Made by `profiler`.

    It may be entered again while it is open, and by several threads at once.
    """

    def __init__(self, records: ProfilerRecords, name: str = "") -> None:
        self.records = records
        self.name = name
        self._of_thread = threading.local()

    def __call__(self, func: _F) -> _F:
        name = self.name or _get_descriptive_name_of_object(func)
        records = self.records

        @wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with _measured(records, name):
                return func(*args, **kwargs)

        return wrapper  # type: ignore[return-value]

    def __enter__(self) -> "ProfilerContext":
        if not self.name:
            raise ValueError("a profiler that is used as a context manager needs a name: profiler(name='...')")
        measured = _measured(self.records, self.name)
        measured.__enter__()
        self._of_thread.__dict__.setdefault("entered", []).append(measured)
        return self

    def __exit__(self, *exception: Any) -> bool:
        self._of_thread.entered.pop().__exit__(*exception)
        return False


@contextmanager
def _measured(records: ProfilerRecords, name: str) -> Iterator[None]:
    """Measures the body, unless nothing is counted."""
    adaptor = _adaptor()
    if adaptor is None:
        yield
        return
    adaptor.push_counters()
    try:
        yield
    finally:
        records.add(name=name, data=adaptor.pop_counters())


def profiler(*, records: ProfilerRecords = default_profiler_records, name: str = "") -> ProfilerContext:
    """Measures how much memory a function, or a block of code, allocates and holds, while statistics are on.

    As a decorator it takes the name of the function if it is given none.

    >>> import alluvion
    >>> from alluvion import rmm
    >>> from alluvion.rmm.statistics import ProfilerRecords, profiler, statistics
    >>> records = ProfilerRecords()
    >>> with alluvion.simulated(), statistics():
    ...     with profiler(records=records, name="load"):
    ...         mr = rmm.mr.get_current_device_resource()
    ...         mr.deallocate(mr.allocate(512), 512)
    >>> records.records
    {'load': ProfilerRecords.MemoryRecord(num_calls=1, memory_total=512, memory_peak=512)}
    """
    return ProfilerContext(records=records, name=name)


__all__ = [
    "ProfilerContext",
    "ProfilerRecords",
    "Statistics",
    "default_profiler_records",
    "enable_statistics",
    "get_statistics",
    "pop_statistics",
    "profiler",
    "push_statistics",
    "statistics",
]
