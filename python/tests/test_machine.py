"""Which machine and which device calls mean."""

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
    with pytest.raises(ValueError, match="at least 1 device"):
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
