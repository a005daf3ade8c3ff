"""NumPy arrays in pinned memory."""

import gc
import subprocess
import sys
import threading

import numpy
import pytest

import alluvion
from alluvion import pinned


def test_arrays_are_pinned_and_ordinary(sim):
    made = pinned.zeros((3, 4), dtype="f4")
    assert made.shape == (3, 4) and made.dtype == numpy.float32 and not made.any()
    assert made.flags.c_contiguous and made.flags.writeable and made.flags.aligned
    made[1] = 2
    assert made.sum() == 8
    assert pinned.is_pinned(made) and pinned.is_pinned(made[1:, ::2]) and pinned.is_pinned(made.T.reshape(-1)[1:]) is False
    assert not pinned.is_pinned(numpy.zeros(3))
    assert pinned.empty(5).dtype == numpy.float64
    assert pinned.block_of(made).ptr == made.ctypes.data
    assert pinned.block_of(made).nbytes == made.nbytes
    fortran = pinned.empty((3, 4), order="F")
    assert fortran.flags.f_contiguous and not fortran.flags.c_contiguous


def test_values_are_copied(sim):
    there = numpy.arange(12).reshape(3, 4)
    made = pinned.array(there)
    there[0, 0] = 99
    assert made.tolist()[0] == [0, 1, 2, 3]
    assert pinned.array([1, 2.5]).dtype == numpy.float64
    assert pinned.array([1, 2], dtype="u1").dtype == numpy.uint8
    assert pinned.array(3).shape == ()


def test_nothing_has_no_memory(sim):
    before = sim.driver_calls
    assert pinned.empty(0).nbytes == 0
    assert pinned.zeros((3, 0)).shape == (3, 0)
    assert sim.driver_calls == before


def test_bad_arguments_are_refused(sim):
    with pytest.raises(ValueError, match="negative dimensions"):
        pinned.empty(-1)
    with pytest.raises(ValueError, match="negative dimensions"):
        pinned.empty((2, -1))
    with pytest.raises(TypeError):
        pinned.empty("3")
    with pytest.raises(TypeError):
        pinned.empty(1.5)
    with pytest.raises(TypeError, match="Python objects"):
        pinned.empty(3, dtype=object)
    with pytest.raises(ValueError, match="order"):
        pinned.empty(3, order="K")
    with pytest.raises((MemoryError, OverflowError)):
        pinned.empty(1 << 63)
    with pytest.raises(ValueError, match="not in pinned memory"):
        pinned.used_on(numpy.zeros(3), alluvion.Stream())


def test_memory_goes_with_the_last_view_and_is_used_again(sim):
    made = pinned.zeros(1 << 20, "u1")
    address = made.ctypes.data
    view = made[10:20]
    del made
    gc.collect()
    assert pinned.memory_info()[1] >= 1 << 20
    view[:] = 7
    assert view.sum() == 70
    del view
    held, live = pinned.memory_info()
    assert (held, live) == (held, 0) and held >= 1 << 20
    assert pinned.empty(1 << 20, "u1").ctypes.data == address
    assert pinned.trim("64 MiB") == 0
    assert pinned.trim() == held
    assert pinned.memory_info() == (0, 0)


def test_the_limit_of_the_machine_is_a_memory_error():
    with alluvion.simulated(pinned="4 MiB"):
        with pytest.raises(MemoryError):
            pinned.empty(8 << 20, "u1")
        pinned.empty(1 << 20, "u1")


def test_uses_are_noted(sim):
    stream = alluvion.Stream(flags=1)
    made = pinned.zeros(1000)
    pinned.used_on(made, stream)
    pinned.used_on(made[5:], stream)
    del made
    assert pinned.memory_info()[1] == 0


def test_threads_share_the_pool(sim):
    failed = []

    def work():
        try:
            for size in range(1, 60):
                made = pinned.empty(size * 100, "u1")
                made.fill(size)
                assert (made == size).all()
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_an_array_may_outlive_the_machine():
    with alluvion.simulated():
        made = pinned.zeros(100)
    made[3] = 1
    assert made.sum() == 1
    del made


def test_numpy_is_imported_at_the_first_array():
    code = "import sys, alluvion; assert 'numpy' not in sys.modules; print(alluvion.pinned.__name__)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("shape", [b"12", "12", bytearray(b"1")])
def test_text_is_no_shape(sim, shape):
    with pytest.raises(TypeError, match="a shape is an int or a sequence"):
        pinned.empty(shape)
