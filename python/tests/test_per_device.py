"""A stack for every device, and the current resources of all devices at once."""

import os
import subprocess
import sys
import threading

import pytest

import alluvion
from alluvion import errors

MIB = 1 << 20


@pytest.fixture
def three():
    with alluvion.simulated(devices=3, memory="1 GiB") as sim:
        yield sim


def test_each_device_has_its_stack(three):
    stacks = alluvion.per_device("stats | pool(initial=2MiB) | cuda-async")
    assert list(stacks) == [0, 1, 2] and len(stacks) == 3
    assert [stack.device for stack in stacks.values()] == [0, 1, 2]
    assert str(stacks[2]) == "Stats(0 B) | Pool(2 MiB) | CudaAsync(gpu 2)"
    some = alluvion.per_device("cuda", devices=[2, 0])
    assert list(some) == [2, 0] and some[2].device == 2
    with pytest.raises(KeyError):
        some[1]


def test_memory_of_each_device_is_for_its_peers(three):
    for source in ["cuda", "cuda-async", "mapped"]:
        stacks = alluvion.per_device(f"pool | {source}(peers=all)")
        assert len(stacks) == 3
    with pytest.raises(ValueError, match="all, reachable or numbers such as 0\\+1"):
        alluvion.per_device("cuda(peers=some)")
    with pytest.raises(errors.NoDevice):
        alluvion.per_device("cuda(peers=7)")


def test_an_exception_names_the_device(three):
    with pytest.raises(ValueError, match="another device") as raised:
        alluvion.per_device("pool | cuda(gpu=0)")
    assert raised.value.__notes__ == ["for the stack of gpu 1"]
    with pytest.raises(errors.NoDevice) as raised:
        alluvion.per_device("cuda", devices=[0, 9])
    assert raised.value.__notes__ == ["for the stack of gpu 9"]
    with pytest.raises(ValueError, match="device 1 is named twice"):
        alluvion.per_device("cuda", devices=[1, 1])
    with pytest.raises(TypeError, match="a recipe is a str"):
        alluvion.per_device(alluvion.resource("cuda"))


def test_figures_of_all_are_the_sums_of_each(three):
    stacks = alluvion.per_device("stats | pool(initial=2MiB) | cuda-async")
    addresses = {device: stack.allocate((device + 1) * MIB // 4) for device, stack in stacks.items()}
    stacks[2].deallocate(stacks[2].allocate(MIB), MIB)
    each = [stack.stats() for stack in stacks.values()]
    together = stacks.stats()
    assert [stats.current_bytes for stats in each] == [MIB // 4, MIB // 2, MIB * 3 // 4]
    assert together == tuple(sum(figures) for figures in zip(*each))
    assert (together.current_count, together.peak_bytes, together.total_count) == (3, MIB * 5 // 2, 4)
    pools = [stack.pool_status() for stack in stacks.values()]
    status = stacks.pool_status()
    assert set(status) == set(pools[0])
    assert status["reserved_bytes"] == sum(pool["reserved_bytes"] for pool in pools) == 6 * MIB
    assert status["fragmentation"] == pytest.approx(
        sum(pool["fragmentation"] * pool["free_bytes"] for pool in pools) / status["free_bytes"]
    )
    snapshots = stacks.snapshot()
    assert [snapshot.facts["device"]["ordinal"] for snapshot in snapshots.values()] == [0, 1, 2]
    for device, address in addresses.items():
        stacks[device].deallocate(address, (device + 1) * MIB // 4)
    bare = alluvion.per_device("cuda")
    assert bare.pool_status() is None
    with pytest.raises(ValueError, match="no `stats` layer"):
        bare.stats()


def test_a_page_of_metrics_has_every_device(three):
    stacks = alluvion.per_device("stats | pool(initial=2MiB) | cuda-async")
    page = stacks.metrics("mine")
    assert page == alluvion.metrics({"mine": stacks})
    for device in range(3):
        labels = f'resource="mine",device="{device}",depth="1",layer="Pool"'
        assert f"alluvion_reserved_bytes{{{labels}}} {2 * MIB}\n" in page
        assert f'alluvion_share_imports{{device="{device}"}} 0\n' in page
    one = alluvion.metrics({"mine": stacks[1], "other": alluvion.resource("cuda", 1)})
    assert 'resource="mine",device="1"' in one and 'resource="other",device="1"' in one
    assert one.count("\nalluvion_share_imports{") == 1 and 'device="0"' not in one
    with pytest.raises(TypeError):
        alluvion.metrics({"mine": {0: "cuda"}})
    with pytest.raises(TypeError):
        alluvion.metrics({"mine": "cuda"})


def current():
    return [alluvion.current_resource(device) for device in range(3)]


def test_all_are_current_for_a_while(three):
    before = current()
    stacks = alluvion.per_device("stats | pool | cuda-async")
    with alluvion.using(stacks) as entered:
        assert entered is stacks
        assert current() == list(stacks.values())
        # Some of them within: the others stay.
        inner = alluvion.per_device("cuda", devices=[1])
        with alluvion.using(inner):
            assert current() == [stacks[0], inner[1], stacks[2]]
        assert current() == list(stacks.values())
    assert current() == before
    with pytest.raises(RuntimeError, match="in between"), alluvion.using(stacks):
        raise RuntimeError("in between")
    assert current() == before
    with pytest.raises(TypeError, match="leave out 'device'"), alluvion.using(stacks, 1):
        pass


def test_what_fails_in_the_middle_changes_nothing(three):
    before = current()
    wrong = alluvion.PerDevice({0: alluvion.resource("cuda"), 1: alluvion.resource("cuda", 2)})
    with pytest.raises(errors.DeviceMismatch), alluvion.using(wrong):
        pass
    assert current() == before


def test_one_thread_may_have_its_own(three):
    before = current()
    stacks = alluvion.per_device("stats | cuda")
    seen = []
    using = alluvion.using(stacks, thread=True)
    with using:
        assert current() == list(stacks.values())
        other = threading.Thread(target=lambda: seen.extend(current()))
        other.start()
        other.join()
        with using:
            assert current() == list(stacks.values())
        assert current() == list(stacks.values())
    assert seen == before and current() == before


def test_a_host_without_devices_is_told_so():
    # A process of its own: there may be a GPU, and a driver is opened once.
    program = "import alluvion\ntry: alluvion.per_device('cuda')\nexcept RuntimeError as error: print(error)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "no driver" in done.stdout and "alluvion.simulated()" in done.stdout or "no such device" in done.stdout
