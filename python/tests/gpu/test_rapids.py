"""A genuine resource of RMM on one GPU: what RMM itself, libcudf and cuML do over it. Skipped where there is no RMM that the door is for."""

import gc
import os
import subprocess
import sys
import threading

import pytest

import alluvion
from test_shared import PATTERN

rmm = pytest.importorskip("rmm")
runtime = pytest.importorskip("cuda.bindings.runtime")

MIB = 1 << 20
RECIPES = ["stats | cuda", "stats | pool | cuda-async", "stats | tracking | pool | mapped"]


@pytest.fixture
def genuine(gpu):
    """RMM's own resource is the current one before and after."""
    rmm.reinitialize(devices=[0])
    yield rmm
    gc.collect()
    rmm.reinitialize(devices=[0])


def install(recipe):
    import alluvion.rapids

    return alluvion.rapids.install(recipe, [0])[0]


def live(stack):
    gc.collect()
    return stack.stats().current_count


@pytest.mark.parametrize("recipe", RECIPES)
def test_data_goes_there_and_back(genuine, recipe):
    stack = install(recipe)
    first = rmm.DeviceBuffer.to_device(PATTERN)
    second = rmm.DeviceBuffer(size=len(PATTERN))
    second.copy_from_device(first)
    assert live(stack) == 2 and second.tobytes() == PATTERN
    second.resize(2 * len(PATTERN))
    assert second.tobytes()[: len(PATTERN)] == PATTERN
    del first, second
    assert live(stack) == 0


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_block_that_one_stream_gave_back_is_ordered_for_the_next(genuine, recipe):
    from rmm.pylibrmm.stream import Stream

    stack = install(recipe)
    streams = [Stream() for _ in range(4)]
    for round in range(32):
        data = PATTERN[round:] + PATTERN[:round]
        stream = streams[round % 4]
        buffer = rmm.DeviceBuffer.to_device(data, stream=stream)
        assert buffer.tobytes(stream=stream) == data
        del buffer
    assert live(stack) == 0 and stack.stats().total_count == 32


def test_threads_have_what_they_wrote(genuine):
    stack = install("stats | pool | cuda-async")
    wrong = []

    def work(number):
        data = bytes([number]) * 50_000
        for _ in range(100):
            buffer = rmm.DeviceBuffer.to_device(data)
            if buffer.tobytes() != data:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and live(stack) == 0 and stack.stats().total_count == 800


def test_layers_of_rmm_count_what_the_stack_has(genuine):
    from alluvion.rapids import DeviceResource

    counted = rmm.mr.StatisticsResourceAdaptor(DeviceResource("stats | pool | cuda-async"))
    rmm.mr.set_current_device_resource(counted)
    buffers = [rmm.DeviceBuffer(size=size * MIB) for size in (1, 2)]
    assert counted.allocation_counts.current_bytes == 3 * MIB
    assert counted.get_upstream().stack.stats().current_bytes == 3 * MIB
    del buffers
    assert live(counted.get_upstream().stack) == 0


def test_a_handler_frees_and_the_request_goes_on(genuine):
    from alluvion.rapids import DeviceResource

    held = []

    def spill(error):
        freed = bool(held)
        held.clear()
        return freed

    mr = DeviceResource(alluvion.resource("stats | limiting(64MiB) | pool | cuda-async", on_out_of_memory=spill))
    rmm.mr.set_current_device_resource(mr)
    held.append(rmm.DeviceBuffer(size=48 * MIB))
    buffer = rmm.DeviceBuffer(size=48 * MIB)
    assert held == [] and mr.stack.stats().current_bytes == buffer.size
    with pytest.raises(MemoryError, match="Limiting refused"):
        rmm.DeviceBuffer(size=65 * MIB)


def test_what_sleeps_wakes_where_it_was(genuine):
    stack = install("stats | tracking | pool | mapped")
    buffer = rmm.DeviceBuffer.to_device(PATTERN)
    address = buffer.ptr
    with stack.sleep() as asleep:
        assert asleep.is_asleep and stack.pool_status()["reserved_bytes"] == 0
    assert buffer.ptr == address and buffer.tobytes() == PATTERN


def test_buffers_outlive_what_is_put_in_the_place_of_their_resource(genuine):
    stack = install("stats | pool | cuda-async")
    buffer = rmm.DeviceBuffer.to_device(PATTERN)
    rmm.reinitialize(devices=[0])
    other = rmm.DeviceBuffer.to_device(PATTERN)
    assert live(stack) == 1
    assert buffer.tobytes() == other.tobytes() == PATTERN
    del buffer
    assert live(stack) == 0


def test_libcudf_groups_in_the_stack(genuine):
    plc = pytest.importorskip("pylibcudf")
    stack = install("stats | pool | cuda-async")
    counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.get_current_device_resource())
    rmm.mr.set_current_device_resource(counted)
    number = plc.DataType(plc.TypeId.INT64)
    values = plc.filling.sequence(100_000, plc.Scalar.from_py(0), plc.Scalar.from_py(1))
    keys = plc.binaryop.binary_operation(values, plc.Scalar.from_py(10), plc.binaryop.BinaryOperator.PYMOD, number)
    groups = plc.groupby.GroupBy(plc.Table([keys]))
    _, sums = groups.aggregate([plc.groupby.GroupByRequest(values, [plc.aggregation.sum()])])
    assert sums[0].columns()[0].size() == 10
    assert plc.reduce.reduce(sums[0].columns()[0], plc.aggregation.sum(), number).to_py() == sum(range(100_000))
    assert stack.stats().total_count == counted.allocation_counts.total_count > 0


def test_cuml_finds_the_same_clusters(genuine):
    cuml = pytest.importorskip("cuml")
    numpy = pytest.importorskip("numpy")
    random = numpy.random.default_rng(7)
    middles = numpy.array([[-20, 0], [0, 20], [20, 0], [0, -20]], "f4")
    points = (middles[random.integers(0, 4, 4000)] + random.normal(0, 1, (4000, 2))).astype("f4")
    stack = install("stats | pool | cuda-async")
    model = cuml.KMeans(n_clusters=4, random_state=7, output_type="numpy").fit(points)
    found = sorted(map(tuple, model.cluster_centers_.round().tolist()))
    assert found == sorted(map(tuple, middles.tolist()))
    assert stack.stats().total_count > 0


PROGRAM = """
import alluvion.rapids, rmm
stack = alluvion.rapids.install("{recipe}", [0])[0]
kept = [rmm.DeviceBuffer.to_device(b"kept" * 1000)]
print(stack.stats().current_count)
{end}
"""

ENDS = {"with the module": "", "in a cycle": "kept.append(kept); del kept", "without the stack": "del stack"}


@pytest.mark.parametrize("recipe", RECIPES[1:])
@pytest.mark.parametrize("end", ENDS)
def test_a_process_ends_quietly_with_live_buffers(genuine, recipe, end):
    program = PROGRAM.format(recipe=recipe, end=ENDS[end])
    # RMM may lie in another folder than this library.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")
