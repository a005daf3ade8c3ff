"""The interface of RMM 0.3 to 0.9."""

import os
import subprocess
import sys

import pytest

import alluvion
import alluvion.rmm


@pytest.fixture
def old(sim):
    from alluvion.librmm_cffi import librmm, librmm_config

    before = {name: getattr(librmm_config, name) for name in librmm_config.__all__}
    librmm.finalize()
    yield librmm, librmm_config
    librmm.finalize()
    for name, value in before.items():
        setattr(librmm_config, name, value)


def test_the_options_and_what_they_are_without_a_word():
    from alluvion.librmm_cffi import librmm_config

    assert librmm_config.use_pool_allocator is False
    assert librmm_config.use_managed_memory is False
    assert librmm_config.initial_pool_size == 0
    assert librmm_config.enable_logging is False


def test_blocks_come_and_go(old, sim):
    rmm, _ = old
    assert not rmm.is_initialized()
    rmm.initialize()
    assert rmm.is_initialized()
    address = rmm.rmmAlloc(1000, 0)
    assert address % 256 == 0
    address = rmm.rmmRealloc(address, 5000, 0)
    rmm.rmmFree(address, 0)
    assert rmm.rmmAlloc(0, 0) == 0
    rmm.rmmFree(0, 0)
    rmm.finalize()
    assert not rmm.is_initialized()
    assert [leak for leak in sim.leaks() if "event" not in str(leak)] == []


def test_a_block_keeps_its_contents_when_it_grows(old):
    rmm, _ = old
    rmm.initialize()
    from alluvion.rmm.pylibrmm.device_buffer import copy_host_to_ptr, copy_ptr_to_host

    address = rmm.rmmAlloc(256, 0)
    copy_host_to_ptr(bytes(range(256)), address)
    address = rmm.rmmRealloc(address, 1024, 0)
    back = bytearray(256)
    copy_ptr_to_host(address, back)
    assert back == bytes(range(256))
    rmm.rmmFree(address, 0)


def test_finalize_frees_what_is_out(old, sim):
    rmm, config = old
    before = alluvion.current_resource()
    config.use_pool_allocator = True
    config.initial_pool_size = 1 << 20
    rmm.initialize()
    pool = alluvion.current_resource()
    assert type(pool) is alluvion.rmm.mr.PoolMemoryResource and pool.pool_size() == 1 << 20
    rmm.rmmAlloc(1000, 0)
    del pool
    rmm.finalize()
    assert alluvion.current_resource() is before
    assert [leak for leak in sim.leaks() if "event" not in str(leak)] == []


def test_a_pool_without_a_size_takes_half_of_the_device(old):
    rmm, config = old
    config.use_pool_allocator = True
    rmm.initialize()
    assert alluvion.current_resource().pool_size() == alluvion.memory_info()[1] // 2


def test_managed_memory(old):
    rmm, config = old
    config.use_managed_memory = True
    rmm.initialize()
    assert type(alluvion.current_resource()) is alluvion.rmm.mr.ManagedMemoryResource


def test_the_log_is_a_text(old):
    rmm, config = old
    config.enable_logging = True
    rmm.initialize()
    rmm.rmmFree(rmm.rmmAlloc(1000, 0), 0)
    lines = rmm.csv_log().splitlines()
    assert lines[0] == "Thread,Time,Action,Pointer,Size,Stream"
    assert [line.split(",")[2] for line in lines[1:]] == ["allocate", "free"]
    folder = os.path.dirname(rmm._log)
    rmm.finalize()
    assert not os.path.exists(folder)


def test_what_fails_has_a_name(old):
    from alluvion.librmm_cffi import RMMError

    rmm, _ = old
    with pytest.raises(RMMError) as failed:
        rmm.rmmAlloc(10, 0)
    assert failed.value.errcode == "RMM_ERROR_NOT_INITIALIZED"
    rmm.initialize()
    with pytest.raises(RMMError) as failed:
        rmm.rmmAlloc(1 << 50, 0)
    assert failed.value.errcode == "RMM_ERROR_OUT_OF_MEMORY"
    for wrong in (lambda: rmm.rmmAlloc(-1, 0), lambda: rmm.rmmFree(0x100, 0), lambda: rmm.rmmRealloc(0x100, 1, 0), rmm.csv_log):
        with pytest.raises(RMMError) as failed:
            wrong()
        assert failed.value.errcode == "RMM_ERROR_INVALID_ARGUMENT"


def test_streams_of_old_code_are_bare_handles(old, sim):
    rmm, _ = old
    rmm.initialize()
    stream = alluvion.rmm.pylibrmm.stream.Stream()
    for given in (stream, stream.__cuda_stream__()[1], 0, 1, 2):
        rmm.rmmFree(rmm.rmmAlloc(4096, given), given)
    assert sim.hazards() == []


def test_old_programs_import_it_by_its_old_name():
    program = """
import alluvion, alluvion.rmm
with alluvion.simulated() as sim:
    alluvion.rmm.install(legacy=True)
    from librmm_cffi import librmm as rmm, librmm_config as rmm_cfg
    assert rmm.is_initialized()
    rmm.finalize()
    rmm_cfg.use_pool_allocator = True
    rmm_cfg.initial_pool_size = 1 << 20
    rmm.initialize()
    import rmm as new
    print(new.mr.get_current_device_resource().pool_size())
    rmm.rmmAlloc(100, 0)
"""
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(alluvion.__file__))}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{1 << 20}\n", "")
