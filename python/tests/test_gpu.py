"""`rmm._cuda.gpu`."""

import pickle
import subprocess
import sys

import pytest

import alluvion
import alluvion.rmm
from alluvion.rmm._cuda import gpu


def test_the_module_is_loaded_with_the_package():
    assert alluvion.rmm._cuda.gpu is gpu


def test_devices(sim):
    assert gpu.getDeviceCount() == 2
    assert gpu.getDevice() == 0
    assert gpu.setDevice(1) is None
    assert gpu.getDevice() == alluvion.current_device() == 1
    gpu.setDevice(device=0)
    assert isinstance(gpu.deviceGetName(0), str) and gpu.deviceGetName(1)


def test_versions(sim):
    assert gpu.driverGetVersion() >= 12000
    assert isinstance(gpu.runtimeGetVersion(), int)


def test_attributes_are_asked_for_by_number(sim):
    # 1: threads in a block; 10: the size of a warp; 75: the major number of the compute capability.
    assert isinstance(gpu.getDeviceAttribute(75, 0), int)

    class Attribute(int):
        pass

    assert gpu.getDeviceAttribute(Attribute(75), 1) == gpu.getDeviceAttribute(75, 1)
    with pytest.raises(gpu.CUDARuntimeError) as caught:
        gpu.getDeviceAttribute(-7, 0)
    assert int(caught.value.status) == 1


@pytest.mark.parametrize("device", [2, 99, -1, 1 << 40])
def test_devices_that_are_not_there(sim, device):
    for call in (lambda: gpu.setDevice(device), lambda: gpu.getDeviceAttribute(75, device)):
        with pytest.raises(gpu.CUDARuntimeError, match="^cudaErrorInvalidDevice: ") as caught:
            call()
        assert int(caught.value.status) == 101
    with pytest.raises(RuntimeError):
        gpu.deviceGetName(device)
    with pytest.raises(TypeError):
        gpu.setDevice("0")


@pytest.mark.parametrize("kind", [gpu.CUDARuntimeError, gpu.CUDADriverError])
def test_errors_have_a_status_and_can_be_pickled(sim, kind):
    error = kind(2)
    assert isinstance(error, RuntimeError) and int(error.status) == 2
    name = "cudaErrorMemoryAllocation" if kind is gpu.CUDARuntimeError else "CUDA_ERROR_OUT_OF_MEMORY"
    assert str(error).startswith(f"{name}: ") and "out of memory" in str(error).lower()
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and (again.status, str(again)) == (error.status, str(error))
    assert error.__reduce__() == (kind, (error.status,))
    assert ": " in str(kind(123456))


def test_importing_needs_no_bindings():
    code = "import sys, alluvion.rmm; assert not [m for m in sys.modules if m.startswith(('cuda', 'cupy', 'numba', 'torch', 'numpy'))]"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
