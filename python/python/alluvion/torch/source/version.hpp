// Where PyTorch's headers differ: ALLUVION_TORCH is the minor number of the PyTorch 2 that this is compiled with.
#ifndef ALLUVION_TORCH_VERSION_HPP
#define ALLUVION_TORCH_VERSION_HPP

#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#if !defined(ALLUVION_TORCH) || ALLUVION_TORCH < 8
#error "ALLUVION_TORCH is the minor number of PyTorch, which is 8 at least"
#endif

namespace alluvion_torch {

using c10::cuda::CUDACachingAllocator::CUDAAllocator;

// An allocator that a private pool keeps.
#if ALLUVION_TORCH >= 11
using allocator_of_pool = std::shared_ptr<CUDAAllocator>;
#else
using allocator_of_pool = CUDAAllocator *;
#endif

// Up to 2.9 a private pool with an owner refuses everything while segments are expandable.
inline bool may_own_pools() {
#if ALLUVION_TORCH >= 10
    return true;
#else
    return !c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::expandable_segments();
#endif
}

inline allocator_of_pool as_allocator_of_pool(std::shared_ptr<CUDAAllocator> const &allocator) {
#if ALLUVION_TORCH >= 11
    return allocator;
#else
    return allocator.get();
#endif
}

inline c10::cuda::CUDACachingAllocator::TraceEntry traced(c10::DeviceIndex device, c10::cuda::CUDACachingAllocator::TraceEntry::Action action,
                                                      std::size_t address, std::size_t bytes, cudaStream_t stream, c10::approx_time_t time,
                                                      std::shared_ptr<c10::GatheredContext> context, std::string const &compiled,
                                                      CUDAAllocator &native) {
#if ALLUVION_TORCH >= 10
    return {action, device, address, bytes, stream, {0, 0}, time, std::move(context), compiled, native.getUserMetadata()};
#else
    (void)native;
    return {action, device, address, bytes, stream, {0, 0}, time, std::move(context), compiled};
#endif
}

// The actions that `_record_memory_history(skip_actions=...)` names.
inline std::vector<c10::cuda::CUDACachingAllocator::TraceEntry::Action> actions_of(std::vector<std::string> const &names) {
    std::vector<c10::cuda::CUDACachingAllocator::TraceEntry::Action> actions;
#if ALLUVION_TORCH >= 11
    for (std::string const &name : names) actions.push_back(c10::CachingDeviceAllocator::parseTraceEntryAction(name));
#else
    (void)names;
#endif
    return actions;
}

} // namespace alluvion_torch

#endif
