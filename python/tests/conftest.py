"""Every test runs on a simulated machine of its own, unless it says otherwise."""

import gc
import os

import pytest

import alluvion

# What the person has set who runs the tests is not what they are about.
for _name in list(os.environ):
    if _name.startswith(("ALLUVION_", "RMM_")) and _name != "ALLUVION_GPU_TESTS":
        del os.environ[_name]

# Processes that tests start import the package that these tests are of, whether it is installed or lies in a folder.
os.environ["PYTHONPATH"] = os.path.dirname(os.path.dirname(alluvion.__file__))


@pytest.fixture
def sim():
    """A simulated machine with two devices. At the end nothing may have been accessed without an order."""
    with alluvion.simulated(devices=2, memory="256 MiB") as machine:
        yield machine
        gc.collect()
