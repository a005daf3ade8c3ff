"""How Dask moves a buffer between two workers of one machine: two simulated processes, and real ones, which cannot share."""

import gc
import time

import pytest

pytest.importorskip("distributed")

import distributed
from distributed.comm.core import CommClosedError
from distributed.protocol.serialize import dask_deserialize, deserialize, serialize

import alluvion
import alluvion.dask
from alluvion import _dask_transfer as transfer

pytestmark = [pytest.mark.filterwarnings("ignore::ResourceWarning"), pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

PATTERN = bytes(range(256)) * 4096


@pytest.fixture
def lender(monkeypatch):
    fresh = transfer.Lender()
    monkeypatch.setattr(transfer, "lender", fresh)
    yield fresh
    fresh.sweep(now=time.monotonic() + 2 * fresh.kept_seconds)
    assert len(fresh) == 0


def towards(identity):
    return {"recipient": {"address": "tcp://127.0.0.1:1", "alluvion": identity}}


def copies(machine):
    return sum(count for name, count in machine.calls().items() if "Memcpy" in name)


@pytest.mark.parametrize("way", ["cuda", "pool | cuda"])
def test_a_buffer_goes_by_a_handle(sim, lender, way):
    with sim.process() as other:
        recipient = transfer.identity()
    with alluvion.using(way):
        buffer = alluvion.Buffer.to_device(PATTERN)
        before = copies(sim)
        header, frames = serialize(buffer, context=towards(recipient))
        assert header["serializer"] == "dask" and frames == [] and len(lender) == 1
        with other:
            # No bytes came with the header. There is one copy, on the device.
            theirs = copies(other)
            mine = deserialize(header, frames)
            assert copies(other) == theirs + 1
            assert not mine.__cuda_array_interface__["data"][1]
            assert alluvion.sharing_figures()[:2] == (0, 0)
            assert mine.tobytes() == PATTERN
            assert copies(other) == theirs + 2
            del mine
            other.forget_resources()
        assert copies(sim) == before
        # In a collection, too.
        header, frames = serialize({"a": [buffer, 1]}, context=towards(recipient), iterate_collection=True)
        with other:
            mine = deserialize(header, frames)["a"][0]
            assert mine.tobytes() == PATTERN
            del mine
            other.forget_resources()
        del buffer


def test_what_cannot_go_by_a_handle_goes_through_the_host(sim, lender):
    own = transfer.identity()
    here = towards(own)
    buffer = alluvion.empty(len(PATTERN), resource="cuda")
    buffer.copy_from_host(PATTERN)
    cases = [
        (buffer, None),
        (buffer, {}),
        (buffer, {"recipient": {"address": "tcp://x"}}),
        (buffer, towards({**own, "node": "another"})),
        (buffer, towards({**own, "version": 99})),
        (buffer, towards({**own, "devices": ["00" * 16]})),
        (alluvion.Buffer.to_device(b"small"), here),
        (alluvion.empty(1 << 20, resource="cuda-async"), here),
        (alluvion.empty(1 << 20, resource="mapped(handles=fd)"), here),
    ]
    for one, context in cases:
        header, frames = serialize(one, context=context)
        assert header["serializer"] == "pickle"
        assert deserialize(header, frames).tobytes() == one.tobytes()
        with pytest.raises(NotImplementedError):
            transfer.dumps(one, context)
    assert len(lender) == 0
    del buffer, one, cases


def test_a_process_says_who_it_is(sim):
    own = transfer.identity()
    assert len(own["devices"]) == 2
    alluvion.set_current_device(1)
    try:
        # The same devices, its own first.
        assert transfer.identity()["devices"] == own["devices"][::-1]
    finally:
        alluvion.set_current_device(0)
    with alluvion.simulated(version=11020):
        found = transfer.identity()
        assert found is None or found["node"] == own["node"]


def test_what_is_sent_is_kept_until_it_was_had(sim, lender):
    with sim.process() as other:
        recipient = transfer.identity()
    with alluvion.using("stats | cuda") as stack:
        buffer = alluvion.Buffer.to_device(PATTERN)
        header, _ = transfer.dumps(buffer, towards(recipient))
        second, _ = transfer.dumps(buffer, towards(recipient))
        del buffer
        gc.collect()
        # Nobody has come yet.
        assert lender.sweep() == 2 and stack.stats().current_bytes == len(PATTERN)
        with other:
            there = alluvion.open_shared(header["message"])
        assert lender.sweep() == 2
        with other:
            del there
        assert lender.sweep() == 1
        # The other one is let go after a time.
        assert lender.sweep(now=time.monotonic() + 2 * lender.kept_seconds) == 0
        assert stack.stats().current_bytes == 0
        with other, pytest.raises(CommClosedError):
            transfer.loads(second, [])


class Pool:
    """What `withdraw` asks of the connections of a worker."""

    def __init__(self):
        self.available = {"tcp://a": 1, "tcp://b": 2}
        self.removed = []

    def remove(self, address):
        self.removed.append(address)


class Loop:
    def add_callback(self, call, *arguments):
        call(*arguments)


class Worker:
    def __init__(self):
        self.connection_args = {"handshake_overrides": {"other": 1}}
        self.rpc, self.loop = Pool(), Loop()


def test_a_worker_that_cannot_open_withdraws(sim, lender):
    worker = Worker()
    transfer.announce(worker)
    said = worker.connection_args["handshake_overrides"]
    assert said["other"] == 1 and said["alluvion"] == transfer.identity()
    buffer = alluvion.empty(len(PATTERN), resource="cuda")
    header, frames = transfer.dumps(buffer, towards(said["alluvion"]))
    # In the process that shares it, it cannot be opened.
    with pytest.raises(OSError, match="cannot be opened"):
        transfer.loads(header, frames)
    assert worker.connection_args["handshake_overrides"] == {"other": 1}
    assert worker.rpc.removed == ["tcp://a", "tcp://b"]
    transfer.withdraw(worker)
    assert len(worker.rpc.removed) == 2
    del buffer


def test_memory_that_runs_out_at_the_other_worker_is_its_error(sim, lender):
    with sim.process() as other:
        recipient = transfer.identity()
    buffer = alluvion.empty(len(PATTERN), resource="cuda")
    header, frames = transfer.dumps(buffer, towards(recipient))
    with other, alluvion.using("limiting(1KiB) | cuda"), pytest.raises(MemoryError):
        transfer.loads(header, frames)
    with other:
        assert alluvion.sharing_figures()[:2] == (0, 0)
    del buffer


def make(size):
    return alluvion.Buffer.to_device(bytes(range(256)) * (size // 256))


def measure(buffer):
    return buffer.nbytes, buffer.tobytes() == bytes(range(256)) * (buffer.nbytes // 256)


def kept():
    return len(transfer.lender)


def run_transfer(client):
    first, second = sorted(client.scheduler_info(n_workers=-1)["workers"])
    made = client.submit(make, 1 << 20, workers=[first], pure=False)
    return client.submit(measure, made, workers=[second], pure=False).result()


def test_workers_of_one_process_by_tcp(sim, lender, monkeypatch):
    # What the workers say of themselves reaches the sender over real connections. The receiver opens as another simulated process.
    other = sim.process()
    opened = []

    def loads(header, frames):
        with other:
            there = alluvion.open_shared(header["message"])
            opened.append(there.nbytes)
            host = there.tobytes()
            del there
        return alluvion.Buffer.to_device(host)

    monkeypatch.setitem(dask_deserialize._lookup, alluvion.DeviceBuffer, loads)
    with (
        alluvion.using("cuda"),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        client.register_plugin(alluvion.dask.MemorySetup())
        assert run_transfer(client) == (1 << 20, True)
        assert opened == [1 << 20]
        # Where it cannot be opened, Dask asks again, and gets the bytes.
        monkeypatch.setitem(dask_deserialize._lookup, alluvion.DeviceBuffer, transfer.loads)
        assert run_transfer(client) == (1 << 20, True)
    gc.collect()


def test_real_processes_on_simulators_go_through_the_host():
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        client.register_plugin(alluvion.dask.MemorySetup("cuda", simulated=1))
        assert run_transfer(client) == (1 << 20, True)
        assert set(client.run(kept).values()) == {0}
