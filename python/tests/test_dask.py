"""A real cluster of processes, on the simulator."""

import os
import subprocess
import sys
import urllib.request

import pytest

pytest.importorskip("distributed")

import distributed

import alluvion
import alluvion.dask
import alluvion.rmm

# What Dask's own processes and loops leave behind at their end is not ours.
pytestmark = [pytest.mark.filterwarnings("ignore::ResourceWarning"), pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


@pytest.fixture
def cluster(monkeypatch):
    """Two workers, each a process of its own, in which `import rmm` gives ours from the first line on."""
    folder = subprocess.run(
        [sys.executable, "-m", "alluvion.rmm", "--path"], capture_output=True, text=True, check=True
    ).stdout.strip()
    path = [folder, os.path.dirname(os.path.dirname(alluvion.__file__))]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    # A process that was started with that variable has this, and hands it on to those that it spawns.
    monkeypatch.setattr(sys, "path", [*path, *sys.path])
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, worker_dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        yield client


def wait_until(client, is_there):
    """Asks for heartbeats until the scheduler has heard what is meant."""

    async def beat(dask_worker):
        await dask_worker.heartbeat()

    while True:
        client.run(beat)
        metrics = [worker["metrics"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()]
        if len(metrics) == 2 and all(is_there(worker) for worker in metrics):
            return metrics


def allocate(size):
    import rmm

    buffer = rmm.DeviceBuffer(size=size)
    import builtins

    builtins.kept_buffer = buffer
    return type(buffer).__module__, type(rmm.mr.get_current_device_resource()).__name__


def test_workers_allocate_from_a_stack_of_their_own(cluster, tmp_path):
    plugin = alluvion.dask.MemorySetup(
        "limiting(64MiB) | pool(initial=16MiB) | cuda", log=tmp_path / "logs", statistics=True, rmm=True, simulated=1
    )
    cluster.register_plugin(plugin)
    answers = cluster.run(allocate, 1 << 20)
    assert len(answers) == 2
    for module, top in answers.values():
        assert module.startswith("rmm")
        assert top == "LoggingResourceAdaptor"

    metrics = wait_until(cluster, lambda worker: worker.get("alluvion_live_bytes") == 1 << 20)
    for worker in metrics:
        assert worker["alluvion_reserved_bytes"] == 16 << 20
        assert worker["alluvion_free_bytes"] > 0
        assert worker["rmm"]["rmm-used"] is not None

    def port(dask_worker):
        return dask_worker.http_server.port

    for address in cluster.run(port).values():
        with urllib.request.urlopen(f"http://127.0.0.1:{address}/alluvion/metrics") as page:
            assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = page.read().decode()
        assert "# TYPE alluvion_live_bytes gauge" in text
        assert 'layer="Pool"' in text

    def too_much():
        import rmm

        try:
            rmm.DeviceBuffer(size=128 << 20)
        except MemoryError as error:
            return str(error)

    assert all("limit" in said for said in cluster.run(too_much).values())

    def drop():
        import builtins

        del builtins.kept_buffer
        import rmm

        rmm.mr._flush_logs() if hasattr(rmm.mr, "_flush_logs") else None

    cluster.run(drop)
    wait_until(cluster, lambda worker: worker.get("alluvion_live_bytes") == 0)
    cluster.unregister_worker_plugin(plugin.name)
    logs = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert logs == ["rmm_log_0.dev0.txt", "rmm_log_1.dev0.txt"]
    for path in (tmp_path / "logs").iterdir():
        assert path.read_text().startswith("Thread,Time,Action,Pointer,Size,Stream")


def test_what_dask_cuda_calls_on_a_worker(cluster, tmp_path):
    """The calls of dask-cuda's `RMMSetup`, in its order, on workers that import the stand-in by its folder."""

    def setup(folder):
        import os

        import alluvion

        machine = alluvion.simulated(check=False)
        machine.__enter__()
        import rmm

        said = []
        mr = rmm.mr.CudaAsyncMemoryResource(initial_pool_size=1 << 20, release_threshold=None)
        rmm.mr.set_current_device_resource(rmm.mr.LimitingResourceAdaptor(mr, allocation_limit=1 << 22))
        said.append(type(rmm.mr.get_current_device_resource()) is rmm.mr.LimitingResourceAdaptor)
        name = os.path.join(folder, f"rmm_log_{os.getpid()}.txt")
        rmm.enable_logging(log_file_name=name)
        rmm.disable_logging()
        rmm.reinitialize(
            pool_allocator=True,
            managed_memory=False,
            initial_pool_size=1 << 20,
            maximum_pool_size=1 << 22,
            logging=True,
            log_file_name=name,
        )
        top = rmm.mr.get_current_device_resource()
        said.append(type(top) is rmm.mr.LoggingResourceAdaptor and type(top.upstream_mr) is rmm.mr.PoolMemoryResource)
        rmm.mr.set_current_device_resource(rmm.mr.TrackingResourceAdaptor(top))
        kept = rmm.DeviceBuffer(size=1000)
        from distributed.diagnostics.rmm import real_time

        said.append(real_time() == {"rmm-used": 1000, "rmm-total": 1 << 20})
        # Dask's module for RMM imports Numba, and calls it where a buffer goes through the host alone.
        import sys
        import types

        for name in ("numba", "numba.cuda"):
            sys.modules.setdefault(name, types.ModuleType(name))
        from distributed.protocol import deserialize, serialize

        header, frames = serialize(kept, serializers=("cuda",))
        said.append(header["serializer"] == "cuda" and type(deserialize(header, frames)) is rmm.DeviceBuffer)
        del kept
        return said

    assert list(cluster.run(setup, str(tmp_path)).values()) == [[True] * 4] * 2


def test_what_cannot_be_set_up_is_said_at_once():
    with pytest.raises(TypeError, match="belongs to the process"):
        alluvion.dask.MemorySetup(object())
    with pytest.raises(ValueError, match="empty text"):
        alluvion.dask.MemorySetup("  ")
    with pytest.raises(ValueError, match="-1"):
        alluvion.dask.MemorySetup(simulated=-1)


def test_a_plugin_travels_without_what_it_made():
    import pickle

    plugin = alluvion.dask.MemorySetup("pool | cuda", statistics=True)
    plugin._machine = open(os.devnull)  # noqa: SIM115
    try:
        copy = pickle.loads(pickle.dumps(plugin))
    finally:
        plugin._machine.close()
    assert (copy.resource, copy.statistics) == ("pool | cuda", True)
    assert not hasattr(copy, "_machine")


def test_figures_are_of_the_outermost_layer_and_of_all_devices():
    page = """# HELP alluvion_live_bytes Bytes.
alluvion_live_bytes{resource="current",device="0",depth="0",layer="Stats"} 10
alluvion_live_bytes{resource="current",device="0",depth="1",layer="Pool"} 256
alluvion_live_bytes{resource="current",device="1",depth="1",layer="Pool"} 512
alluvion_memory_free_bytes{resource="current",device="0"} 1e9
"""
    assert alluvion.dask.figures(page) == {"alluvion_live_bytes": 522, "alluvion_free_bytes": 10**9}
