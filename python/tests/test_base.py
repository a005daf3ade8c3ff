"""The base of all resources, and the current one."""

import gc
import pickle
import threading

import pytest

import alluvion
from alluvion import _alluvion


def test_what_is_set_is_what_is_given_back(sim):
    first = alluvion.current_resource()
    assert type(first) is _alluvion.CudaMemoryResource
    assert alluvion.current_resource() is first
    second = _alluvion.CudaMemoryResource()
    alluvion.set_current_resource(second)
    assert alluvion.current_resource() is second
    alluvion.set_current_resource(first)
    assert alluvion.current_resource() is first


def test_the_current_resource_is_that_of_every_thread(sim):
    mine = _alluvion.CudaMemoryResource()
    alluvion.set_current_resource(mine)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(alluvion.current_resource()))
    thread.start()
    thread.join()
    assert seen == [mine]


def test_addresses_come_and_go(sim):
    resource = _alluvion.CudaMemoryResource()
    address = resource.allocate(1000)
    assert address % 256 == 0 and address > 0
    resource.deallocate(address, 1000)
    assert resource.allocate(0) == 0
    resource.deallocate(0, 0)
    assert sim.leaks() == []


def test_bad_requests_are_refused(sim):
    resource = _alluvion.CudaMemoryResource()
    with pytest.raises(OverflowError):
        resource.allocate(-1)
    with pytest.raises(OverflowError):
        resource.allocate(1 << 64)
    with pytest.raises(TypeError, match="stream argument cannot be None"):
        resource.allocate(1, None)
    with pytest.raises(TypeError, match="incorrect type"):
        resource.allocate(1, stream="s")
    with pytest.raises(MemoryError):
        resource.allocate(1 << 50)
    with pytest.raises(TypeError):
        pickle.dumps(resource)


def test_the_base_has_no_memory(sim):
    with pytest.raises(RuntimeError):
        _alluvion.DeviceMemoryResource().allocate(1)
    assert not hasattr(_alluvion.DeviceMemoryResource(), "upstream_mr")
    with pytest.raises(Exception, match="must not be None"):
        _alluvion.UpstreamResourceAdaptor(None)


def test_the_collector_visits_every_class(sim):
    """In a module that is optimized as a wheel is, classes without references of their own share code: it must end all the same."""
    base = _alluvion.CudaMemoryResource()
    objects = [
        base,
        _alluvion.UpstreamResourceAdaptor(base),
        _alluvion.PoolMemoryResource(base, 1 << 20),
        _alluvion.StatisticsResourceAdaptor(base),
        _alluvion.CallbackMemoryResource(lambda *_: 0, lambda *_: None),
        _alluvion.FailureCallbackResourceAdaptor(base, lambda _: False),
        _alluvion.BinningMemoryResource(base),
        alluvion.DeviceBuffer(size=8),
        alluvion.DeviceBuffer(size=8).view("f4"),
        alluvion.Stream(),
    ]
    for visited in objects:
        if gc.is_tracked(visited):
            gc.get_referents(visited)
    gc.collect()
