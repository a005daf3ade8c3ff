"""The door to the genuine RMM, on a simulated machine. `ci/rapids` has one RMM after the other; without one nothing is collected here."""

import gc
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("rmm") else ["test_*.py"]

TESTS = Path(__file__).parents[1]


@pytest.fixture
def run():
    """Runs a program in a process of its own, with `environment` besides."""

    def run(program, **environment):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], str(TESTS)]), **environment}
        return subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=300
        )

    return run


@pytest.fixture
def blocks(sim):
    """How many blocks of the driver are out."""

    def count():
        gc.collect()
        return sum("allocation of" in str(leak) for leak in sim.leaks())

    return count
