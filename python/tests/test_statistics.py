"""`rmm.statistics`: counts, frames and profiles."""

import dataclasses
import functools
import threading

import pytest

from alluvion.rmm import mr, statistics
from alluvion.rmm.statistics import ProfilerRecords, Statistics, default_profiler_records, profiler


@pytest.fixture
def counted(sim):
    adaptor = mr.StatisticsResourceAdaptor(mr.CudaMemoryResource())
    mr.set_current_device_resource(adaptor)
    return adaptor


def held(current_bytes=0, current_count=0, peak_bytes=0, peak_count=0, total_bytes=0, total_count=0):
    return Statistics(current_bytes, current_count, peak_bytes, peak_count, total_bytes, total_count)


def test_counts_are_values():
    assert dataclasses.is_dataclass(Statistics)
    counts = held(1, 2, 3, 4, 5, 6)
    assert counts == Statistics(1, 2, 3, 4, 5, 6) and counts != held()
    assert counts["current_bytes"] == 1 and counts["total_count"] == 6
    with pytest.raises(KeyError):
        counts["nothing"]


def test_sizes_are_exact_and_empty_blocks_count(counted):
    address = counted.allocate(10)
    assert counted.allocate(0) == 0
    assert counted.allocation_counts == held(10, 2, 10, 2, 10, 2)
    counted.deallocate(0, 0)
    counted.deallocate(address, 10)
    assert counted.allocation_counts == held(0, 0, 10, 2, 10, 2)
    with pytest.raises(AttributeError):
        counted.allocation_counts = held()


def test_frames(counted):
    outer = counted.allocate(100)
    assert counted.push_counters() == held(100, 1, 100, 1, 100, 1)
    assert counted.allocation_counts == held()
    inner = counted.allocate(50)
    counted.deallocate(inner, 50)
    counted.deallocate(outer, 100)
    assert counted.allocation_counts == held(-100, -1, 50, 1, 50, 1)
    assert counted.pop_counters() == held(-100, -1, 50, 1, 50, 1)
    assert counted.allocation_counts == held(0, 0, 150, 2, 150, 2)
    with pytest.raises(IndexError, match="cannot pop the last counter pair"):
        counted.pop_counters()
    assert counted.allocation_counts == held(0, 0, 150, 2, 150, 2)


def test_a_peak_of_threads_is_exact(counted):
    for _ in range(4):
        thread = threading.Thread(target=lambda: counted.deallocate(counted.allocate(1 << 20), 1 << 20))
        thread.start()
        thread.join()
    assert counted.allocation_counts == held(0, 0, 1 << 20, 1, 4 << 20, 4)


def test_nothing_is_counted_unless_asked(sim):
    assert statistics.get_statistics() is None
    assert statistics.push_statistics() is None and statistics.pop_statistics() is None
    before = mr.get_current_device_resource()
    statistics.enable_statistics()
    adaptor = mr.get_current_device_resource()
    assert type(adaptor) is mr.StatisticsResourceAdaptor and adaptor.upstream_mr is before
    statistics.enable_statistics()
    assert mr.get_current_device_resource() is adaptor
    assert statistics.get_statistics() == held() == statistics.push_statistics() == statistics.pop_statistics()


def test_the_context_puts_the_resource_back(sim):
    before = mr.get_current_device_resource()
    with pytest.raises(KeyError), statistics.statistics() as nothing:
        assert nothing is None and statistics.get_statistics() == held()
        raise KeyError
    assert mr.get_current_device_resource() is before


def test_the_context_counts_from_zero(counted):
    address = counted.allocate(10)
    with statistics.statistics():
        assert statistics.get_statistics() == held()
        counted.deallocate(address, 10)
    assert mr.get_current_device_resource() is counted
    assert statistics.get_statistics() == held(0, 0, 10, 1, 10, 1)


@pytest.mark.parametrize("is_on", [False, True])
def test_the_context_notices_another_resource(sim, is_on):
    if is_on:
        statistics.enable_statistics()
    with pytest.raises(ValueError, match="changed"):
        with statistics.statistics():
            mr.set_current_device_resource(mr.CudaMemoryResource())


def use(nbytes):
    resource = mr.get_current_device_resource()
    resource.deallocate(resource.allocate(nbytes), nbytes)


def test_records_of_a_profile():
    records = ProfilerRecords()
    assert str(records) == records.report() and "No data" in records.report()
    assert repr(records) == "ProfilerRecords({})"
    records.add("b", held(peak_bytes=5, total_bytes=1000))
    records.add("a", held(peak_bytes=7, total_bytes=10))
    records.add("b", held(peak_bytes=3, total_bytes=1000))
    assert records.records == {
        "b": ProfilerRecords.MemoryRecord(num_calls=2, memory_total=2000, memory_peak=5),
        "a": ProfilerRecords.MemoryRecord(num_calls=1, memory_total=10, memory_peak=7),
    }
    records.records.clear()
    assert len(records.records) == 2
    lines = records.report().split("\n")
    assert set(lines[1]) == {"="} and len(lines[0]) == len(lines[1])
    assert lines[-4:] == [
        "",
        "ncalls     memory_peak    memory_total  filename:lineno(function)",
        "     1               7              10  a",
        "     2               5           2,000  b",
    ]
    assert "Ordered by: memory_peak" in lines
    for order in ("num_calls", "memory_total"):
        assert records.report(ordered_by=order).split("\n")[-1].endswith("  a")
    with pytest.raises(ValueError):
        records.report(ordered_by="name")


def test_a_profile_of_functions(counted):
    records = ProfilerRecords()

    def wrapping(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args)

        return wrapper

    @profiler(records=records)
    @wrapping
    def work(nbytes):
        """What it does."""
        use(nbytes)
        return nbytes

    assert work(10) == 10 and work(30) == 30
    assert work.__name__ == "work" and work.__doc__ == "What it does."
    (name,) = records.records
    code = work.__wrapped__.__wrapped__.__code__
    assert name == f"{__file__}:{code.co_firstlineno}({work.__qualname__})"
    assert records.records[name] == ProfilerRecords.MemoryRecord(2, 40, 30)
    named = profiler(records=records, name="named")(use)
    named(5)
    assert records.records["named"] == ProfilerRecords.MemoryRecord(1, 5, 5)
    with pytest.raises(TypeError):
        profiler(records=records)(len)


def test_a_profile_of_blocks(counted):
    records = ProfilerRecords()
    with pytest.raises(ValueError):
        with profiler(records=records):
            pass
    with pytest.raises(KeyError):
        with profiler(records=records, name="outer"):
            with profiler(records=records, name="inner"):
                use(100)
            use(10)
            raise KeyError
    assert records.records["inner"] == ProfilerRecords.MemoryRecord(1, 100, 100)
    assert records.records["outer"] == ProfilerRecords.MemoryRecord(1, 110, 100)
    assert counted.allocation_counts == held(0, 0, 100, 1, 110, 2)


def test_no_profile_without_statistics(sim):
    records = ProfilerRecords()
    with profiler(records=records, name="quiet"):
        use(100)
    assert records.records == {}
    assert isinstance(default_profiler_records, ProfilerRecords)
    with pytest.raises(TypeError):
        profiler(records)
