/*
 * An allocator for TensorRT 10 and later, over a resource of Alluvion.
 *
 *     alluvion::tensorrt_allocator allocator(pool);
 *     runtime->setGpuAllocator(&allocator);
 *
 * TensorRT frees by addresses alone, so a ledger remembers the sizes. The allocator lives longer than every object of TensorRT that has
 * it. A request that fails is null, which TensorRT reports, and alv_last_error_message() says why on the thread that asked.
 *
 * C++14 and later. Needs NvInferRuntime.h of TensorRT, and the library; include it before this header, or have it in the search path.
 */
#ifndef ALLUVION_TENSORRT_HPP
#define ALLUVION_TENSORRT_HPP

#ifndef NV_INFER_RUNTIME_H
#include <NvInferRuntime.h>
#endif

#include "../alluvion.h"

#if !defined(NV_TENSORRT_MAJOR) || NV_TENSORRT_MAJOR < 10
#error "alluvion/tensorrt.hpp needs TensorRT 10, which has IGpuAsyncAllocator"
#endif

namespace alluvion {

class tensorrt_allocator final : public nvinfer1::IGpuAsyncAllocator {
public:
    /// Keeps a count of the resource. If the ledger cannot be made, is_valid() is false and every request fails.
    explicit tensorrt_allocator(alv_resource const *resource) noexcept {
        if (alv_ledger_over(resource, &ledger_) == ALV_OK) {
            (void)alv_ledger_resource(ledger_, &resource_);
        }
    }
    tensorrt_allocator(tensorrt_allocator const &) = delete;
    tensorrt_allocator &operator=(tensorrt_allocator const &) = delete;
    ~tensorrt_allocator() override {
        alv_ledger_release(ledger_);
        alv_resource_release(resource_);
    }

    bool is_valid() const noexcept { return ledger_ != nullptr && resource_ != nullptr; }

    /// The ledger: how much is out, and which block an address lies in. Borrowed.
    alv_ledger *ledger() const noexcept { return ledger_; }

    /// On a stream of the resource's device. TensorRT asks for alignments up to 256, or for 0, any.
    void *allocateAsync(uint64_t const size, uint64_t const alignment, nvinfer1::AllocatorFlags const,
                        cudaStream_t stream) noexcept override {
        void *block = nullptr;
        // Whatever 0 means in this file, to TensorRT it is the legacy stream.
        (void)alv_ledger_allocate_raw(ledger_, size, alignment, stream, &block);
        return block;
    }

    /// Behind the work on the stream. False for what is not out, and where the stream cannot be had: then nothing is freed.
    bool deallocateAsync(void *const memory, cudaStream_t stream) noexcept override {
        return alv_ledger_free_raw(ledger_, memory, stream) == ALV_OK;
    }

    /// For every stream at once.
    void *allocate(uint64_t const size, uint64_t const alignment, nvinfer1::AllocatorFlags const) noexcept override {
        void *block = nullptr;
        (void)alv_ledger_allocate_sync(ledger_, size, alignment, &block);
        return block;
    }

    /// Waits for all work of the device, as cudaFree does, because the call does not say on which streams the memory was used.
    bool deallocate(void *const memory) noexcept override {
        if (memory == nullptr) return true;
        return alv_synchronize_device(resource_) == ALV_OK && alv_ledger_free_sync(ledger_, memory) == ALV_OK;
    }

private:
    alv_ledger *ledger_ = nullptr;
    alv_resource *resource_ = nullptr;
};

} // namespace alluvion

#endif
