"""Sleep and files where the disk, the folder and whoever calls are against us: an error each, nothing lost, nothing left behind."""

import gc
import os
import shutil
import subprocess
import sys
import threading

import pytest

import alluvion
from alluvion import errors

MIB = 1 << 20
CONTENTS = bytes(range(256)) * (5 * MIB // 256)


class Raises:
    def __fspath__(self):
        raise LookupError("no path")


class NoText:
    def __fspath__(self):
        return 7


@pytest.fixture
def stack(sim):
    made = alluvion.resource("stats | pool(checked=true) | mapped")
    yield made
    del made
    gc.collect()


def weights_of(stack):
    with alluvion.using(stack):
        return alluvion.DeviceBuffer.to_device(CONTENTS)


def faces_of(stack, weights):
    """What puts `weights` to sleep on a disk, and what wakes it."""

    def all_of_it(folder):
        sleeper = stack.sleep(keep="disk", folder=folder)
        return sleeper.wake

    def one_buffer(folder):
        weights.sleep(keep="disk", folder=folder)
        return weights.wake

    return [all_of_it, one_buffer]


def test_a_folder_that_is_none(stack, tmp_path):
    weights = weights_of(stack)
    file, dangling, ring = tmp_path / "file", tmp_path / "dangling", tmp_path / "ring"
    file.write_text("no folder")
    dangling.symlink_to(tmp_path / "nowhere")
    ring.symlink_to(ring)
    before = sorted(os.listdir(tmp_path))
    for sleep in faces_of(stack, weights):
        for folder in (file, dangling, ring, tmp_path / "missing", "/dev/null", "/proc", "a\0b", "n" * 300, "/".join(["n" * 200] * 40)):
            with pytest.raises((errors.Unwritable, ValueError)):
                sleep(folder)
        for folder, kind in [(7, TypeError), (2.5, TypeError), (NoText(), TypeError), (Raises(), LookupError), ([], TypeError)]:
            with pytest.raises(kind):
                sleep(folder)
        assert weights.tobytes() == CONTENTS
    for keep in (None, 7, b"disk", "DISK", "disk\0", ["disk"], {}):
        with pytest.raises((ValueError, TypeError)):
            stack.sleep(keep=keep, folder=tmp_path)
        with pytest.raises((ValueError, TypeError)):
            weights.sleep(keep=keep, folder=tmp_path)
    assert weights.tobytes() == CONTENTS and sorted(os.listdir(tmp_path)) == before
    del weights


def test_a_folder_that_goes_away_while_it_sleeps(stack, tmp_path):
    weights = weights_of(stack)
    for sleep in faces_of(stack, weights):
        folder = tmp_path / "folder"
        folder.mkdir()
        wake = sleep(folder)
        shutil.rmtree(folder)
        # Whoever makes one of that name has it for himself.
        folder.mkdir()
        (folder / "theirs").write_text("as it was")
        wake()
        assert weights.tobytes() == CONTENTS and os.listdir(folder) == ["theirs"]
        shutil.rmtree(folder)
    del weights


def test_the_current_folder_may_change(stack, tmp_path, monkeypatch):
    weights = weights_of(stack)
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    for sleep in faces_of(stack, weights):
        for folder in (".", "../here", b"."):
            monkeypatch.chdir(here)
            try:
                wake = sleep(folder)
            except TypeError:
                assert folder == b"."
                continue
            assert len(os.listdir(here)) == 1
            monkeypatch.chdir(there)
            wake()
            assert weights.tobytes() == CONTENTS and os.listdir(here) == os.listdir(there) == []
    del weights


def test_a_file_that_is_cut_short_and_lengthened(stack, tmp_path):
    weights = weights_of(stack)
    for sleep in faces_of(stack, weights):
        wake = sleep(tmp_path)
        (file,) = tmp_path.iterdir()
        whole = file.read_bytes()
        for damaged in (b"", whole[:100], whole[:-MIB], bytes(len(whole)), whole[:MIB] + whole[2 * MIB :]):
            os.truncate(file, 0)
            with open(file, "r+b") as other:
                other.write(damaged)
            for _ in range(2):
                with pytest.raises((errors.Malformed, errors.Unreadable)):
                    wake()
        with open(file, "r+b") as mended:
            # What is behind the end is nobody's.
            mended.write(whole + b"more")
        wake()
        assert weights.tobytes() == CONTENTS and os.listdir(tmp_path) == []
    del weights


def test_threads_that_put_one_stack_to_sleep(stack, tmp_path):
    weights = weights_of(stack)
    slept, refused, together = [], [], threading.Barrier(4)

    def work():
        together.wait()
        try:
            slept.append(stack.sleep(keep="disk", folder=tmp_path))
        except errors.Error as error:
            refused.append(error)

    def wake(sleeper):
        try:
            sleeper.wake()
        except errors.InUse as error:
            assert "another thread wakes it" in str(error)

    for _ in range(5):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # One has the blocks; others have found none that are awake, or were refused.
        assert sum(sleeper.blocks for sleeper in slept) == 1 and len(slept) + len(refused) == 4
        assert len(os.listdir(tmp_path)) <= len(slept)
        wakes = [threading.Thread(target=wake, args=(sleeper,)) for sleeper in slept * 2]
        for thread in wakes:
            thread.start()
        for thread in wakes:
            thread.join()
        assert weights.tobytes() == CONTENTS and os.listdir(tmp_path) == []
        slept.clear()
        refused.clear()
    del weights


def run(program, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


#: No file of the process may have more than so many bytes: the system then answers a write as on a full disk. Python ignores the signal.
FULL = """
import alluvion, os, resource, sys
from alluvion import errors
folder, contents = sys.argv[1], bytes(range(256)) * 40_000
path = os.path.join(folder, "model")

def limit(of):
    resource.setrlimit(resource.RLIMIT_FSIZE, (of, resource.RLIM_INFINITY))

def refused(call):
    try:
        call()
    except errors.Unwritable as error:
        assert folder in str(error), error
    else:
        raise AssertionError("there was room")

with alluvion.simulated() as sim:
    stack = alluvion.resource("stats | tracking | pool | mapped")
    with alluvion.using(stack), alluvion.tag("weights"):
        weights = alluvion.DeviceBuffer.to_device(contents)
    alluvion.save(path, {"old": weights})
    before = open(path, "rb").read()
    for room in (0, 5000, 5 << 20, len(contents)):
        limit(room)
        refused(lambda: alluvion.save(path, {"new": weights}))
        refused(lambda: stack.sleep(keep="disk", folder=folder))
        refused(lambda: stack.sleep("weights", keep="disk", folder=folder))
        refused(lambda: weights.sleep(keep="disk", folder=folder))
        limit(resource.RLIM_INFINITY)
        assert not weights.is_asleep and weights.tobytes() == contents
        assert os.listdir(folder) == ["model"] and open(path, "rb").read() == before
    with stack.sleep(keep="disk", folder=folder):
        limit(0)
    limit(resource.RLIM_INFINITY)
    alluvion.save(path, {"new": weights})
    assert weights.tobytes() == contents == alluvion.restore(path)["new"].tobytes()
    assert os.listdir(folder) == ["model"] and not sim.hazards()
    del weights, stack
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such limit")
def test_a_full_disk(tmp_path):
    run(FULL, tmp_path)


#: What sleeps when the interpreter ends: by names of the module, by a ring, by a thread that waits.
ENDS = """
import alluvion, sys, threading
folder, how = sys.argv[1:]
machine = alluvion.simulated(check=False)
machine.__enter__()
stack = alluvion.resource("stats | pool(checked=true) | mapped")
with alluvion.using(stack):
    weights = alluvion.DeviceBuffer.to_device(b"abc" * 1000)
if how == "buffer":
    weights.sleep(keep="disk", folder=folder)
else:
    sleeper = stack.sleep(keep="disk", folder=folder)
if how == "ring":
    class Ring: pass
    ring = Ring()
    ring.self, ring.sleeper = ring, sleeper
    del sleeper
if how == "raises":
    raise SystemExit(0)
"""


@pytest.mark.parametrize("how", ["names", "ring", "buffer", "raises"])
def test_what_sleeps_when_the_interpreter_ends_leaves_no_file(tmp_path, how):
    run(ENDS, tmp_path, how)
    assert os.listdir(tmp_path) == []


def test_files_that_are_none(sim, tmp_path):
    weights = alluvion.DeviceBuffer.to_device(b"abc")
    pipe, folder, link, good = tmp_path / "pipe", tmp_path / "folder", tmp_path / "link", tmp_path / "good"
    os.mkfifo(pipe)
    folder.mkdir()
    alluvion.save(good, {"it": weights})
    for place in (pipe, folder, "/dev/zero", "/dev/null", "/dev/full", tmp_path / "missing", "a\0b", "n" * 300):
        for read in (alluvion.saved, alluvion.restore):
            with pytest.raises((errors.Unreadable, ValueError)):
                read(place)
    for place in (pipe, folder, "/dev/zero", "/dev/null", "/dev/full", "a\0b", "n" * 300, tmp_path / "missing" / "it"):
        with pytest.raises((errors.Unwritable, ValueError)):
            alluvion.save(place, {"it": weights})
    # A link is followed to read, and replaced to write.
    link.symlink_to(good)
    assert alluvion.restore(link)["it"].tobytes() == b"abc"
    alluvion.save(link, {"other": weights})
    assert not link.is_symlink() and alluvion.saved(good) == {"it": 3} and alluvion.saved(link) == {"other": 3}
    assert sorted(os.listdir(tmp_path)) == ["folder", "good", "link", "pipe"]
    for name in ("n" * 4097, 7, b"it", None):
        with pytest.raises((ValueError, TypeError)):
            alluvion.save(good, {name: weights})
    # A name that a file can hold, and that nothing else can.
    with pytest.raises(UnicodeEncodeError):
        alluvion.save(good, {"\ud800": weights})
    alluvion.save(good, {"\0": weights, "ü" * 2048: weights})
    assert list(alluvion.saved(good)) == ["\0", "ü" * 2048]
    del weights


def test_a_file_that_is_exchanged_between_its_table_and_its_contents(sim, tmp_path, monkeypatch):
    path, other = tmp_path / "model", tmp_path / "other"
    alluvion.save(path, {"it": alluvion.DeviceBuffer.to_device(b"abc")})
    alluvion.save(other, {"it": alluvion.DeviceBuffer.to_device(b"abcd" * 1000)})
    from alluvion import _saved

    genuine = _saved.empty

    def exchange(*arguments, **options):
        if other.exists():
            os.replace(other, path)
        return genuine(*arguments, **options)

    monkeypatch.setattr(_saved, "empty", exchange)
    with pytest.raises(errors.LengthMismatch):
        alluvion.restore(path)
    assert alluvion.restore(path)["it"].tobytes() == b"abcd" * 1000
