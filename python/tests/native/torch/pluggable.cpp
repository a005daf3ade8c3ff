// The base class of the door, which is in a library of PyTorch's that does not load without CUDA's libraries for mathematics. The door
// overrides all of it but two functions, which private pools call of its segments.
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <c10/cuda/CUDAFunctions.h>

#define UNUSED \
    { TORCH_CHECK(false, "the door does not override this"); }

namespace torch::cuda::CUDAPluggableAllocator {

using namespace c10::cuda::CUDACachingAllocator;

_AllocationMetadata::_AllocationMetadata() : size(0), device_idx(-1) {}
_AllocationMetadata::_AllocationMetadata(size_t bytes, c10::DeviceIndex device, cudaStream_t on) : size(bytes), device_idx(device), stream(on) {}

CUDAPluggableAllocator::CUDAPluggableAllocator(std::function<void *(size_t, int, cudaStream_t)> alloc,
                                               std::function<void(void *, size_t, int, cudaStream_t)> free)
    : alloc_fn_(std::move(alloc)), free_fn_(std::move(free)) {}

void *CUDAPluggableAllocator::raw_alloc(size_t bytes) {
    void *const address = alloc_fn_(bytes, c10::cuda::current_device(), nullptr);
    std::lock_guard<std::mutex> const lock(allocator_mutex_);
    if (address != nullptr) allocation_metadata_.emplace(address, _AllocationMetadata(bytes, c10::cuda::current_device(), nullptr));
    return address;
}

void CUDAPluggableAllocator::raw_delete(void *address) {
    _AllocationMetadata found;
    {
        std::lock_guard<std::mutex> const lock(allocator_mutex_);
        TORCH_CHECK(allocation_metadata_.count(address), "it was not allocated here");
        found = allocation_metadata_[address];
        allocation_metadata_.erase(address);
    }
    free_fn_(address, found.size, found.device_idx, found.stream);
}

c10::DataPtr CUDAPluggableAllocator::allocate(size_t) UNUSED
c10::DeleterFnPtr CUDAPluggableAllocator::raw_deleter() const UNUSED
void *CUDAPluggableAllocator::raw_alloc_with_stream(size_t, cudaStream_t) UNUSED
void CUDAPluggableAllocator::init(int) UNUSED
bool CUDAPluggableAllocator::initialized() UNUSED
double CUDAPluggableAllocator::getMemoryFraction(c10::DeviceIndex) UNUSED
void CUDAPluggableAllocator::setMemoryFraction(double, c10::DeviceIndex) UNUSED
std::vector<StreamSegmentSize> CUDAPluggableAllocator::getExpandableSegmentSizes(c10::DeviceIndex) UNUSED
void CUDAPluggableAllocator::emptyCache(c10::cuda::MempoolId_t) UNUSED
void CUDAPluggableAllocator::cacheInfo(c10::DeviceIndex, size_t *) UNUSED
void *CUDAPluggableAllocator::getBaseAllocation(void *, size_t *) UNUSED
void CUDAPluggableAllocator::recordStream(c10::DataPtr const &, c10::cuda::CUDAStream) UNUSED
DeviceStats CUDAPluggableAllocator::getDeviceStats(c10::DeviceIndex) UNUSED
void CUDAPluggableAllocator::resetAccumulatedStats(c10::DeviceIndex) UNUSED
void CUDAPluggableAllocator::resetPeakStats(c10::DeviceIndex) UNUSED
SnapshotInfo CUDAPluggableAllocator::snapshot(c10::cuda::MempoolId_t, bool) UNUSED
void CUDAPluggableAllocator::beginAllocateToPool(c10::DeviceIndex, c10::cuda::MempoolId_t, std::function<bool(cudaStream_t)>) UNUSED
void CUDAPluggableAllocator::endAllocateToPool(c10::DeviceIndex, c10::cuda::MempoolId_t) UNUSED
void CUDAPluggableAllocator::releasePool(c10::DeviceIndex, c10::cuda::MempoolId_t) UNUSED
std::shared_ptr<void> CUDAPluggableAllocator::getIpcDevPtr(std::string) UNUSED
ShareableHandle CUDAPluggableAllocator::shareIpcHandle(void *) UNUSED
void CUDAPluggableAllocator::recordHistory(bool, CreateContextFn, size_t, RecordContext, bool, std::vector<std::string> const &) UNUSED
void CUDAPluggableAllocator::attachOutOfMemoryObserver(OutOfMemoryObserver) UNUSED
void CUDAPluggableAllocator::attachAllocatorTraceTracker(AllocatorTraceTracker) UNUSED
std::shared_ptr<AllocatorState> CUDAPluggableAllocator::getCheckpointState(c10::DeviceIndex, at::cuda::MempoolId_t) UNUSED
CheckpointDelta CUDAPluggableAllocator::setCheckpointPoolState(c10::DeviceIndex, std::shared_ptr<AllocatorState>) UNUSED
void CUDAPluggableAllocator::enablePeerAccess(c10::DeviceIndex, c10::DeviceIndex) UNUSED
cudaError_t CUDAPluggableAllocator::memcpyAsync(void *, int, void const *, int, size_t, cudaStream_t, bool) UNUSED
std::string CUDAPluggableAllocator::name() UNUSED
void CUDAPluggableAllocator::copy_data(void *, void const *, std::size_t) const UNUSED

} // namespace torch::cuda::CUDAPluggableAllocator
