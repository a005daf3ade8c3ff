"""Every test runs on a simulated machine of its own, unless it says otherwise."""

import gc

import pytest

import alluvion


@pytest.fixture
def sim():
    """A simulated machine with two devices. At the end nothing may have been accessed without an order."""
    with alluvion.simulated(devices=2, memory="256 MiB") as machine:
        yield machine
        gc.collect()
