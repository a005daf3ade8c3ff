"""What the driver says of itself and of its devices."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

from alluvion import _alluvion

_T = TypeVar("_T")

# Where the runtime calls a code otherwise than the driver does.
_RUNTIME_NAMES = {
    1: "cudaErrorInvalidValue",
    2: "cudaErrorMemoryAllocation",
    3: "cudaErrorInitializationError",
    4: "cudaErrorCudartUnloading",
    34: "cudaErrorStubLibrary",
    35: "cudaErrorInsufficientDriver",
    46: "cudaErrorDevicesUnavailable",
    98: "cudaErrorInvalidDeviceFunction",
    100: "cudaErrorNoDevice",
    101: "cudaErrorInvalidDevice",
    201: "cudaErrorDeviceUninitialized",
    304: "cudaErrorOperatingSystem",
    400: "cudaErrorInvalidResourceHandle",
    600: "cudaErrorNotReady",
    700: "cudaErrorIllegalAddress",
    719: "cudaErrorLaunchFailure",
    800: "cudaErrorNotPermitted",
    801: "cudaErrorNotSupported",
    999: "cudaErrorUnknown",
}

_TEXTS = {35: "CUDA driver version is insufficient for CUDA runtime version"}


def _bindings(module: str) -> Any:
    """A module of cuda-bindings, or None where it is not installed or does not load."""
    name = f"cuda.bindings.{module}"
    if name in sys.modules:
        return sys.modules[name]
    from importlib.util import find_spec

    try:
        if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
            return None
        from importlib import import_module

        return import_module(name)
    except (ImportError, RuntimeError, ValueError):
        return None


def _status(status: Any, module: str, kind: str) -> Any:
    """The number of an error as the enum of cuda-bindings, where that is installed."""
    bindings = _bindings(module)
    if bindings is None:
        return int(status)
    try:
        return getattr(bindings, kind)(int(status))
    except (AttributeError, ValueError):
        return int(status)


class CUDARuntimeError(RuntimeError):
    """A call of the runtime failed; `status` says how."""

    def __init__(self, status: Any) -> None:
        self.status = _status(status, "runtime", "cudaError_t")
        code = int(status)
        name, text = _alluvion.gpu_error(code)
        name = _RUNTIME_NAMES.get(code) or getattr(self.status, "name", None) or name or f"cudaError {code}"
        super().__init__(f"{name}: {_TEXTS.get(code) or text or 'unknown error'}")

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return (type(self), (self.status,))


class CUDADriverError(RuntimeError):
    """A call of the driver failed; `status` says how."""

    def __init__(self, status: Any) -> None:
        self.status = _status(status, "driver", "CUresult")
        code = int(status)
        name, text = _alluvion.gpu_error(code)
        super().__init__(f"{name or f'CUresult {code}'}: {text or 'unknown error'}")

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return (type(self), (self.status,))


def _value(answer: tuple[_T | None, int]) -> _T:
    value, code = answer
    if code != 0:
        raise CUDARuntimeError(code)
    return value  # type: ignore[return-value]


def _ordinal(device: int) -> int:
    """The number of a device. One that no device can have is refused as the driver refuses it."""
    from operator import index

    number = index(device)
    if not 0 <= number < 1 << 31:
        raise CUDARuntimeError(101)
    return number


def getDevice() -> int:
    """The number of the device that is current for the calling thread.

    >>> import alluvion
    >>> with alluvion.simulated():
    ...     getDevice()
    0
    """
    return _value(_alluvion.gpu_current())


def setDevice(device: int) -> None:
    """Makes a device current for the calling thread."""
    _, code = _alluvion.gpu_set_current(_ordinal(device))
    if code != 0:
        raise CUDARuntimeError(code)


def getDeviceCount() -> int:
    """How many devices there are."""
    return _value(_alluvion.gpu_count())


def driverGetVersion() -> int:
    """The version of the driver, as CUDA numbers it: 13000 is 13.0, and 0 that there is none."""
    return _alluvion.driver_version()


def runtimeGetVersion() -> int:
    """The version of the runtime of cuda-bindings if that is installed, and otherwise that of the driver."""
    runtime = _bindings("runtime")
    if runtime is not None:
        try:
            # The version that the bindings were made for needs no library of the runtime.
            version = getattr(runtime, "getLocalRuntimeVersion", runtime.cudaRuntimeGetVersion)()
            if int(version[0]) == 0:
                return int(version[1])
        except (AttributeError, RuntimeError):
            pass
    return driverGetVersion()


def getDeviceAttribute(attr: Any, device: int) -> int:
    """One property of a device: `attr` is a `cudaDeviceAttr` of cuda-bindings, or its number."""
    return _value(_alluvion.gpu_attribute(int(attr), _ordinal(device)))


def getDeviceProperties(device: int) -> Any:
    """The properties of a device, as a `cudaDeviceProp` of cuda-bindings."""
    ordinal = _ordinal(device)
    runtime = _bindings("runtime")
    if runtime is None:
        raise ModuleNotFoundError(
            "getDeviceProperties returns a cudaDeviceProp of cuda-bindings, which is not installed: "
            "use getDeviceAttribute, or install cuda-bindings",
            name="cuda.bindings",
        )
    status, properties = runtime.cudaGetDeviceProperties(ordinal)
    if int(status) != 0:
        raise CUDARuntimeError(status)
    return properties


def deviceGetName(device: int) -> str:
    """The name of a device."""
    value, code = _alluvion.gpu_name(_ordinal(device))
    if code != 0:
        raise CUDADriverError(code)
    assert value is not None
    return value


__all__ = [
    "CUDADriverError",
    "CUDARuntimeError",
    "deviceGetName",
    "driverGetVersion",
    "getDevice",
    "getDeviceAttribute",
    "getDeviceCount",
    "getDeviceProperties",
    "runtimeGetVersion",
    "setDevice",
]
