"""Blocks in a file."""

import os

import pytest

import alluvion

MIB = 1 << 20


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model"


def numbers(count):
    return bytes((at * 3 + at // 7) % 256 for at in range(count))


@pytest.mark.parametrize("own_stream", [False, True])
def test_blocks_come_back_on_another_machine(path, own_stream):
    contents = {"": b"", "one": b"1", "long": numbers(8 * MIB + 3)}
    with alluvion.simulated() as sim:
        stream = alluvion.Stream() if own_stream else None
        size = alluvion.save(path, {name: alluvion.DeviceBuffer.to_device(of) for name, of in contents.items()}, stream=stream)
        assert not sim.hazards()
    assert size == path.stat().st_size
    assert alluvion.saved(path) == {name: len(of) for name, of in contents.items()}
    with alluvion.simulated() as sim:
        stream = alluvion.Stream() if own_stream else None
        stack = alluvion.resource("stats | pool | cuda")
        restored = alluvion.restore(path, resource=stack, stream=stream)
        assert {name: of.tobytes() for name, of in restored.items()} == contents
        assert stack.stats().current_count == 2, "an empty one has no memory"
        assert [*alluvion.restore(str(path), ["one"])] == ["one"]
        del restored, stack
        assert not sim.hazards()


def test_arrays_of_other_libraries_are_saved_if_their_elements_follow_each_other(path):
    class Array:
        def __init__(self, buffer, **interface):
            self.buffer = buffer
            self.__cuda_array_interface__ = {"data": (buffer.ptr, False), "version": 3, **interface}

    with alluvion.simulated():
        buffer = alluvion.DeviceBuffer.to_device(numbers(24))
        for strides in (None, (12, 4)):
            alluvion.save(path, {"array": Array(buffer, shape=(2, 3), typestr="<f4", strides=strides)})
            assert alluvion.restore(path)["array"].tobytes() == numbers(24)
        with pytest.raises(ValueError, match="'array' has strides"):
            alluvion.save(path, {"array": Array(buffer, shape=(3, 2), typestr="<f4", strides=(4, 12))})
        with pytest.raises(TypeError, match="'array' is no buffer of device memory: bytes"):
            alluvion.save(path, {"array": b"123"})
        del buffer


def test_what_fails_leaves_the_old_file(path):
    with alluvion.simulated() as sim:
        old, new = (alluvion.DeviceBuffer.to_device(of) for of in (b"old", b"new"))
        alluvion.save(path, {"it": old})
        sim.fail("cuMemcpyAsync", code=2)
        with pytest.raises(alluvion.errors.Error):
            alluvion.save(path, {"it": new})
        assert os.listdir(path.parent) == ["model"]
        with pytest.raises(alluvion.errors.Unwritable, match="no/such"):
            alluvion.save("/no/such/folder", {"it": new})
        assert alluvion.restore(path)["it"].tobytes() == b"old"
        with pytest.raises(KeyError, match="'that'.*no block of that name, but 'it'"):
            alluvion.restore(path, ["that"])
        with pytest.raises(TypeError, match=r"pass \['it'\]"):
            alluvion.restore(path, "it")
        del old, new


def test_a_file_that_is_cut_short_or_damaged_says_so(path):
    with alluvion.simulated():
        buffer = alluvion.DeviceBuffer.to_device(numbers(100))
        alluvion.save(path, {"it": buffer})
        whole = path.read_bytes()
        for damaged, why in [
            (whole[:-1], "cut short"),
            (whole[:30], "30 bytes"),
            (b"x" * 5000, "no file of saved blocks"),
            (whole[:4100] + b"\xff" + whole[4101:], "contents of \"it\" are damaged"),
        ]:
            path.write_bytes(damaged)
            with pytest.raises(alluvion.errors.Malformed, match=why):
                alluvion.restore(path)
        path.write_bytes(whole)
        assert alluvion.restore(path)["it"].tobytes() == numbers(100)
        with pytest.raises(alluvion.errors.Unreadable):
            alluvion.saved(path.parent / "nothing")
        del buffer


class Array:
    """Of another library."""

    def __init__(self, buffer, **interface):
        self.buffer = buffer
        self.__cuda_array_interface__ = {"data": (buffer.ptr, False), "version": 3, **interface}


def test_blocks_live_until_they_are_written(path):
    class Made(dict):
        def items(self):
            return ((name, alluvion.DeviceBuffer.to_device(numbers(size))) for name, size in super().items())

    with alluvion.simulated() as sim, alluvion.using(alluvion.resource("pool | cuda")):
        alluvion.save(path, Made(one=1000, other=2000))
        assert not sim.hazards()
        restored = {name: of.tobytes() for name, of in alluvion.restore(path).items()}
        assert restored == {"one": numbers(1000), "other": numbers(2000)}


def test_an_array_is_saved_behind_the_stream_that_it_names(path):
    with alluvion.simulated() as sim:
        own = alluvion.Stream()
        source = alluvion.DeviceBuffer.to_device(numbers(MIB))
        buffer = alluvion.DeviceBuffer(size=MIB, stream=own)
        buffer.copy_from_device(source, stream=own)
        for stream in (None, alluvion.Stream(), own):
            array = Array(buffer, shape=(MIB,), typestr="|u1", stream=own.__cuda_stream__()[1])
            alluvion.save(path, {"array": array}, stream=stream)
            assert not sim.hazards()
            assert alluvion.restore(path)["array"].tobytes() == numbers(MIB)
            buffer.copy_from_device(source, stream=own)
        del array, buffer, source


def test_whatever_elements_an_array_has_are_saved(path):
    with alluvion.simulated():
        buffer = alluvion.DeviceBuffer.to_device(numbers(64))
        for shape, form, size in [
            ((), "<f4", 4),
            ((2,), "|b1", 2),
            ((2,), "|V12", 24),
            ((8,), "<M8[ns]", 64),
            ((2,), "<U3", 24),
            ((3, 0), "<f8", 0),
        ]:
            alluvion.save(path, {"array": Array(buffer, shape=shape, typestr=form)})
            assert alluvion.restore(path)["array"].tobytes() == numbers(64)[:size], form
        alluvion.save(path, {"array": Array(buffer, shape=(1, 4), typestr="<f4", strides=(999, 4))})
        assert alluvion.saved(path) == {"array": 16}
        for wrong, why in [
            ({"mask": buffer}, "has a mask"),
            ({"shape": (-1, -4)}, "negative length"),
            ({"typestr": "f4"}, "no known type: 'f4'"),
            ({"strides": (4, 4)}, "has strides"),
            ({"data": (0, False)}, "16 bytes at no address"),
            ({"data": (2**64 - 8, False)}, "16 bytes at no address"),
            ({"shape": (2**62,)}, "at no address"),
        ]:
            with pytest.raises(ValueError, match=f"'array'.*{why}"):
                alluvion.save(path, {"array": Array(buffer, **{"shape": (4,), "typestr": "<f4", **wrong})})
        del buffer
