// TensorRT's allocator, asked as TensorRT asks it, through its base classes.
#include "NvInferRuntime.h"

#include <alluvion/tensorrt.hpp>

#include "../expect.hpp"

static alv_resource *stack(char const *recipe) {
    alv_resource *resource = nullptr;
    EXPECT(alv_resource_from_recipe(recipe, 0, &resource) == ALV_OK);
    return resource;
}

static size_t live_bytes(alluvion::tensorrt_allocator const &allocator) {
    size_t bytes = 1;
    EXPECT(alv_ledger_live(allocator.ledger(), nullptr, &bytes) == ALV_OK);
    return bytes;
}

static void blocks_are_freed_without_their_size() {
    test::sim sim;
    alv_resource *pool = stack("stats | pool(initial=1MiB) | cuda");
    alluvion::tensorrt_allocator allocator(pool);
    EXPECT(allocator.is_valid());
    nvinfer1::IGpuAllocator &base = allocator;
    alv_stream *stream = nullptr;
    EXPECT(alv_stream_create(0, &stream) == ALV_OK);
    cudaStream_t const own = alv_stream_handle(stream);
    for (uint64_t alignment : {0, 1, 256}) {
        void *block = base.allocateAsync(4096, alignment, 0, own);
        EXPECT(block != nullptr && live_bytes(allocator) == 4096);
        EXPECT(alv_fill_raw(pool, block, 1, 4096, own) == ALV_OK);
        EXPECT(base.deallocateAsync(block, own));
        void *again = base.allocateAsync(4096, alignment, 0, own);
        EXPECT(again == block);
        EXPECT(alv_fill_raw(pool, again, 2, 4096, own) == ALV_OK);
        EXPECT(base.deallocateAsync(again, own));
        EXPECT(!base.deallocateAsync(again, own));
        EXPECT(alv_last_error_message() != std::string());
    }
    // Without a stream: work on any one is waited for.
    void *block = base.allocate(4096, 256, 1);
    EXPECT(block != nullptr);
    EXPECT(alv_fill_raw(pool, block, 1, 4096, own) == ALV_OK);
    EXPECT(base.deallocate(block) && !base.deallocate(block));
    void *again = base.allocate(4096, 256, 0);
    EXPECT(alv_fill_raw(pool, again, 2, 4096, nullptr) == ALV_OK);
    EXPECT(base.deallocate(again));

    EXPECT(base.allocateAsync(0, 0, 0, own) == nullptr && base.allocate(0, 0, 0) == nullptr);
    EXPECT(base.deallocateAsync(nullptr, own) && base.deallocate(nullptr));
    EXPECT(base.allocateAsync(uint64_t{1} << 50, 0, 0, own) == nullptr && base.allocate(8, 3, 0) == nullptr);
    EXPECT(base.reallocate(nullptr, 0, 8) == nullptr);
    EXPECT(live_bytes(allocator) == 0);
    alv_stream_release(stream);
    alv_resource_release(pool);
}

static void without_a_resource_every_request_fails() {
    alluvion::tensorrt_allocator allocator(nullptr);
    nvinfer1::IGpuAllocator &base = allocator;
    EXPECT(!allocator.is_valid());
    EXPECT(base.allocateAsync(8, 0, 0, nullptr) == nullptr && base.allocate(8, 0, 0) == nullptr);
    int local = 0;
    EXPECT(!base.deallocateAsync(&local, nullptr) && !base.deallocate(&local));
}

int main() {
    blocks_are_freed_without_their_size();
    without_a_resource_every_request_fails();
    return test::failures == 0 ? 0 : 1;
}
