"""Logs of allocations, and the debug log."""

import os
import pickle
import subprocess
import sys
import warnings

import pytest

from alluvion import rmm
from alluvion.rmm import level_enum, mr

HEAD = "Thread,Time,Action,Pointer,Size,Stream"


def test_the_file_of_a_log(sim, tmp_path, monkeypatch):
    monkeypatch.delenv("RMM_LOG_FILE", raising=False)
    monkeypatch.chdir(tmp_path)
    logged = mr.LoggingResourceAdaptor(mr.CudaMemoryResource(), log_file_name="log.csv")
    assert logged.get_file_name() == str(tmp_path / "log.dev0.csv")
    logged.flush()
    assert (tmp_path / "log.dev0.csv").read_text() == HEAD + "\n"
    address = logged.allocate(100)
    logged.deallocate(address, 100)
    with pytest.raises(MemoryError):
        logged.allocate(1 << 50)
    logged.flush()
    head, *rows = (tmp_path / "log.dev0.csv").read_text().splitlines()
    rows = [row.split(",") for row in rows]
    assert head == HEAD
    assert [row[2] for row in rows] == ["allocate", "free", "allocate failure"]
    assert [row[3:5] for row in rows] == [[hex(address), "100"]] * 2 + [["(nil)", str(1 << 50)]]


def test_a_log_of_the_environment(sim, tmp_path, monkeypatch):
    monkeypatch.delenv("RMM_LOG_FILE", raising=False)
    with pytest.raises(ValueError, match="log_file_name.*RMM_LOG_FILE"):
        mr.LoggingResourceAdaptor(mr.CudaMemoryResource())
    with pytest.raises(ValueError):
        rmm.enable_logging()
    with pytest.raises(TypeError):
        mr.LoggingResourceAdaptor(mr.CudaMemoryResource(), 7)
    monkeypatch.setenv("RMM_LOG_FILE", str(tmp_path / "of.environment"))
    logged = mr.LoggingResourceAdaptor(mr.CudaMemoryResource())
    assert logged.get_file_name() == str(tmp_path / "of.dev0.environment")
    with pytest.raises(RuntimeError):
        mr.LoggingResourceAdaptor(mr.CudaMemoryResource(), tmp_path / "missing" / "log.csv")


def test_logging_of_every_device(sim, tmp_path):
    first, second = mr.get_per_device_resource(0), mr.get_per_device_resource(1)
    rmm.enable_logging(log_file_name=str(tmp_path / "log.csv"))
    names = {device: str(tmp_path / f"log.dev{device}.csv") for device in (0, 1)}
    assert rmm.get_log_filenames() == names
    wrapped = mr.get_per_device_resource(1)
    rmm.enable_logging(log_file_name=str(tmp_path / "other.csv"))
    assert mr.get_per_device_resource(1) is wrapped
    mr._flush_logs()
    assert (tmp_path / "log.dev1.csv").read_text() == HEAD + "\n"
    rmm.disable_logging()
    assert mr.get_per_device_resource(0) is first and mr.get_per_device_resource(1) is second
    assert rmm.get_log_filenames() == {0: None, 1: None}


def test_logging_of_the_first_device_by_default(sim, tmp_path):
    assert rmm.get_log_filenames() == {}
    rmm.enable_logging(str(tmp_path / "log.txt"))
    assert rmm.get_log_filenames() == {0: str(tmp_path / "log.dev0.txt")}


def test_levels():
    names = ["trace", "debug", "info", "warn", "error", "critical", "off", "n_levels"]
    assert [level.name for level in level_enum] == names and list(level_enum) == list(range(8))
    assert pickle.loads(pickle.dumps(level_enum.warn)) is level_enum.warn
    assert rmm.librmm._logger.level_enum is level_enum is rmm.pylibrmm.logger.level_enum
    assert rmm.get_logging_level() is level_enum.info and rmm.get_flush_level() is level_enum.off


@pytest.mark.parametrize("function", ["set_logging_level", "set_flush_level", "should_log"])
@pytest.mark.parametrize("wrong", [2, "info", None, 2.0])
def test_only_levels_are_levels(function, wrong):
    with pytest.raises(TypeError):
        getattr(rmm, function)(wrong)


@pytest.mark.parametrize("level", list(level_enum))
def test_every_level_can_be_set(level):
    before = rmm.get_logging_level(), rmm.get_flush_level()
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            rmm.set_logging_level(level)
            assert rmm.get_logging_level() is level
            rmm.set_flush_level(level)
            assert rmm.get_flush_level() is level
        texts = [str(warning.message) for warning in warned]
        assert bool(texts) == (level >= level_enum.off)
        assert all(text.startswith(f"RMM will not log level_enum.{level.name}.") for text in texts)
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rmm.set_logging_level(before[0])
            rmm.set_flush_level(before[1])


def test_growth_and_failures_are_in_the_debug_log(tmp_path):
    program = """
import alluvion
from alluvion import rmm
with alluvion.simulated(memory="64 MiB"):
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size="1 MiB", maximum_pool_size="16 MiB")
    for level in (rmm.level_enum.info, rmm.level_enum.debug, rmm.level_enum.critical):
        rmm.set_logging_level(level)
        try:
            pool.allocate(32 << 20)
        except MemoryError:
            pass
        if level == rmm.level_enum.debug:
            pool.deallocate(pool.allocate(4 << 20), 4 << 20)
            pool.deallocate(pool.allocate(4 << 20), 4 << 20)
rmm.flush_logger()
"""
    file = tmp_path / "debug.txt"
    for place, lines in ((str(file), ["error", "error", "debug"]), ("", ["debug"])):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "RMM_DEBUG_LOG_FILE": place},
            capture_output=True,
            text=True,
            check=True,
        )
        text = file.read_text() if place else done.stderr
        assert [line.split("[")[3].split("]")[0].strip() for line in text.splitlines()] == lines
        assert place == "" or "A request of 33554432 B failed: out of memory: Pool of gpu 0 refused" in text
        assert "Growth by " in text and done.stdout == ""


def test_the_file_of_the_debug_log(tmp_path):
    program = """
import alluvion
from alluvion import rmm
with alluvion.simulated():
    cuda = rmm.mr.CudaMemoryResource()
    tracking = rmm.mr.TrackingResourceAdaptor(cuda)
    tracking.deallocate(cuda.allocate(100), 100)
rmm.flush_logger()
print(open({0!r}).read())
"""
    file = tmp_path / "debug.txt"
    done = subprocess.run(
        [sys.executable, "-c", program.format(str(file))],
        env={**os.environ, "RMM_DEBUG_LOG_FILE": str(file)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    import re

    assert re.match(r"\[ *\d+\]\[\d\d:\d\d:\d\d:\d{6}\]\[error \] Deallocating", done.stdout)
