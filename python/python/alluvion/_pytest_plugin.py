"""The plugin of pytest, which an entry point names: the fixture `simulated_gpu`."""

from __future__ import annotations

from typing import Any, Iterator

import pytest


def pytest_addoption(parser: Any) -> None:
    """Adds the options of the plugin."""
    group = parser.getgroup("alluvion")
    group.addoption(
        "--gpu-seeds",
        type=int,
        default=1,
        metavar="N",
        help="run each test that uses `simulated_gpu` with N seeds, so that unordered work runs in N orders",
    )


def pytest_generate_tests(metafunc: Any) -> None:
    """Gives each test that uses the fixture its seeds."""
    if "_gpu_seed" in metafunc.fixturenames:
        seeds = metafunc.config.getoption("gpu_seeds")
        if seeds > 1:
            metafunc.parametrize("_gpu_seed", range(seeds), ids=[f"seed{seed}" for seed in range(seeds)], indirect=True)


@pytest.fixture
def _gpu_seed(request: Any) -> int:
    return getattr(request, "param", 0)


@pytest.fixture
def simulated_gpu(_gpu_seed: int) -> Iterator[Any]:
    """A simulated machine with two GPUs, which every call of `alluvion` means in this test. At its end hazards fail the test."""
    # Here, so that pytest starts without the native module.
    from alluvion.testing import _simulated_machine

    yield from _simulated_machine(_gpu_seed)


__all__ = ["simulated_gpu"]
