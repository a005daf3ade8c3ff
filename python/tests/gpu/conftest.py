"""Tests on a real GPU. Without one they are skipped; with `ALLUVION_GPU_TESTS=1` a missing GPU is a failure."""

import os

import pytest

import alluvion
import alluvion.rmm as rmm


@pytest.fixture
def gpu():
    """The number of GPUs. The current resource of the first is put back afterwards."""
    count = alluvion.device_count()
    if count == 0:
        if os.environ.get("ALLUVION_GPU_TESTS") == "1":
            pytest.fail("there is no GPU")
        pytest.skip("there is no GPU")
    before = rmm.mr.get_current_device_resource()
    yield count
    rmm.mr.set_current_device_resource(before)


@pytest.fixture
def counted(gpu):
    """A counting pool, current on the first GPU."""
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "64 MiB")
    resource = rmm.mr.StatisticsResourceAdaptor(pool)
    rmm.mr.set_current_device_resource(resource)
    return resource
