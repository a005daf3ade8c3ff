"""`rmm.reinitialize`, its hooks, and `RMMError`."""

import subprocess
import sys

import pytest

import alluvion
from alluvion import rmm
from alluvion.rmm import mr


@pytest.fixture(autouse=True)
def no_hooks():
    yield
    rmm.rmm._reinitialize_hooks.clear()


def test_an_error_with_a_number():
    error = rmm.RMMError(2, "text")
    assert rmm.RMMError.__bases__ == (Exception,)
    assert error.errcode == 2 and str(error) == "text"
    assert rmm.RMMError(errcode=1, msg="m").errcode == 1


def test_the_default(sim):
    assert rmm.is_initialized() is True
    mr.set_current_device_resource(mr.StatisticsResourceAdaptor(mr.CudaMemoryResource()))
    assert rmm.reinitialize() is None
    assert type(mr.get_current_device_resource()) is mr.CudaMemoryResource
    rmm.reinitialize(managed_memory=True)
    assert type(mr.get_current_device_resource()) is mr.ManagedMemoryResource


def test_pools(sim, tmp_path):
    rmm.reinitialize(True, True, "1 MiB", "4 MiB", [0, 1], True, str(tmp_path / "log.csv"))
    for device in (0, 1):
        logged = mr.get_per_device_resource(device)
        assert type(logged) is mr.LoggingResourceAdaptor
        assert logged.get_file_name() == str(tmp_path / f"log.dev{device}.csv")
        pool = logged.upstream_mr
        assert type(pool) is mr.PoolMemoryResource and pool.pool_size() == 1 << 20
        assert type(pool.upstream_mr) is mr.ManagedMemoryResource
        assert f"gpu {device}" in repr(pool)
    rmm.reinitialize(pool_allocator=True, devices=1)
    assert type(mr.get_per_device_resource(0)) is mr.CudaMemoryResource
    assert type(mr.get_per_device_resource(1)) is mr.PoolMemoryResource
    rmm.reinitialize(devices=None)


def test_a_pool_may_take_what_the_pool_before_it_had(sim):
    for _ in range(2):
        rmm.reinitialize(pool_allocator=True, initial_pool_size="200 MiB", maximum_pool_size="200 MiB")
        assert mr.get_current_device_resource().pool_size() == 200 << 20


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pool_allocator": True, "initial_pool_size": "2k"}, ValueError),
        ({"pool_allocator": True, "maximum_pool_size": 1.5}, TypeError),
        ({"pool_allocator": True, "initial_pool_size": -1}, OverflowError),
        ({"devices": [0, 7]}, RuntimeError),
        ({"devices": ["0"]}, TypeError),
        ({"logging": True}, ValueError),
    ],
)
def test_a_wrong_argument_changes_nothing(sim, monkeypatch, arguments, expected):
    monkeypatch.delenv("RMM_LOG_FILE", raising=False)
    mine = mr.CudaMemoryResource()
    mr.set_current_device_resource(mine)
    with pytest.raises(expected):
        rmm.reinitialize(**arguments)
    assert mr.get_current_device_resource() is mine


def test_sizes_are_ignored_without_a_pool(sim):
    rmm.reinitialize(initial_pool_size="2k", maximum_pool_size=1.5)


def test_the_device_is_restored(sim):
    alluvion.set_current_device(1)
    rmm.reinitialize(pool_allocator=True, initial_pool_size="1 MiB", devices=[0])
    assert alluvion.current_device() == 1
    with pytest.raises(MemoryError):
        rmm.reinitialize(pool_allocator=True, initial_pool_size="1 GiB", devices=[0])
    assert alluvion.current_device() == 1
    assert type(mr.get_per_device_resource(0)) is mr.CudaMemoryResource


def test_earlier_memory_stays_valid(sim):
    pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), "1 MiB")
    mr.set_current_device_resource(pool)
    del pool
    buffer = rmm.DeviceBuffer.to_device(b"abc")
    rmm.reinitialize()
    assert buffer.tobytes() == b"abc"
    del buffer
    rmm.reinitialize()
    assert [leak for leak in sim.leaks() if "allocation" in str(leak)] == []


def test_hooks_run_in_reverse_order(sim):
    calls = []
    first = rmm.register_reinitialize_hook(calls.append, 1)
    assert first == calls.append

    @rmm.register_reinitialize_hook
    def second(*args, **kwargs):
        calls.append((args, kwargs))

    rmm.register_reinitialize_hook(second, 1, a=2)
    assert rmm.rmm._reinitialize_hooks[-1] == (second, (1,), {"a": 2})
    rmm.reinitialize()
    assert calls == [((1,), {"a": 2}), ((), {}), 1]
    rmm.unregister_reinitialize_hook(second)
    rmm.unregister_reinitialize_hook(second)
    assert len(rmm.rmm._reinitialize_hooks) == 1
    rmm.unregister_reinitialize_hook(calls.append)
    assert rmm.rmm._reinitialize_hooks == []


def test_an_exception_of_a_hook_ends_the_call(sim):
    mine = mr.CudaMemoryResource()
    mr.set_current_device_resource(mine)

    @rmm.register_reinitialize_hook
    def fails():
        raise KeyError("hook")

    with pytest.raises(KeyError):
        rmm.reinitialize(pool_allocator=True)
    assert mr.get_current_device_resource() is mine


def test_no_device_is_a_warning():
    if alluvion.device_count():
        pytest.skip("this machine has a GPU")
    with pytest.warns(UserWarning, match="no CUDA device"):
        rmm.reinitialize()
