// A runtime of CUDA without a device: what PyTorch's native allocator calls of it. Memory is the host's, streams are made elsewhere, and a
// test says which of them are busy and which capture. Its functions are declared by CUDA's own header.
#include <cuda_runtime_api.h>

#include "cudart.hpp"

#include <cstdlib>
#include <cstring>
#include <utility>

namespace {

fake::state state_;
thread_local int device = 0;
thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;

// What breaks a capture of any thread, unless this one has said that it does not mind.
cudaError_t unsafe() {
    std::lock_guard<std::mutex> const lock(state_.mutex);
    if (!state_.capturing.empty() && mode != cudaStreamCaptureModeRelaxed) ++state_.broken;
    return cudaSuccess;
}

} // namespace

fake::state &fake::the() { return state_; }

extern "C" {

cudaError_t cudaMalloc(void **address, size_t bytes) {
    (void)unsafe();
    std::lock_guard<std::mutex> const lock(state_.mutex);
    if (state_.used + bytes > state_.total) return state_.last = cudaErrorMemoryAllocation;
    *address = std::aligned_alloc(size_t{2} << 20, (bytes + (size_t{2} << 20) - 1) / (size_t{2} << 20) * (size_t{2} << 20));
    state_.memory[*address] = bytes;
    state_.used += bytes;
    return cudaSuccess;
}

cudaError_t cudaFree(void *address) {
    (void)unsafe();
    std::lock_guard<std::mutex> const lock(state_.mutex);
    auto const found = state_.memory.find(address);
    if (found == state_.memory.end()) {
        ++state_.wrong_frees;
        return state_.last = cudaErrorInvalidValue;
    }
    state_.used -= found->second;
    state_.memory.erase(found);
    std::free(address);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
    std::lock_guard<std::mutex> const lock(state_.mutex);
    if (!state_.capturing.empty()) ++state_.broken;
    ++state_.waits;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *to) { return *to = device, cudaSuccess; }
cudaError_t cudaSetDevice(int to) { return device = to, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetLastError() {
    std::lock_guard<std::mutex> const lock(state_.mutex);
    return std::exchange(state_.last, cudaSuccess);
}
char const *cudaGetErrorString(cudaError_t error) { return error == cudaErrorMemoryAllocation ? "out of memory" : "an error"; }
char const *cudaGetErrorName(cudaError_t) { return "cudaError"; }
cudaError_t cudaDriverGetVersion(int *version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    std::lock_guard<std::mutex> const lock(state_.mutex);
    return *total = state_.total, *free = state_.total - state_.used, cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
    std::memset(properties, 0, sizeof(*properties));
    properties->totalGlobalMem = state_.total;
    return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *other) { return std::swap(mode, *other), cudaSuccess; }

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int) {
    std::lock_guard<std::mutex> const lock(state_.mutex);
    if (state_.streams.empty()) return cudaErrorMemoryAllocation;
    *stream = state_.streams.back();
    state_.streams.pop_back();
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = 0, cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    std::lock_guard<std::mutex> const lock(state_.mutex);
    *status = state_.capturing.count(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *,
                                     cudaGraphNode_t const **, cudaGraphEdgeData const **, size_t *) {
    if (id != nullptr) *id = 1;
    return cudaStreamIsCapturing(stream, status);
}
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }

// An event is a number; it is over as soon as its stream is not busy.
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
    std::lock_guard<std::mutex> const lock(state_.mutex);
    return *event = reinterpret_cast<cudaEvent_t>(++state_.events), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t) { return *ms = 0, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    std::lock_guard<std::mutex> const lock(state_.mutex);
    if (state_.capturing.count(stream)) ++state_.broken;
    if (state_.refuses_events) return state_.last = cudaErrorUnknown;
    return state_.recorded[event] = stream, cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    std::lock_guard<std::mutex> const lock(state_.mutex);
    return state_.busy.count(state_.recorded[event]) ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    std::lock_guard<std::mutex> const lock(state_.mutex);
    state_.busy.erase(state_.recorded[event]);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, void const *from, size_t bytes, cudaMemcpyKind) { return std::memcpy(to, from, bytes), cudaSuccess; }
cudaError_t cudaMemcpyAsync(void *to, void const *from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
    return std::memcpy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void *to, int, void const *from, int, size_t bytes, cudaStream_t) {
    return std::memcpy(to, from, bytes), cudaSuccess;
}

// What there is none of.
cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) { return *can = 0, cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaErrorNotSupported; }
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *, int) { return cudaErrorNotSupported; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *) { return cudaErrorNotSupported; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *) { return cudaErrorNotSupported; }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, cudaMemAccessDesc const *, size_t) { return cudaErrorNotSupported; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaErrorNotSupported; }
cudaError_t cudaMallocAsync(void **, size_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaFreeAsync(void *, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *, void *) { return cudaErrorNotSupported; }
cudaError_t cudaIpcOpenMemHandle(void **, cudaIpcMemHandle_t, unsigned) { return cudaErrorNotSupported; }
cudaError_t cudaIpcCloseMemHandle(void *) { return cudaErrorNotSupported; }
cudaError_t cudaGetDriverEntryPointByVersion(char const *, void **, unsigned, unsigned long long, cudaDriverEntryPointQueryResult *) {
    return cudaErrorNotSupported;
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t *, cudaGraphEdgeData *, size_t *) { return cudaErrorNotSupported; }
}
