// The allocator for ONNX Runtime, called as ONNX Runtime calls it, through the functions of the struct.
#include "onnxruntime_c_api.h"

#include <alluvion/onnxruntime.hpp>

#include "../expect.hpp"

static size_t live_bytes(alluvion::ort_allocator const &allocator) {
    size_t bytes = 1;
    EXPECT(alv_ledger_live(allocator.ledger(), nullptr, &bytes) == ALV_OK);
    return bytes;
}

static void blocks_are_freed_without_their_size() {
    test::sim sim;
    alv_resource *pool = nullptr;
    EXPECT(alv_resource_from_recipe("stats | pool(initial=1MiB) | cuda", 0, &pool) == ALV_OK);
    alv_stream *stream = nullptr;
    EXPECT(alv_stream_create(0, &stream) == ALV_OK);
    alv_cuda_stream const own = alv_stream_handle(stream);
    int info = 0;
    auto const *described = reinterpret_cast<OrtMemoryInfo const *>(&info);
    alluvion::ort_allocator waiting(pool, described), ordered(pool, described, own);
    for (alluvion::ort_allocator *made : {&waiting, &ordered}) {
        OrtAllocator *allocator = made;
        EXPECT(made->is_valid() && allocator->version == 22 && allocator->Info(allocator) == described);
        EXPECT(allocator->GetStats == nullptr && allocator->AllocOnStream == nullptr && allocator->Shrink == nullptr);
        for (auto allocate : {allocator->Alloc, allocator->Reserve}) {
            void *block = allocate(allocator, 4096);
            EXPECT(block != nullptr && live_bytes(*made) == 4096);
            EXPECT(alv_fill_raw(pool, block, 1, 4096, own) == ALV_OK);
            allocator->Free(allocator, block);
            // Whoever gets it next writes to it, on the stream or, where the free has waited, on another.
            void *again = allocate(allocator, 4096);
            EXPECT(again == block);
            EXPECT(alv_fill_raw(pool, again, 2, 4096, made == &ordered ? own : nullptr) == ALV_OK);
            allocator->Free(allocator, again);
            allocator->Free(allocator, again);
            EXPECT(live_bytes(*made) == 0);
        }
        EXPECT(allocator->Alloc(allocator, 0) == nullptr && allocator->Alloc(allocator, size_t{1} << 50) == nullptr);
        allocator->Free(allocator, nullptr);
    }
    alv_stream_release(stream);
    alv_resource_release(pool);
}

static void without_a_resource_every_request_fails() {
    alluvion::ort_allocator allocator(nullptr, nullptr);
    EXPECT(!allocator.is_valid() && allocator.Alloc(&allocator, 8) == nullptr && allocator.Info(&allocator) == nullptr);
    int local = 0;
    allocator.Free(&allocator, &local);
}

int main() {
    blocks_are_freed_without_their_size();
    without_a_resource_every_request_fails();
    return test::failures == 0 ? 0 : 1;
}
