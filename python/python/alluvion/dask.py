"""Memory of this library in the workers of a Dask cluster.

>>> from distributed import Client  # doctest: +SKIP
>>> import alluvion.dask  # doctest: +SKIP
>>> client = Client("scheduler:8786")  # doctest: +SKIP
>>> client.register_plugin(alluvion.dask.MemorySetup("stats | pool(initial=8GiB) | cuda-async"))  # doctest: +SKIP

Each worker then allocates from a stack of its own, and says how it is doing: with every heartbeat, as figures that the dashboard
shows beside the worker, and as text for Prometheus at `/alluvion/metrics` of the worker's own HTTP server.

Two such workers of one machine move a buffer on the device, without a copy through the host, if its memory is `cuda`, or a pool over
that: the one shares it, the other copies it into memory of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

import alluvion
from alluvion import _dask_transfer as _transfer

#: The figures of a worker, by what the dashboard calls them: the name of a metric of this library.
_FIGURES = {
    "alluvion_live_bytes": "alluvion_live_bytes",
    "alluvion_reserved_bytes": "alluvion_reserved_bytes",
    "alluvion_free_bytes": "alluvion_memory_free_bytes",
}


def figures(page: str) -> dict[str, int]:
    """The figures that the dashboard shows, of a page of `alluvion.metrics()`: the bytes that are live, the bytes that are held
    from the driver, and the bytes that are free. Of the layers of a stack the outermost that counts is meant; devices are added up.

    >>> figures('alluvion_live_bytes{resource="current",device="0",depth="1",layer="Pool"} 512')
    {'alluvion_live_bytes': 512}
    """
    found: dict[str, dict[str, int]] = {name: {} for name in _FIGURES}
    for line in page.splitlines():
        name, brace, rest = line.partition("{")
        if not brace or line.startswith("#"):
            continue
        for ours, metric in _FIGURES.items():
            if name == metric:
                labels, _, value = rest.rpartition(" ")
                device = labels.partition('device="')[2].partition('"')[0]
                # The outermost layer comes first.
                found[ours].setdefault(device, int(float(value)))
    return {name: sum(devices.values()) for name, devices in found.items() if devices}


class MemorySetup(WorkerPlugin):
    """Sets the memory resource of each worker, and shows how it is doing.

    - `resource`: a stack as text (`alluvion.resource`), or a function without arguments that the worker calls and that returns a
      memory resource. Without it the worker keeps what it has.
    - `log`: a folder on the worker. Each worker writes every allocation there, in RMM's format, to
      `rmm_log_<worker>.dev<device>.txt`.
    - `statistics`: counts live and peak bytes, if the stack does not do that itself.
    - `rmm`: makes `import rmm` mean `alluvion.rmm` in the worker, so that Dask and dask-cuda meet this library.
    - `share`: whether the worker takes buffers of other workers of its machine by handles.
    - `simulated`: a number of simulated devices instead of real ones, for tests on machines without a GPU.

    The worker's earlier resource is put back when the plugin or the worker goes.
    """

    name = "alluvion-memory"
    idempotent = False

    def __init__(
        self,
        resource: str | Callable[[], Any] | None = None,
        log: str | os.PathLike[str] | None = None,
        statistics: bool = False,
        *,
        rmm: bool = False,
        share: bool = True,
        simulated: int = 0,
    ) -> None:
        if isinstance(resource, str):
            # A mistake in the text is reported here, and not on each worker.
            resource = resource.strip()
            if not resource:
                raise ValueError("the resource is an empty text: leave it out, or name a stack such as 'pool | cuda-async'")
        elif resource is not None and not callable(resource):
            raise TypeError(
                f"resource is a text such as 'pool | cuda-async', or a function that returns a resource, and not "
                f"{type(resource).__name__}: a resource itself belongs to the process that made it"
            )
        if simulated < 0:
            raise ValueError(f"simulated is a number of devices, and not {simulated}")
        self.resource = resource
        self.log = None if log is None else os.fspath(log)
        self.statistics = bool(statistics)
        self.rmm = bool(rmm)
        self.share = bool(share)
        self.simulated = int(simulated)

    def setup(self, worker: Any) -> None:
        """Called by Dask, on the worker."""
        import alluvion.rmm as ours

        self._machine = None
        if self.rmm:
            ours.install()
        if self.simulated:
            self._machine = alluvion.simulated(devices=self.simulated, check=False)
            self._machine.__enter__()
        self._before = alluvion.current_resource()
        if isinstance(self.resource, str):
            alluvion.set_current_resource(alluvion.resource(self.resource))
        elif self.resource is not None:
            alluvion.set_current_resource(self.resource())
        if self.statistics:
            ours.statistics.enable_statistics()
        if self.log is not None:
            os.makedirs(self.log, exist_ok=True)
            name = str(worker.name if worker.name is not None else worker.id).replace(os.sep, "_").replace("://", "-")
            ours.enable_logging(log_file_name=os.path.join(self.log, f"rmm_log_{name}.txt"))
        if self.share:
            _transfer.announce(worker)
        for figure in _FIGURES:
            worker.metrics[figure] = _Figure(figure)
        # What Dask's own page about RMM reads.
        worker.metrics.setdefault("rmm", _rmm_metric)
        application = getattr(worker, "http_application", None)
        if application is not None:
            application.add_handlers(".*$", [(r"/alluvion/metrics", _handler())])

    def teardown(self, worker: Any) -> None:
        """Called by Dask, on the worker."""
        import alluvion.rmm as ours

        _transfer.withdraw(worker)
        for figure in _FIGURES:
            worker.metrics.pop(figure, None)
        if worker.metrics.get("rmm") is _rmm_metric:
            del worker.metrics["rmm"]
        if self.log is not None:
            ours.disable_logging()
        alluvion.set_current_resource(self._before)
        self._before = None
        if self._machine is not None:
            self._machine.__exit__(None, None, None)
            self._machine = None

    def __getstate__(self) -> dict[str, Any]:
        # The objects that `setup` made belong to a worker.
        return {key: value for key, value in self.__dict__.items() if not key.startswith("_")}


class _Figure:
    """One figure of a worker, for its heartbeats."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, worker: Any) -> int:
        # With every heartbeat what other workers have had by now is let go.
        _transfer.lender.sweep()
        return figures(alluvion.metrics()).get(self.name, 0)


def _rmm_metric(worker: Any) -> dict[str, int]:
    found = figures(alluvion.metrics())
    used = found.get("alluvion_live_bytes", 0)
    return {"rmm-used": used, "rmm-total": max(used, found.get("alluvion_reserved_bytes", 0))}


def _handler() -> type:
    from tornado.web import RequestHandler

    class Metrics(RequestHandler):
        """The figures of the worker's stacks, for Prometheus."""

        def get(self) -> None:
            self.set_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.write(alluvion.metrics())

    return Metrics


__all__ = ["MemorySetup", "figures"]
