"""The compiled module: how it is built and kept, and what there is without one."""

import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import rmm

import alluvion
from alluvion._compiled import package, packages, places
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
        f"#!{sys.executable}\nimport os, shutil, sys, time\n"
        f"with open({str(tmp_path / 'calls')!r}, 'a') as calls: calls.write('called\\n')\n"
        f"with open({str(tmp_path / 'folders')!r}, 'a') as folders: folders.write(os.getcwd() + '\\n')\n"
        f"time.sleep(0.5)\nshutil.copyfile({str(built)!r}, sys.argv[sys.argv.index('-o') + 1])\n"
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
    compiler, includes, libraries = build.needed()
    folders = [f"-I{each}" for each in (build._DOOR.sources, alluvion.get_include(), *includes)]
    links = [f"-L{each}" for each in libraries] + [f"-Wl,-rpath,{each}" for each in libraries] + ["-lrmm"]
    links.append("-Wl,--allow-shlib-undefined")
    macros = [f"-D{macro}" for macro in kind.macros]
    loggers = package("rapids_logger") / "lib64"
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


def test_headers_of_cuda_are_found_in_each_place_that_packages_are_in(tmp_path, monkeypatch):
    """Wheels of CUDA that were installed for the user and those of the system are one package `nvidia`, in two folders."""
    (tmp_path / "nvidia" / "cu13" / "lib").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    assert packages("nvidia")[0] == tmp_path / "nvidia" and len(packages("nvidia")) > 1
    _, includes, _ = build.needed()
    assert any((folder / "cuda_runtime_api.h").exists() for folder in includes)
    assert packages("alluvion_of_no_such_name") == [] and not package("alluvion_of_no_such_name").exists()


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


@pytest.fixture
def cache(fake):
    """The folder of the cache, made."""
    folder = fake / "cache" / "alluvion" / "rapids"
    folder.mkdir(parents=True)
    return folder


LOAD = "import alluvion.rapids.build as build\nprint(build.load().__file__)\n"
RAISE = """
import alluvion.rapids.build as build
try:
    build.load()
except build.CannotBuild as error:
    print(error, "<-", repr(error.__cause__))
"""


def require_own_build(ended, fake):
    """That a process has built a module of its own, which is gone, and has left the cache alone."""
    assert ended.returncode == 0, ended.stderr
    where = Path(ended.stdout.strip())
    assert where.parent.name.startswith("alluvion-rapids-") and not where.exists()
    assert [path for path in (fake / "cache").rglob("*") if not path.is_dir() or path.is_symlink()] == []


@pytest.mark.parametrize("which", ["cache", "cache/alluvion", "cache/alluvion/rapids"])
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_nothing_is_kept_under_a_folder_that_others_may_write_to(fake, cache, which, mode):
    (fake / which).chmod(mode)
    # If root owns it and it is sticky, it is as /tmp: the folder in it is one's own.
    if mode == 0o1777 and os.geteuid() == 0 and which != "cache/alluvion/rapids":
        assert places.own(cache) == cache
        return
    with pytest.raises(PermissionError, match=f"^{fake / which} belongs to another user, or others may write there"):
        places.own(cache)


def test_a_process_builds_its_own_where_others_may_write(fake, cache, run):
    (fake / "cache").chmod(0o777)
    require_own_build(run(LOAD), fake)
    ended = subprocess.run([sys.executable, "-m", "alluvion.rapids.build"], capture_output=True, text=True)
    said = f"{fake / 'cache'} belongs to another user, or others may write there: name another place with XDG_CACHE_HOME"
    assert (ended.returncode, ended.stderr) == (1, f"alluvion.rapids.build: {said}\n")


only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@only_root
@pytest.mark.parametrize("which", ["cache", "cache/alluvion", "cache/alluvion/rapids"])
def test_nothing_is_kept_under_a_folder_of_another_user(fake, cache, run, which):
    os.chown(fake / which, 12345, 12345)
    require_own_build(run(LOAD), fake)


@only_root
def test_in_tmp_the_next_folder_is_the_users_own(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as mine, tempfile.TemporaryDirectory(dir="/tmp") as roots:
        os.chown(mine, 12345, 12345)
        with monkeypatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: 12345)
            assert places.own(Path(mine)) == Path(mine)
            with pytest.raises(PermissionError, match=f"^{roots} belongs to another user"):
                places.own(Path(roots))


def test_a_link_of_ones_own_is_followed_once_and_for_all(fake, monkeypatch):
    real = fake / "real"
    real.mkdir()
    (fake / "to").symlink_to("elsewhere/../real")
    (fake / "elsewhere").mkdir()
    assert places.own(fake / "to" / "alluvion") == real / "alluvion"
    (fake / "absolute").symlink_to(fake / "to")
    assert places.own(fake / "absolute" / "alluvion") == real / "alluvion"
    real.chmod(0o777)
    with pytest.raises(PermissionError, match=f"^{real} belongs to another user"):
        places.own(fake / "to" / "alluvion")
    (fake / "ring").symlink_to("ring")
    with pytest.raises(OSError, match="symbolic links"):
        places.own(fake / "ring")


@only_root
def test_a_link_of_another_user_is_not_followed(fake, run):
    (fake / "real").mkdir()
    (fake / "cache").mkdir()
    (fake / "cache" / "alluvion").symlink_to(fake / "real")
    os.chown(fake / "cache" / "alluvion", 12345, 12345, follow_symlinks=False)
    ended = run(LOAD)
    assert Path(ended.stdout.strip()).parent.name.startswith("alluvion-rapids-"), ended.stderr
    assert list((fake / "real").iterdir()) == []


def test_all_folders_that_are_made_are_the_users_alone(fake, run):
    ended = run("import os\nos.umask(0)\n" + LOAD)
    assert ended.returncode == 0, ended.stderr
    kept = Path(ended.stdout.strip())
    assert kept.parent == fake / "cache" / "alluvion" / "rapids"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (fake / "cache", *(fake / "cache").rglob("*"))}
    assert modes == {"cache": 0o700, "alluvion": 0o700, "rapids": 0o700, "lock": 0o600, kept.name: 0o755}


@pytest.mark.parametrize("change", ["writable", "link", pytest.param("another's", marks=only_root)])
def test_a_file_that_others_may_have_written_is_built_again(fake, cache, run, built, change):
    planted = cache / built.name
    shutil.copy(built, planted)
    if change == "writable":
        planted.chmod(0o666)
    elif change == "another's":
        os.chown(planted, 12345, 12345)
    else:
        planted.unlink()
        planted.symlink_to(built)
    ended = run(LOAD)
    assert (ended.returncode, ended.stdout) == (0, f"{planted}\n"), ended.stderr
    assert (fake / "calls").read_text() == "called\n"
    found = planted.lstat()
    assert stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


@pytest.fixture
def waiting(fake, cache):
    """Starts programs that wait for the lock of the cache, and lets them go on after `meanwhile`. Returns what they print."""

    def start(program, count, meanwhile=lambda: None):
        lock = cache / "lock"
        with open(lock, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            command = [sys.executable, "-c", program]
            started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(count)]
            for process in started:
                files = Path("/proc", str(process.pid), "fd")
                until = time.monotonic() + 60
                while not any(os.path.realpath(each) == str(lock) for each in files.iterdir()):
                    assert process.poll() is None and time.monotonic() < until, process.stderr.read()
                    time.sleep(0.01)
            meanwhile()
        ended = [process.communicate(timeout=120) for process in started]
        assert [process.returncode for process in started] == [0] * count, ended
        return [printed for printed, _ in ended]

    return start


def test_a_folder_that_was_opened_to_others_during_the_wait_is_no_place_any_more(fake, cache, waiting):
    (printed,) = waiting(LOAD, 1, lambda: cache.chmod(0o777))
    assert Path(printed.strip()).parent.name.startswith("alluvion-rapids-")
    assert [path.name for path in cache.iterdir()] == ["lock"]


BROKEN = "#!/bin/sh\necho called >> {calls}\nwhile [ \"$1\" != -o ]; do shift; done\necho 'no module' > \"$2\"\n"


def test_a_module_that_does_not_load_is_built_once_and_the_reason_is_named(fake, waiting):
    (fake / "compiler").write_text(BROKEN.format(calls=fake / "calls"))
    for printed in waiting(RAISE, 3):
        said, cause = printed.split(" <- ")
        assert said.startswith(f"the module that was built for rmm {rmm.__version__} does not load: ")
        assert said.endswith("file too short") and cause.startswith("ImportError(") and "file too short" in cause
    assert (fake / "calls").read_text() == "called\n"


def test_headers_of_another_rmm_are_named(fake, run):
    version = next(each for each in _rmm.KINDS if each != _rmm.version_of(rmm))
    other, this = ("{}.{:02}".format(*each) for each in (version, _rmm.version_of(rmm)))
    # The source of the version that is installed: Cython compiles no other.
    patch = "import rmm\nfrom alluvion.rapids import _rmm\n"
    patch += f"_rmm.KINDS[{version}] = _rmm.KINDS[_rmm.version_of(rmm)]\nrmm.__version__ = '{other}.00'\n"
    ended = run(patch + RAISE)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(f"the module that was built for rmm {other}.00 was built with headers of rmm {this} <- ")


@pytest.mark.parametrize("who", ["random", "cython"])
def test_nothing_of_the_current_folder_is_run(fake, run, who):
    here = fake / "here"
    here.mkdir()
    (here / f"{who}.py").write_text(f"open({str(fake / 'ran')!r}, 'w')\nraise SystemExit(1)\n")
    # The program itself has taken what it needs by then.
    ended = run(f"import os, tempfile\nfrom alluvion.rapids import build\nos.chdir({str(here)!r})\nprint(build.build())")
    assert not (fake / "ran").exists()
    assert ended.returncode == 0 and Path(ended.stdout.strip()).exists(), ended.stderr


def test_a_compiler_runs_in_the_folder_of_the_build(fake, run):
    assert run(f"import os\nos.chdir({str(fake)!r})\nos.environ['CXX'] = './compiler'\n" + LOAD).returncode == 0
    (where,) = map(Path, (fake / "folders").read_text().splitlines())
    assert where.parent == fake / "cache" / "alluvion" / "rapids" and where.name.startswith(".building-")


def test_a_lock_ends_with_the_build_whoever_has_its_file_too(tmp_path):
    lock = tmp_path / "lock"
    with places.lock(lock):
        files = {os.path.realpath(f"/proc/self/fd/{each}"): int(each) for each in os.listdir("/proc/self/fd")}
        # As a child has it that is forked now.
        held = os.dup(files[str(lock)])
    try:
        with open(lock) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(held)


def test_the_next_build_removes_what_others_have_left(fake, cache, run):
    left, recent = cache / ".building-left", cache / ".building-recent"
    for each in (left, recent):
        each.mkdir()
        (each / "resource.cpp").touch()
    two_hours_ago = time.time() - 7200
    os.utime(left, (two_hours_ago, two_hours_ago))
    ended = run(LOAD)
    assert ended.returncode == 0, ended.stderr
    assert not left.exists() and (recent / "resource.cpp").exists()


def test_without_a_place_to_keep_it_a_process_builds_its_own(fake, run):
    (fake / "cache").write_text("a file, and no folder")
    ended = run(USE)
    assert (ended.returncode, ended.stdout) == (0, "alluvion.rapids._compiled\n"), ended.stderr


def test_without_a_place_to_build_it_either_the_reason_is_named(fake, run):
    (fake / "cache").write_text("a file, and no folder")
    (fake / "temporary" / "own").mkdir(parents=True)
    (fake / "temporary").chmod(0o777)
    ended = run(RAISE, TMPDIR=str(fake / "temporary" / "own"))
    assert ended.returncode == 0, ended.stderr
    said = f"there is no place to build it, which TMPDIR may name: {fake / 'temporary'} belongs to another user"
    assert ended.stdout.strip().startswith(said)
    assert not (fake / "calls").exists()


def test_without_a_home_a_process_builds_its_own(fake, run):
    environment = {"XDG_CACHE_HOME": "", "HOME": "~nobody-of-this-name"}
    require_own_build(run("import os\n" + LOAD, **environment), fake)
    ended = run("import sys\nsys.argv = ['build']\nfrom alluvion.rapids import build\nsys.exit(build.main())", **environment)
    assert ended.returncode == 1
    assert ended.stderr == "alluvion.rapids.build: this user has no home to keep it in: name a place with XDG_CACHE_HOME\n"


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


@pytest.fixture
def beside(fake, monkeypatch):
    """A folder in the place of that in the package, and the line that puts it there in another process."""
    folder = fake / "built"
    monkeypatch.setattr(build._DOOR, "beside", folder)
    return folder, f"import pathlib\nfrom alluvion.rapids import build\nbuild._DOOR.beside = pathlib.Path({str(folder)!r})\n"


@pytest.mark.parametrize("umask", [0o077, 0])
def test_a_module_beside_the_package_is_for_all_users(fake, run, beside, umask):
    folder, place = beside
    before = os.umask(umask)
    try:
        path = build.build(beside=True)
    finally:
        os.umask(before)
    assert path.parent == folder
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, path)] == [0o755, 0o755]
    (fake / "compiler").unlink()
    # Also for a user without a home.
    for environment in ({}, {"XDG_CACHE_HOME": "", "HOME": "~nobody-of-this-name"}):
        ended = run(place + USE, **environment)
        assert (ended.returncode, ended.stdout) == (0, "alluvion.rapids._compiled\n"), ended.stderr
    assert not (fake / "cache").exists()


def copy_of(built, folder):
    folder.mkdir(mode=0o755)
    return Path(shutil.copy(built, folder))


@only_root
def test_a_module_beside_the_package_may_be_of_whom_the_package_is(fake, run, beside, built):
    folder, place = beside
    path = copy_of(built, folder)
    for each in (folder, path):
        os.chown(each, 12345, 12345)
    package = fake / "package.py"
    package.touch()
    ended = run(place + LOAD)
    assert ended.stdout == f"{fake / 'cache' / 'alluvion' / 'rapids' / built.name}\n", ended.stderr
    os.chown(package, 12345, 12345)
    ended = run(place + f"build._DOOR.file = {str(package)!r}\n" + LOAD)
    assert ended.stdout == f"{path}\n", ended.stderr


def test_a_folder_beside_the_package_that_nobody_may_look_into_has_no_module(fake, run):
    # For root too.
    place = "import pathlib\nfrom alluvion.rapids import build\nbuild._DOOR.beside = pathlib.Path('/', 'x' * 300)\n"
    ended = run(place + LOAD)
    assert ended.returncode == 0 and str(fake / "cache") in ended.stdout, ended.stderr


@pytest.mark.parametrize("which", ["folder", "file"])
def test_a_module_beside_the_package_that_others_may_write_is_not_loaded(fake, run, beside, built, which):
    folder, place = beside
    path = copy_of(built, folder)
    (folder if which == "folder" else path).chmod(0o777)
    ended = run(place + LOAD)
    assert ended.stdout == f"{fake / 'cache' / 'alluvion' / 'rapids' / built.name}\n", ended.stderr


def test_a_module_beside_the_package_that_does_not_load_is_named_where_there_is_no_other(fake, run, beside, built):
    folder, place = beside
    path = copy_of(built, folder)
    path.write_text("no module")
    ended = run(place + RAISE, PATH="/nonexistent", CXX="")
    assert ended.returncode == 0, ended.stderr
    assert "file too short. Nor is there another one: to build it, there is missing: a compiler of C++" in ended.stdout


@pytest.fixture
def of_wheel(fake, built):
    """A folder in the place of the package of the wheel, as pip makes it where others of the user's group may write, and the line that puts it
    there in another process. It has a module for another RMM."""
    folder = fake / "site" / "alluvion_rapids"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / built.name.replace(rmm.__version__, "24.12.00")).write_text("for another RMM")
    folder.chmod(0o775)
    return folder, f"import pathlib\nfrom alluvion.rapids import build\nbuild._DOOR.of_wheel = pathlib.Path({str(folder)!r})\n"


def test_the_package_of_the_wheel_is_looked_for_where_this_one_is_installed():
    assert build._DOOR.of_wheel == Path(alluvion.__file__).absolute().parent.parent / "alluvion_rapids"


def test_of_the_modules_of_the_wheel_the_one_of_this_rmm_is_taken(fake, run, of_wheel, built):
    folder, place = of_wheel
    module = Path(shutil.copy(built, folder))
    module.chmod(0o664)
    (fake / "compiler").unlink()
    ended = run(place + USE + "import sys\nprint(sys.modules['alluvion.rapids._compiled'].__file__)\n", PATH="/nonexistent")
    assert (ended.returncode, ended.stdout) == (0, f"alluvion.rapids._compiled\n{module}\n"), ended.stderr
    assert not (fake / "cache").exists()


def test_where_the_wheel_has_none_for_this_rmm_or_these_sources_one_is_built(fake, run, of_wheel, built):
    folder, place = of_wheel
    version, digest, rest = built.name.removeprefix("rmm-").split("-", 2)
    shutil.copy(built, folder / f"rmm-{version}-{digest[::-1]}-{rest}")
    ended = run(place + LOAD)
    assert ended.stdout == f"{fake / 'cache' / 'alluvion' / 'rapids' / built.name}\n", ended.stderr
    assert (fake / "calls").read_text() == "called\n"


def test_a_module_of_the_wheel_that_does_not_load_is_named_where_there_is_no_other(fake, run, of_wheel, built):
    folder, place = of_wheel
    (folder / built.name).write_text("no module")
    ended = run(place + RAISE, PATH="/nonexistent", CXX="")
    assert ended.returncode == 0, ended.stderr
    assert "file too short. Nor is there another one: to build it, there is missing: a compiler of C++" in ended.stdout
    ended = run(place + LOAD)
    assert ended.stdout == f"{fake / 'cache' / 'alluvion' / 'rapids' / built.name}\n", ended.stderr


def test_what_was_built_beside_the_package_comes_before_the_wheel(fake, run, beside, of_wheel, built):
    (first, place), (folder, of) = beside, of_wheel
    path = copy_of(built, first)
    shutil.copy(built, folder)
    assert run(place + of + LOAD).stdout == f"{path}\n"
    path.write_text("no module")
    assert run(place + of + LOAD).stdout == f"{folder / built.name}\n"


def test_the_command_builds_into_a_folder_that_is_there(fake):
    command = [sys.executable, "-m", "alluvion.rapids.build", "--into"]
    (fake / "package").mkdir()
    ended = subprocess.run([*command, "package"], capture_output=True, text=True, cwd=fake)
    made = Path(ended.stdout.strip())
    assert ended.returncode == 0 and made.exists() and made.parent == fake / "package", ended.stderr
    assert [path.name for path in (fake / "package").iterdir()] == [made.name] and not (fake / "cache").exists()
    ended = subprocess.run([*command, "nowhere"], capture_output=True, text=True, cwd=fake)
    assert ended.returncode == 1 and ended.stderr.startswith("alluvion.rapids.build: [Errno 2] No such file or directory")


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
