"""Memory that goes to other libraries and comes from them, without a copy."""

import gc

import pytest

import alluvion.rmm as rmm

PATTERN = bytes(range(256)) * 16


def test_dlpack_with_torch(counted):
    torch = pytest.importorskip("torch")
    buffer = rmm.DeviceBuffer.to_device(PATTERN)
    tensor = torch.from_dlpack(buffer)
    assert (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape)) == (buffer.ptr, torch.uint8, (len(PATTERN),))
    assert bytes(tensor.cpu().numpy()) == PATTERN
    del buffer
    gc.collect()
    assert counted.allocation_counts.current_bytes == len(PATTERN)
    tensor += 1
    assert int(tensor[0]) == 1
    del tensor
    gc.collect()
    assert counted.allocation_counts.current_bytes == 0


def test_dlpack_from_torch(counted):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(256, dtype=torch.uint8, device="cuda")
    buffer = rmm.DeviceBuffer.from_dlpack(tensor)
    assert buffer.ptr == tensor.data_ptr()
    assert buffer.tobytes() == bytes(range(256))


def test_dlpack_with_torch_on_streams(counted):
    torch = pytest.importorskip("torch")
    own = rmm.pylibrmm.stream.Stream()
    side = torch.cuda.Stream()
    for turn in range(20):
        buffer = rmm.DeviceBuffer(size=1 << 20, stream=own)
        buffer.copy_from_host(bytes([turn]) * (1 << 20), own)
        with torch.cuda.stream(side):
            total = torch.from_dlpack(buffer).sum()
        assert int(total) == turn << 20
        del buffer, total


def test_dlpack_with_cupy(counted):
    cupy = pytest.importorskip("cupy")
    buffer = rmm.DeviceBuffer.to_device(PATTERN)
    array = cupy.from_dlpack(buffer)
    assert (array.data.ptr, array.dtype, array.shape) == (buffer.ptr, cupy.uint8, (len(PATTERN),))
    assert array.get().tobytes() == PATTERN
    back = rmm.DeviceBuffer.from_dlpack(cupy.arange(100, dtype=cupy.uint8))
    assert back.tobytes() == bytes(range(100))


def test_the_array_interface_with_cupy(counted):
    cupy = pytest.importorskip("cupy")
    buffer = rmm.DeviceBuffer.to_device(PATTERN)
    array = cupy.asarray(buffer)
    assert array.data.ptr == buffer.ptr and array.get().tobytes() == PATTERN
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        source = cupy.full(len(PATTERN), 9, dtype=cupy.uint8)
    buffer.copy_from_device(source)
    assert buffer.tobytes() == bytes([9]) * len(PATTERN)


@pytest.mark.parametrize("library", ["cupy", "torch", "cuda.core"])
def test_streams_of_others_are_ours(counted, library):
    module = pytest.importorskip(library)
    if library == "cupy":
        foreign = module.cuda.Stream(non_blocking=True)
        number = foreign.ptr
    elif library == "torch":
        foreign = module.cuda.Stream()
        number = foreign.cuda_stream
    else:
        device = module.Device()
        device.set_current()
        foreign = device.create_stream()
        number = foreign.__cuda_stream__()[1]
    stream = rmm.pylibrmm.stream.Stream(foreign)
    assert stream.__cuda_stream__() == (0, int(number))
    buffer = rmm.DeviceBuffer(size=len(PATTERN), stream=stream)
    buffer.copy_from_host(PATTERN, stream)
    assert buffer.tobytes(stream) == PATTERN
