/*
 * An OrtAllocator of ONNX Runtime, over a resource of Alluvion, for OrtApi::RegisterAllocator and sessions with use_env_allocators.
 *
 *     alluvion::ort_allocator allocator(pool, memory_info, stream);
 *     api->RegisterAllocator(env, &allocator);
 *
 * ONNX Runtime frees by addresses alone, so a ledger remembers the sizes. The allocator, and the OrtMemoryInfo that it was made with, live
 * longer than the environment that has them. A request that fails is null, and alv_last_error_message() says why on the thread that asked.
 *
 * It fills the functions up to Reserve, of version 18, and says so by its version: ONNX Runtime looks at no later one.
 *
 * C++14 and later. Needs onnxruntime_c_api.h, and the library; include it before this header, or have it in the search path.
 */
#ifndef ALLUVION_ONNXRUNTIME_HPP
#define ALLUVION_ONNXRUNTIME_HPP

#ifndef ORT_API_VERSION
#include <onnxruntime_c_api.h>
#endif

#include "../alluvion.h"

namespace alluvion {

class ort_allocator final : public OrtAllocator {
public:
    /// Every stream may use a block at once, and a free waits for all work of the device, as cudaFree does: nothing says on which streams
    /// the block was used. Keeps a count of the resource; if the ledger cannot be made, is_valid() is false and every request fails.
    ort_allocator(alv_resource const *resource, OrtMemoryInfo const *info) noexcept : OrtAllocator(), info_(info) {
        // GetStats is of 23.
        version = ORT_API_VERSION < 22 ? ORT_API_VERSION : 22;
        Alloc = &allocate;
        Free = &deallocate;
        Info = &info_of;
#if ORT_API_VERSION >= 18
        Reserve = &allocate;
#endif
        if (alv_ledger_over(resource, &ledger_) == ALV_OK) {
            (void)alv_ledger_resource(ledger_, &resource_);
        }
    }

    /// Requests and frees are ordered on the stream and do not wait: for a provider with this stream as its user_compute_stream. Every use
    /// of a block is on the stream, or the stream waits for it. 0 is the default stream as the calling file was compiled.
    ort_allocator(alv_resource const *resource, OrtMemoryInfo const *info, alv_cuda_stream stream) noexcept
        : ort_allocator(resource, info) {
        stream_ = alv_stream_of_this_file(stream);
        is_ordered_ = true;
    }

    ort_allocator(ort_allocator const &) = delete;
    ort_allocator &operator=(ort_allocator const &) = delete;
    ~ort_allocator() {
        alv_ledger_release(ledger_);
        alv_resource_release(resource_);
    }

    bool is_valid() const noexcept { return ledger_ != nullptr && resource_ != nullptr; }

    /// The ledger: how much is out, and which block an address lies in. Borrowed.
    alv_ledger *ledger() const noexcept { return ledger_; }

private:
    static void *ORT_API_CALL allocate(OrtAllocator *self, size_t size) {
        ort_allocator const &here = *static_cast<ort_allocator *>(self);
        void *block = nullptr;
        if (here.is_ordered_) {
            (void)alv_ledger_allocate_raw(here.ledger_, size, 0, here.stream_, &block);
        } else {
            (void)alv_ledger_allocate_sync(here.ledger_, size, 0, &block);
        }
        return block;
    }

    static void ORT_API_CALL deallocate(OrtAllocator *self, void *block) {
        ort_allocator const &here = *static_cast<ort_allocator *>(self);
        if (block == nullptr) return;
        if (here.is_ordered_) {
            (void)alv_ledger_free_raw(here.ledger_, block, here.stream_);
        } else if (alv_synchronize_device(here.resource_) == ALV_OK) {
            (void)alv_ledger_free_sync(here.ledger_, block);
        }
    }

    static OrtMemoryInfo const *ORT_API_CALL info_of(OrtAllocator const *self) {
        return static_cast<ort_allocator const *>(self)->info_;
    }

    alv_ledger *ledger_ = nullptr;
    alv_resource *resource_ = nullptr;
    OrtMemoryInfo const *info_;
    alv_cuda_stream stream_ = nullptr;
    bool is_ordered_ = false;
};

} // namespace alluvion

#endif
