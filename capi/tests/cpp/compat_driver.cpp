// Is a context current after the calls of the headers in RMM's place, as after those of CUDA's runtime? Over the stand-in for
// libcuda, which is on the library path.
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include "expect.hpp"

#include <dlfcn.h>

#include <cstring>
#include <optional>
#include <thread>

namespace {

// A function of the stand-in, which the library has loaded.
template <class Function>
Function stand_in(char const *name) {
    void *library = dlopen("libcuda.so", RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) {
        library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    }
    void *const found = library == nullptr ? nullptr : dlsym(library, name);
    if (found == nullptr) {
        std::fprintf(stderr, "the stand-in for libcuda was not loaded, or has no %s\n", name);
        std::abort();
    }
    Function function = nullptr;
    std::memcpy(&function, &found, sizeof found);
    return function;
}

std::size_t current_context() {
    std::size_t context = 0;
    EXPECT(stand_in<unsigned (*)(std::size_t *)>("cuCtxGetCurrent")(&context) == 0);
    return context;
}

void push_context(std::size_t context) { EXPECT(stand_in<unsigned (*)(std::size_t)>("cuCtxPushCurrent_v2")(context) == 0); }

void pop_context() {
    std::size_t popped = 0;
    EXPECT(stand_in<unsigned (*)(std::size_t *)>("cuCtxPopCurrent_v2")(&popped) == 0);
}

// The context of the device, as the library makes it current.
std::size_t primary_context() {
    std::size_t found = 0;
    std::thread([&found] {
        EXPECT(alv_set_current_device(0) == ALV_OK);
        found = current_context();
    }).join();
    EXPECT(found != 0);
    return found;
}

// Whether nothing was current before a call, and the device's context is after it. Then another is made current, which stays.
template <class Call>
void makes_current(char const *what, Call const &call) {
    std::thread([&] {
        bool const nothing = current_context() == 0;
        call();
        bool const made = current_context() == primary_context();
        pop_context();
        push_context(0x77);
        call();
        bool const left = current_context() == 0x77;
        if (!nothing || !made || !left) {
            std::fprintf(stderr, "after %s: nothing before: %d, made: %d, another left: %d\n", what, nothing, made, left);
            ++test::failures;
        }
    }).join();
}

} // namespace

int main() {
    constexpr rmm::cuda_stream_view on_default{};
    // Loads the driver, makes no context.
    EXPECT(rmm::get_num_cuda_devices() == 1 && rmm::get_current_cuda_device().value() == 0);
    EXPECT(current_context() == 0);

    // Plain C++ leaves nothing current.
    {
        alluvion::resource plain("pool | cuda");
        void *const block = plain.allocate(alluvion::stream_view{}, 1000);
        plain.deallocate(alluvion::stream_view{}, block, 1000);
        EXPECT(current_context() == 0);
    }

    makes_current("a source", [] { rmm::mr::cuda_memory_resource made; });
    rmm::mr::cuda_memory_resource cuda;
    makes_current("a pool", [&] { rmm::mr::pool_memory_resource made{cuda, 1 << 20}; });
    makes_current("a source of functions", [] {
        rmm::mr::callback_memory_resource made([](std::size_t, rmm::cuda_stream_view, void *) -> void * { return nullptr; },
                                               [](void *, std::size_t, rmm::cuda_stream_view, void *) {});
    });
    rmm::mr::pool_memory_resource pool{cuda, 1 << 20};
    rmm::mr::statistics_resource_adaptor counted{pool};
    rmm::cuda_stream const stream;
    void *block = nullptr;
    makes_current("an allocation", [&] {
        block = counted.allocate(on_default, 1000);
        counted.deallocate(on_default, block, 1000);
    });
    makes_current("an allocation that is cached", [&] { block = pool.allocate(stream.view(), 1000); });
    makes_current("a free", [&] {
        if (block != nullptr) {
            pool.deallocate(stream.view(), std::exchange(block, nullptr), 1000);
        }
    });
    makes_current("an allocation for every stream", [&] {
        void *const made = cuda.allocate_sync(1000);
        cuda.deallocate_sync(made, 1000);
    });
    makes_current("a stream", [] { rmm::cuda_stream made; });
    makes_current("streams in turn", [] { rmm::cuda_stream_pool made(2); });
    makes_current("a wait", [&] { stream.synchronize(); });
    makes_current("a wait for a view", [&] { stream.view().synchronize(); });
    makes_current("a wait that throws nothing", [&] { stream.view().synchronize_no_throw(); });
    makes_current("a buffer", [&] { rmm::device_buffer made(64, stream, counted); });
    makes_current("a question for memory", [] { EXPECT(rmm::available_device_memory().second > 0); });
    std::optional<rmm::device_buffer> held;
    held.emplace(64, stream, counted);
    makes_current("the end of a buffer", [&] { held.reset(), pool.deallocate(on_default, pool.allocate(on_default, 64), 64); });
    EXPECT(counted.get_bytes_counter().value == 0);
    return test::failures == 0 ? 0 : 1;
}
