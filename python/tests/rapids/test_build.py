"""The compiled module: how it is built and kept, and what there is without one."""

import os
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import rmm

import alluvion
from alluvion.rapids import _rmm, build

HERE = Path(__file__).parent


@pytest.fixture
def built():
    """The path of the module that the other tests use."""
    return Path(build.load().__file__)


@pytest.fixture
def fake(tmp_path, built, monkeypatch):
    """A compiler that notes its calls, and copies the module that was built before: the source for it is the same."""
    script = tmp_path / "compiler"
    script.write_text(
        f"#!{sys.executable}\nimport pathlib, shutil, sys, time\nwith open({str(tmp_path / 'calls')!r}, 'a') as calls: calls.write('called\\n')\n"
        f"time.sleep(0.5)\nshutil.copy({str(built)!r}, sys.argv[sys.argv.index('-o') + 1])\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


USE = """
import warnings
warnings.simplefilter("error")
import alluvion, alluvion.rapids, rmm
with alluvion.simulated():
    mr = alluvion.rapids.DeviceResource("stats | pool | cuda-async")
    mr.deallocate(mr.allocate(1000), 1000)
    print(type(mr).__mro__[1].__module__)
"""


def test_the_header_of_the_door_counts_and_throws(tmp_path):
    kind = _rmm.KINDS[_rmm.version_of(rmm)]
    compiler, includes, libraries = build._needed()
    folders = [f"-I{each}" for each in (build._SOURCES, alluvion.get_include(), *includes, sysconfig.get_paths()["include"])]
    links = [f"-L{each}" for each in libraries] + [f"-Wl,-rpath,{each}" for each in libraries] + ["-lrmm"]
    links.append("-Wl,--allow-shlib-undefined")
    macros = [f"-D{macro}" for macro in kind.macros]
    loggers = build._package("rapids_logger") / "lib64"
    program = tmp_path / "copies"
    command = [compiler, f"-std=c++{kind.standard}", "-w", *macros, *folders, HERE / "copies.cpp", "-o", program, *links]
    subprocess.run(command, check=True)
    subprocess.run([program], check=True, env={**os.environ, "LD_LIBRARY_PATH": str(loggers)})


def test_it_is_built_once_and_nothing_else_is_left(fake, run):
    first, second = run(USE), run(USE)
    assert (first.returncode, first.stdout) == (second.returncode, second.stdout) == (0, "alluvion.rapids._compiled\n"), first.stderr
    assert (fake / "calls").read_text() == "called\n"
    cache = fake / "cache" / "alluvion" / "rapids"
    kept = sorted(path.name for path in cache.iterdir())
    assert len(kept) == 2 and kept[0] == "lock" and kept[1].startswith(f"rmm-{rmm.__version__}-") and kept[1].endswith(".abi3.so")
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_processes_that_start_together_build_one(fake):
    environment = {**os.environ, "PYTHONPATH": os.environ["PYTHONPATH"]}
    started = [
        subprocess.Popen([sys.executable, "-c", USE], env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for process in started:
        assert process.communicate(timeout=120)[0] == "alluvion.rapids._compiled\n" and process.returncode == 0
    assert (fake / "calls").read_text() == "called\n"


def test_a_build_that_fails_leaves_nothing_and_says_why(fake, run):
    (fake / "compiler").write_text("#!/bin/sh\necho 'door.hpp:1: error: of this compiler' >&2\nexit 1\n")
    ended = run("import warnings\nimport alluvion.rapids.build as build\nbuild.load()")
    assert "CannotBuild: compiler has failed: door.hpp:1: error: of this compiler" in ended.stderr
    assert [path.name for path in (fake / "cache" / "alluvion" / "rapids").iterdir()] == ["lock"]


def test_a_file_that_is_no_module_is_built_again(fake, run, built):
    cache = fake / "cache" / "alluvion" / "rapids"
    cache.mkdir(parents=True, mode=0o700)
    (cache / built.name).write_bytes(b"half of a file")
    ended = run(USE)
    assert (ended.returncode, ended.stdout) == (0, "alluvion.rapids._compiled\n"), ended.stderr


def test_a_folder_that_others_may_write_to_is_refused(fake, run):
    cache = fake / "cache" / "alluvion" / "rapids"
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    ended = run("import alluvion.rapids.build as build\nbuild.load()")
    assert ended.returncode == 1 and "others may write there: name another place with XDG_CACHE_HOME" in ended.stderr


def test_without_a_place_to_keep_it_a_process_builds_its_own(fake, run):
    (fake / "cache").write_text("a file, and no folder")
    ended = run(USE)
    assert (ended.returncode, ended.stdout) == (0, "alluvion.rapids._compiled\n"), ended.stderr


def test_the_command_builds_ahead(fake):
    command = [sys.executable, "-m", "alluvion.rapids.build"]
    ended = subprocess.run(command, capture_output=True, text=True)
    path = Path(ended.stdout.strip())
    assert ended.returncode == 0 and path.exists() and path.parent == fake / "cache" / "alluvion" / "rapids", ended.stderr
    os.environ["CXX"], os.environ["PATH"], path_before = "/nonexistent", "/nonexistent", os.environ["PATH"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True)
    finally:
        os.environ["PATH"] = path_before
    assert ended.returncode == 1 and ended.stderr.startswith("alluvion.rapids.build: to build it, there is missing: a compiler of C++")


def test_a_module_beside_the_package_is_for_all_users(fake, run, monkeypatch):
    beside = fake / "built"
    monkeypatch.setattr(build, "_BESIDE", beside)
    path = build.build(beside=True)
    assert path.parent == beside and stat.S_IMODE(beside.stat().st_mode) & 0o555 == 0o555
    assert stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444
    (fake / "compiler").unlink()
    ended = run(f"import pathlib\nfrom alluvion.rapids import build\nbuild._BESIDE = pathlib.Path({str(beside)!r})\n{USE}")
    assert (ended.returncode, ended.stdout) == (0, "alluvion.rapids._compiled\n"), ended.stderr
    assert not (fake / "cache").exists()


def test_a_table_of_another_version_is_an_import_error(run):
    ended = run("""
import ctypes
import doors
from alluvion import _alluvion
other = doors.Table.from_buffer_copy(doors.table())
other.abi_version = 2
_alluvion._C_API = doors.capsule(ctypes.addressof(other), doors.TABLE_NAME)
from alluvion.rapids import DeviceResource
""")
    assert ended.returncode == 1
    assert "ImportError: alluvion has version 2 of its table of functions" in ended.stderr and "built for version 1" in ended.stderr


@pytest.fixture
def without_compiler(tmp_path):
    return {"PATH": "/nonexistent", "CXX": "", "XDG_CACHE_HOME": str(tmp_path)}


needs_streams = pytest.mark.skipif(_rmm.version_of(rmm) < (25, 12), reason="its streams say no number")


@pytest.mark.skipif(_rmm.version_of(rmm) >= (25, 12), reason="callbacks do")
def test_where_callbacks_would_not_know_the_stream_the_missing_is_named(run, without_compiler):
    ended = run("from alluvion.rapids import DeviceResource", **without_compiler)
    assert ended.returncode == 1 and "there is missing: a compiler of C++" in ended.stderr


@needs_streams
def test_without_a_compiler_callbacks_do_with_one_warning(run, without_compiler):
    ended = run(
        """
import gc, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import alluvion, alluvion.rapids, rmm
    from alluvion.rapids import DeviceResource
    from alluvion.rapids import DeviceResource
with alluvion.simulated(devices=2, check=False) as sim:
    mr = DeviceResource("stats | limiting(64MiB) | pool | cuda-async")
    stack = mr.stack
    address = mr.allocate(1000)
    mr.deallocate(address, 1000)
    mr.deallocate(address, 1000)
    try:
        mr.allocate(1 << 30)
    except MemoryError as error:
        print(error)
    # C++ may have copies that hold nothing of Python.
    buffer = rmm.DeviceBuffer(size=1000, mr=mr)
    alluvion.rapids.install(stack)
    del mr
    gc.collect()
    del buffer
    print(stack.stats().current_bytes, len(caught), caught[0].message)
    stacks = alluvion.rapids.install("stats | pool | cuda-async")
    print(rmm.mr.get_per_device_resource(1))
""",
        **without_compiler,
    )
    assert ended.returncode == 0, ended.stderr
    refused, counted, of_device = ended.stdout.splitlines()
    assert "Limiting refused 1 GiB" in refused
    assert counted.startswith("0 1 alluvion.rapids goes on without its compiled module"), counted
    assert "a compiler of C++ (g++, or the one that CXX names)" in counted
    assert of_device == "DeviceResource(Stats(0 B) | Pool(0 B) | CudaAsync(gpu 1))"
    assert ended.stderr.startswith("alluvion: a free was refused: ") and ended.stderr.count("\n") == 1


@needs_streams
def test_without_a_compiler_a_process_ends_quietly_too(run, without_compiler):
    ended = run(
        """
import warnings
warnings.simplefilter("ignore")
import alluvion, alluvion.rapids, rmm
machine = alluvion.simulated(check=False)
machine.__enter__()
alluvion.rapids.install("stats | pool | cuda-async")
buffer = rmm.DeviceBuffer(size=1000, mr=rmm.mr.get_per_device_resource(0))
""",
        **without_compiler,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
