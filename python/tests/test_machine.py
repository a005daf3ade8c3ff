"""Which machine and which device calls mean."""

import numpy
import pytest

import alluvion


def test_a_simulated_machine_has_the_devices_that_were_asked_for(sim):
    assert alluvion.device_count() == 2
    assert sim.devices == 2


def test_the_innermost_machine_is_meant(sim):
    with alluvion.simulated(devices=3):
        assert alluvion.device_count() == 3
    assert alluvion.device_count() == 2


def test_a_machine_without_devices_is_refused():
    with pytest.raises(ValueError, match="1 to 64 devices, and not 0$"):
        alluvion.simulated(devices=0)


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("0", 0), ("12", 12), ("1.5 KiB", 1536), ("2kb", 2000), ("1 \tGiB", 1 << 30), ("3PB", 3 * 10**15), ("7b", 7)],
)
def test_sizes_are_read(text, bytes_):
    assert alluvion.parse_bytes(text) == bytes_


@pytest.mark.parametrize("text", ["2k", "zz", "", "1.", ".5", "-1", "1 GiB ", " 1", "1..5"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="Could not parse"):
        alluvion.parse_bytes(text)


def test_other_types_are_no_sizes():
    for wrong in (1.5, b"1", None, []):
        with pytest.raises(TypeError):
            alluvion.parse_bytes(wrong)
    with pytest.raises(OverflowError):
        alluvion.parse_bytes(-1)
    with pytest.raises(OverflowError):
        alluvion.parse_bytes(1 << 64)
    assert alluvion.parse_bytes(True) == 1


def test_integers_of_numpy_are_sizes(sim):
    shape = numpy.array([3, 4])
    assert alluvion.empty(numpy.prod(shape) * 8).size == 96
    assert alluvion.parse_bytes(numpy.uint8(7)) == 7
    for wrong in (numpy.float64(7), 7.0, b"7", None):
        with pytest.raises(TypeError, match="a count of bytes"):
            alluvion.parse_bytes(wrong)


def test_a_machine_has_room_for_the_default_bins():
    with alluvion.simulated():
        stack = alluvion.resource("binning | cuda")
        stack.deallocate(stack.allocate(1000), 1000)
