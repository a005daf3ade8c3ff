// Threads of C++ that end: destructors of thread-locals and of statics that use the library, before and after its own have run.
#include <atomic>
#include <thread>
#include <vector>

#include "../c/expect.h"

namespace {

alv_resource *shared = nullptr;
std::atomic<int> ended{0};

void allocate_and_free(alv_cuda_stream stream) {
    void *block = nullptr;
    OK(alv_allocate(shared, 4096, 0, stream, &block));
    alv_deallocate(shared, block, 4096, 0, stream);
}

struct UsesTheLibraryAtTheEnd {
    alv_stream *stream = nullptr;
    void *block = nullptr;

    void begin() {
        OK(alv_stream_create(0, &stream));
        OK(alv_allocate_on(shared, 1000, 0, stream, &block));
    }

    ~UsesTheLibraryAtTheEnd() {
        if (stream == nullptr) return;
        alv_deallocate_on(shared, block, 1000, 0, stream);
        allocate_and_free(nullptr);
        allocate_and_free(alv_stream_handle(stream));
        alv_stream_release(stream);
        void *none = &none;
        EXPECT_STATUS(alv_allocate(shared, SIZE_MAX, 0, nullptr, &none), ALV_SIZE_OVERFLOW);
        EXPECT(none == nullptr && alv_last_error_message()[0] != '\0');
        ended++;
    }
};

// Thread-locals end in the order opposite to the one in which they began: this one before those of the library, or after them.
thread_local UsesTheLibraryAtTheEnd object;

void work(bool is_before_the_library) {
    if (is_before_the_library) object.block = nullptr;
    void *none = nullptr;
    EXPECT_STATUS(alv_allocate(shared, 100, 3, nullptr, &none), ALV_INVALID_ALIGNMENT);
    allocate_and_free(nullptr);
    object.begin();
}

// Ends after main.
struct Static {
    ~Static() {
        allocate_and_free(nullptr);
        alv_resource_release(shared);
        puts("thread_ends: ok");
    }
} last;

} // namespace

int main() {
    alv_machine *machine = simulated();
    shared = stack("stats | pool | cuda");
    for (int round = 0; round < 8; round++) {
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++) threads.emplace_back(work, i % 2 == 0);
        for (std::thread &thread : threads) thread.join();
    }
    EXPECT(ended == 32);
    alv_counts counts = ALV_INIT(alv_counts);
    OK(alv_stats(shared, &counts));
    EXPECT(counts.allocations.value == 0);
    // The resource keeps the machine, until it ends with the statics.
    OK(alv_set_machine(nullptr));
    alv_machine_release(machine);
    return 0;
}
