"""Single buffers sleep and wake, at the addresses that they have."""

import copy
import gc
import pickle
import threading

import numpy
import pytest

import alluvion
from alluvion import DeviceBuffer, Stream, errors
from alluvion._alluvion import copy_device_to_ptr

MIB = 1 << 20
CONTENTS = bytes(range(256)) * 8192


@pytest.fixture
def stack(sim):
    stack = alluvion.resource("stats | pool | mapped")
    yield stack
    del stack
    gc.collect()


def weights_of(stack, stream=None):
    buffer = alluvion.empty(len(CONTENTS), resource=stack, stream=stream)
    buffer.copy_from_host(CONTENTS)
    return buffer


def reserved(stack):
    return stack.pool_status()["reserved_bytes"]


def test_the_memory_goes_and_comes_back(stack):
    weights = weights_of(stack)
    address, before = weights.ptr, reserved(stack)
    assert weights.sleep() is None and weights.is_asleep
    assert reserved(stack) < before and stack.stats().current_count == 1
    assert (weights.ptr, weights.size, weights.capacity()) == (address, len(CONTENTS), len(CONTENTS))
    assert repr(weights) == f"DeviceBuffer(size={len(CONTENTS)}, ptr={address:#x}, asleep)"
    weights.wake()
    weights.wake()
    assert not weights.is_asleep and weights.ptr == address
    assert weights.tobytes() == CONTENTS
    weights.sleep(keep="nothing")
    weights.wake()
    assert (weights.ptr, weights.size) == (address, len(CONTENTS))
    del weights


def test_nobody_gets_bytes_that_are_not_there(stack):
    weights, view = weights_of(stack), None
    view = weights.view("u1")
    weights.sleep()
    for use in (
        weights.tobytes,
        lambda: bytes(weights),
        weights.copy_to_host,
        lambda: weights.copy_from_host(b"abc"),
        lambda: weights.copy_from_device(alluvion.empty(10)),
        lambda: alluvion.empty(len(CONTENTS)).copy_from_device(weights),
        weights.copy,
        lambda: copy.copy(weights),
        lambda: copy.deepcopy(weights),
        lambda: pickle.dumps(weights),
        lambda: weights.resize(10),
        lambda: weights.resize(10 * len(CONTENTS)),
        lambda: weights.reserve(10 * len(CONTENTS)),
        weights.prefetch,
        weights.share,
        weights.__dlpack__,
        weights.__dlpack_device__,
        lambda: weights.__cuda_array_interface__,
        lambda: weights.view("u1"),
        lambda: view.ptr,
        lambda: view.__cuda_array_interface__,
        view.__dlpack__,
        weights.sleep,
    ):
        with pytest.raises(errors.Asleep):
            use()
    weights.wake()
    assert view.ptr == weights.ptr and weights.tobytes() == CONTENTS
    del weights, view


def test_one_that_others_have_does_not_sleep(stack):
    weights = weights_of(stack)
    tensor = weights.__dlpack__()
    with pytest.raises(BufferError):
        weights.sleep()
    assert not weights.is_asleep and weights.tobytes() == CONTENTS
    del tensor
    gc.collect()
    weights.sleep()
    weights.wake()
    lent = alluvion.from_dlpack(weights)
    with pytest.raises(errors.Unsupported):
        lent.sleep()
    del weights, lent


def test_where_it_cannot_be(sim):
    buffer = alluvion.empty(100, resource="pool | cuda")
    with pytest.raises(errors.Unsupported):
        buffer.sleep()
    with pytest.raises(ValueError, match="keep is"):
        buffer.sleep(keep="disk")
    buffer.copy_from_host(b"abc")
    assert buffer.tobytes()[:3] == b"abc"
    empty = DeviceBuffer()
    empty.sleep()
    empty.wake()
    assert not empty.is_asleep


def test_what_is_dropped_asleep_goes_back(stack):
    for keep in ("host", "nothing"):
        weights = weights_of(stack, stream=Stream())
        weights.sleep(keep=keep)
        del weights
        gc.collect()
    assert stack.stats().current_count == 0
    stack.trim()
    assert reserved(stack) == 0


def test_its_own_work_is_waited_for(stack):
    first, second = Stream(), Stream()
    weights = alluvion.empty(MIB, resource=stack, stream=first)
    weights.copy_from_device(alluvion.empty(MIB, resource="cuda", stream=first), stream=first)
    weights.copy_from_device(alluvion.empty(MIB, resource="cuda", stream=second), stream=second)
    weights.sleep()
    weights.wake()
    assert len(weights.tobytes()) == MIB
    del weights


def test_short_memory_leaves_it_asleep(sim):
    stack = alluvion.resource("pool | mapped")
    weights = weights_of(stack)
    weights.sleep()
    sim.fail("cuMemCreate", nth=None, code="out of memory")
    for _ in range(2):
        with pytest.raises(MemoryError):
            weights.wake()
        assert weights.is_asleep
    sim.clear_faults()
    weights.wake()
    assert weights.tobytes() == CONTENTS
    del weights, stack


@pytest.mark.parametrize("call", ["cuMemHostAlloc", "cuMemcpyAsync", "cuMemUnmap", "cuMemMap", "cuStreamSynchronize", "cuEventRecord"])
def test_a_call_that_fails_loses_nothing(call):
    for nth in range(1, 4):
        with alluvion.simulated() as sim:
            stack = alluvion.resource("pool | mapped")
            weights = weights_of(stack)
            sim.fail(call, nth=nth)
            try:
                weights.sleep()
            except errors.Error:
                assert not weights.is_asleep
            try:
                weights.wake()
            except (errors.Error, MemoryError):
                assert weights.is_asleep
            sim.clear_faults()
            weights.wake()
            assert weights.tobytes() == CONTENTS
            del weights, stack
            gc.collect()


def test_threads_put_one_to_sleep_and_wake_it(stack):
    weights = weights_of(stack)
    address = weights.ptr
    wrong = []

    def work(turn):
        for _ in range(15):
            try:
                (weights.sleep if turn % 2 else weights.wake)()
                if turn == 2 and weights.tobytes() != CONTENTS:
                    wrong.append("other bytes")
            except (errors.Asleep, errors.InUse, BufferError):
                pass

    threads = [threading.Thread(target=work, args=(turn,)) for turn in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    weights.wake()
    assert not wrong and weights.ptr == address and weights.tobytes() == CONTENTS
    assert (numpy.frombuffer(weights.tobytes(), "u1")[:256] == numpy.arange(256)).all()
    del weights


@pytest.mark.parametrize("seed", range(4))
def test_work_of_the_stream_that_it_was_given_is_waited_for(seed):
    with alluvion.simulated(seed=seed) as sim:
        stack = alluvion.resource("pool | mapped")
        first, second = Stream(flags=1), Stream(flags=1)
        source = DeviceBuffer.to_device(CONTENTS)
        weights = alluvion.empty(len(CONTENTS), resource=stack, stream=first)
        weights.resize(len(CONTENTS), stream=second)
        # What a kernel does that is launched on the stream of the buffer.
        copy_device_to_ptr(source.ptr, weights.ptr, len(CONTENTS), stream=second)
        weights.sleep()
        weights.wake()
        assert weights.tobytes() == CONTENTS and not sim.hazards()
        del weights, source, stack
        gc.collect()


def test_contents_of_a_buffer_are_kept_on_a_disk(sim, tmp_path):
    stack = alluvion.resource("pool | mapped")
    with alluvion.using(stack):
        buffer = alluvion.DeviceBuffer.to_device(b"abc" * 1_000_000)
    buffer.sleep(keep="disk", folder=tmp_path)
    assert buffer.is_asleep and len(list(tmp_path.iterdir())) == 1
    buffer.wake()
    assert buffer.tobytes() == b"abc" * 1_000_000 and list(tmp_path.iterdir()) == []
    with pytest.raises(alluvion.errors.Unwritable):
        buffer.sleep(keep="disk", folder=tmp_path / "missing")
    for wrong in ({"keep": "disk"}, {"folder": tmp_path}):
        with pytest.raises(ValueError, match="folder"):
            buffer.sleep(**wrong)
    assert not buffer.is_asleep and buffer.tobytes()[:3] == b"abc"
    # Dropped asleep.
    buffer.sleep(keep="disk", folder=tmp_path)
    del buffer
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    del stack
