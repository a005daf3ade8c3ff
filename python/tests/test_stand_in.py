"""The module paths of `rmm`, and the three ways to stand in for it."""

import importlib
import os
import pickle
import subprocess
import sys

import pytest

import alluvion
import alluvion.rmm

MODULES = [
    "rmm",
    "rmm._cuda",
    "rmm._cuda.gpu",
    "rmm._version",
    "rmm.allocators",
    "rmm.allocators.cupy",
    "rmm.allocators.torch",
    "rmm.librmm",
    "rmm.librmm._logger",
    "rmm.mr",
    "rmm.mr.experimental",
    "rmm.pylibrmm",
    "rmm.pylibrmm.cuda_stream_pool",
    "rmm.pylibrmm.device_buffer",
    "rmm.pylibrmm.helper",
    "rmm.pylibrmm.logger",
    "rmm.pylibrmm.memory_resource",
    "rmm.pylibrmm.memory_resource._memory_resource",
    "rmm.pylibrmm.memory_resource.experimental",
    "rmm.pylibrmm.stream",
    "rmm.pylibrmm.utils",
    "rmm.rmm",
    "rmm.statistics",
]


# Where this process has the package from, which others need not have on their path: it may be installed, or lie in a folder.
PACKAGES = os.path.dirname(os.path.dirname(alluvion.__file__))


def path_of(*folders):
    """A search path with these folders before that of the package."""
    return os.pathsep.join([*map(str, folders), PACKAGES])


def run(program, *options, **environment):
    """What a program prints, in a process of its own. It must print nothing on standard error."""
    done = subprocess.run(
        [sys.executable, *options, "-c", program] if program else [sys.executable, *options],
        env={**os.environ, "PYTHONPATH": path_of(), **environment},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.strip()


@pytest.fixture
def installed():
    alluvion.rmm.install()
    yield
    alluvion.rmm.uninstall()


@pytest.fixture
def folder():
    return run("", "-m", "alluvion.rmm", "--path")


@pytest.mark.parametrize("name", MODULES)
def test_every_module_is_ours(installed, name):
    assert importlib.import_module(name) is importlib.import_module("alluvion." + name)


def test_what_is_there_after_a_bare_import():
    run(
        "import alluvion.rmm as rmm\n"
        "rmm._cuda.gpu.getDevice\n"
        "for name in ('rmm', 'mr', 'pylibrmm', 'librmm', 'statistics', '_cuda', '_version'): getattr(rmm, name)\n"
        "rmm.mr.experimental, rmm.pylibrmm.device_buffer.copy_ptr_to_host, rmm.pylibrmm.logger, rmm.librmm._logger\n"
        "rmm.pylibrmm.memory_resource._memory_resource._append_id('a.b', 1) == 'a.dev1.b' or 1 / 0\n"
        "import sys\n"
        "assert not {'cupy', 'numba', 'torch', 'cuda', 'numpy', 'rmm.allocators'} & set(sys.modules)\n"
    )


def test_names_and_versions():
    rmm = alluvion.rmm
    assert rmm.__version__ == "26.10.00" and isinstance(rmm.__git_commit__, str)
    assert rmm.__alluvion_version__ == alluvion.__version__
    assert set(rmm.__all__) == {
        "DeviceBuffer",
        "RMMError",
        "disable_logging",
        "enable_logging",
        "flush_logger",
        "get_flush_level",
        "get_log_filenames",
        "get_logging_level",
        "is_initialized",
        "level_enum",
        "mr",
        "register_reinitialize_hook",
        "reinitialize",
        "set_flush_level",
        "set_logging_level",
        "should_log",
        "unregister_reinitialize_hook",
    }
    assert all(hasattr(rmm, name) for name in rmm.__all__)
    assert all(hasattr(rmm.mr, name) for name in rmm.mr.__all__)
    assert rmm.librmm.load_library() is None and rmm.librmm.__version__ == rmm.__version__


def test_deprecated_names():
    rmm = alluvion.rmm
    with pytest.warns(FutureWarning):
        assert rmm._lib is rmm.pylibrmm
    with pytest.warns(FutureWarning):
        assert rmm.logging_level is rmm.level_enum
    with pytest.warns(FutureWarning):
        assert callable(rmm.rmm_cupy_allocator)
    with pytest.warns(FutureWarning):
        rmm.rmm_torch_allocator
    with pytest.raises(AttributeError):
        rmm.nothing


def test_installing_and_uninstalling():
    with pytest.raises(ModuleNotFoundError):
        import rmm
    alluvion.rmm.install()
    try:
        alluvion.rmm.install()
        import rmm
        import rmm.statistics
        from rmm.mr import PoolMemoryResource

        assert rmm is alluvion.rmm and rmm.__name__ == "alluvion.rmm" == rmm.__spec__.name
        assert rmm.statistics.__spec__.name == "alluvion.rmm.statistics"
        assert PoolMemoryResource is alluvion.rmm.mr.PoolMemoryResource
        with pytest.raises(ModuleNotFoundError):
            import rmm.nothing
        import librmm

        assert librmm.load_library() is None
    finally:
        alluvion.rmm.uninstall()
        alluvion.rmm.uninstall()
    assert not [name for name in sys.modules if name.split(".")[0] in ("rmm", "librmm")]
    with pytest.raises(ModuleNotFoundError):
        import rmm


def test_the_modules_of_classes():
    rmm = alluvion.rmm
    kinds = [rmm.DeviceBuffer, rmm.mr.PoolMemoryResource, rmm.pylibrmm.stream.Stream, rmm.pylibrmm.CudaStreamPool]
    names = [kind.__module__ for kind in kinds]
    assert all(name.startswith("alluvion.rmm.pylibrmm.") for name in names)
    rmm.install()
    try:
        assert [kind.__module__ for kind in kinds] == [name.removeprefix("alluvion.") for name in names]
    finally:
        rmm.uninstall()
    assert [kind.__module__ for kind in kinds] == names


def test_pickles_load_with_and_without_the_stand_in(sim):
    rmm = alluvion.rmm
    rmm.install()
    try:
        objects = [rmm.level_enum.warn, rmm.statistics.Statistics(1, 2, 3, 4, 5, 6), rmm.RMMError(3, "text")]
        pickled = [pickle.dumps(thing) for thing in objects]
        buffer = pickle.dumps(rmm.DeviceBuffer.to_device(b"abc"))
    finally:
        rmm.uninstall()
    level, counts, error = map(pickle.loads, pickled)
    assert (level, counts) == tuple(objects[:2]) and (error.errcode, str(error)) == (3, "text")
    assert pickle.loads(buffer).tobytes() == b"abc"
    assert b"alluvion.rmm.pylibrmm.device_buffer" in buffer


def test_another_rmm_is_refused(tmp_path):
    (tmp_path / "rmm.py").write_text("genuine = True\n")
    text = run(
        "import rmm, alluvion.rmm\n"
        "try:\n"
        "    alluvion.rmm.install()\n"
        "except RuntimeError as error:\n"
        "    print(error)\n",
        PYTHONPATH=path_of(tmp_path),
    )
    assert str(tmp_path / "rmm.py") in text


def test_an_installed_rmm_is_passed_by(tmp_path, folder):
    (tmp_path / "rmm.py").write_text("genuine = True\n")
    path = path_of(tmp_path)
    assert run("import alluvion.rmm; alluvion.rmm.install(); import rmm; print(rmm.__name__)", PYTHONPATH=path) == (
        "alluvion.rmm"
    )
    program = "import rmm.statistics, rmm, sys; print(rmm.__name__, sys.modules['rmm'] is rmm, rmm.mr.__name__)"
    expected = "alluvion.rmm True alluvion.rmm.mr"
    assert run(program, PYTHONPATH=os.pathsep.join([folder, path])) == expected
    assert run("import alluvion.rmm as a; a.install(); " + program, PYTHONPATH=os.pathsep.join([folder, path])) == expected


def test_the_folder_has_packages_of_one_line(folder):
    assert sorted(os.listdir(folder)) == ["librmm_cffi", "rmm"]
    for name in os.listdir(folder):
        with open(os.path.join(folder, name, "__init__.py")) as file:
            assert len(file.readlines()) == 1


def test_running_a_program(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "import subprocess, sys, helper_of_script\n"
        "import rmm\n"
        "print(rmm.__name__, __name__, sys.argv[1:])\n"
        "child = 'import rmm; print(rmm.__name__)'\n"
        "print(subprocess.run([sys.executable, '-c', child], capture_output=True, text=True).stdout.strip())\n"
    )
    (tmp_path / "helper_of_script.py").write_text("")
    expected = "alluvion.rmm __main__ ['-x', 'y']\nalluvion.rmm"
    assert run("", "-m", "alluvion.rmm", str(script), "-x", "y") == expected
    assert run("", "-m", "alluvion.rmm", "-m", "program", "-x", "y", PYTHONPATH=path_of(tmp_path)) == expected
    assert run("", "-m", "alluvion.rmm", "-c", "import rmm, sys; print(rmm.__name__, sys.argv)", "a") == (
        "alluvion.rmm ['-c', 'a']"
    )


@pytest.mark.parametrize("arguments", [[], ["-m"], ["-z"]])
def test_a_wrong_use_is_told(arguments):
    done = subprocess.run(
        [sys.executable, "-m", "alluvion.rmm", *arguments],
        env={**os.environ, "PYTHONPATH": path_of()},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "usage:" in done.stderr


def test_an_installed_version_is_told(installed):
    from importlib import metadata

    assert metadata.version("rmm") == alluvion.rmm.__version__
    assert [found.name for found in metadata.distributions() if found.name == "rmm"] == ["rmm"]
    alluvion.rmm.uninstall()
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.version("rmm")


def test_allocators_are_there_after_a_bare_import(installed):
    program = "import rmm, sys; print(rmm.allocators.__name__, 'cupy' in sys.modules)"
    assert run("", "-m", "alluvion.rmm", "-c", program) == "alluvion.rmm.allocators False"


LEGACY = "from librmm_cffi import librmm, librmm_config; import librmm_cffi.librmm_config as c; print(c is librmm_config)"


def test_the_oldest_interface_is_there_in_every_way(folder):
    assert run("import alluvion.rmm; alluvion.rmm.install(); " + LEGACY) == "True"
    assert run("", "-m", "alluvion.rmm", "-c", LEGACY) == "True"
    assert run(LEGACY, PYTHONPATH=path_of(folder)) == "True"


def test_another_package_of_the_oldest_interface_is_passed_by_on_request_alone(tmp_path):
    (tmp_path / "librmm_cffi.py").write_text("genuine = True\n")
    program = "import alluvion.rmm; alluvion.rmm.install({}); import librmm_cffi; print(hasattr(librmm_cffi, 'genuine'))"
    assert run(program.format(""), PYTHONPATH=path_of(tmp_path)) == "True"
    assert run(program.format("legacy=True"), PYTHONPATH=path_of(tmp_path)) == "False"
