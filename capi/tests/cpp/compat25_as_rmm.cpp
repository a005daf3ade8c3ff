// What do programs of RMM 25.12 and before count on, besides the classes? What is said of a pool, a stream and a block, the macros of its
// errors, requests that are too large, and memory of the host below a pool, on a simulated machine.
#include <rmm/aligned.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/detail/aligned.hpp>
#include <rmm/detail/cuda_util.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/runtime_capabilities.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/device/aligned_resource_adaptor.hpp>
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/callback_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>
#include <rmm/mr/device/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/device/limiting_resource_adaptor.hpp>
#include <rmm/mr/device/logging_resource_adaptor.hpp>
#include <rmm/mr/device/managed_memory_resource.hpp>
#include <rmm/mr/device/per_device_resource.hpp>
#include <rmm/mr/device/polymorphic_allocator.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#include <rmm/mr/device/system_memory_resource.hpp>
#include <rmm/mr/device/tracking_resource_adaptor.hpp>
#include <rmm/mr/host/new_delete_resource.hpp>
#include <rmm/mr/host/pinned_memory_resource.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/prefetch.hpp>

#include "expect.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

namespace mr = rmm::mr;

#if ALLUVION_CCCL
// A pool is reached from where its upstream is.
template <class Upstream, class Property>
constexpr bool over = cuda::has_property<mr::pool_memory_resource<Upstream>, Property>;

/// Memory that no property is said of.
struct anywhere {
    void *allocate(std::size_t, std::size_t) { return nullptr; }
    void deallocate(void *, std::size_t, std::size_t) {}
    void *allocate_async(std::size_t, std::size_t, rmm::cuda_stream_view) { return nullptr; }
    void deallocate_async(void *, std::size_t, std::size_t, rmm::cuda_stream_view) {}
    bool operator==(anywhere const &) const { return true; }
};
static_assert(over<mr::cuda_memory_resource, cuda::mr::device_accessible> && !over<mr::cuda_memory_resource, cuda::mr::host_accessible>);
static_assert(over<mr::pinned_host_memory_resource, cuda::mr::host_accessible>);
static_assert(over<mr::pinned_memory_resource, cuda::mr::device_accessible> && over<mr::pinned_memory_resource, cuda::mr::host_accessible>);
static_assert(!over<anywhere, cuda::mr::device_accessible> && !over<anywhere, cuda::mr::host_accessible>);
#endif

#if !__has_include(<cuda_runtime_api.h>)
// What the macros name, of a runtime that is not there.
enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2, cudaErrorCudartUnloading = 4, cudaErrorInvalidDevice = 101 };
static cudaError_t cudaGetLastError() { return cudaSuccess; }
static char const *cudaGetErrorName(cudaError_t) { return "a name"; }
static char const *cudaGetErrorString(cudaError_t) { return "and a text"; }
#define EXPECT_MACROS_OF_CUDA 1
#else
#define EXPECT_MACROS_OF_CUDA 0
#endif

namespace {

constexpr std::size_t kib = std::size_t{1} << 10;
constexpr std::size_t mib = std::size_t{1} << 20;
constexpr rmm::cuda_stream_view on_default{};

/// Memory of the device that notes how it was asked last, and may begin its blocks late.
class noting final : public mr::device_memory_resource {
public:
    std::size_t late = 0;
    std::size_t bytes = 0;
    rmm::cuda_stream_view stream{};
    int out = 0;

private:
    void *do_allocate(std::size_t asked, rmm::cuda_stream_view on) override {
        bytes = asked;
        stream = on;
        ++out;
        return static_cast<char *>(below_.allocate(asked + late, on)) + late;
    }
    void do_deallocate(void *block, std::size_t asked, rmm::cuda_stream_view on) override {
        stream = on;
        --out;
        below_.deallocate(static_cast<char *>(block) - late, asked + late, on);
    }

    mr::cuda_memory_resource below_;
};

void macros() {
    auto const failed = [](auto const &thrown) {
        return test::contains(thrown.what(), "RMM failure at: ") && test::contains(thrown.what(), "compat25_as_rmm.cpp:") &&
               test::contains(thrown.what(), ": it is odd");
    };
    int const number = 3;
    RMM_EXPECTS(number == 3, "never");
    RMM_EXPECTS(number == 3, "never", std::runtime_error);
    EXPECT(test::throws<rmm::logic_error>([&] { RMM_EXPECTS(number % 2 == 0, "it is odd"); }, failed));
    EXPECT(test::throws<std::runtime_error>([&] { RMM_EXPECTS(number % 2 == 0, "it is odd", std::runtime_error); }, failed));
    EXPECT(test::throws<rmm::logic_error>([] { RMM_FAIL("it is odd"); }, failed));
    EXPECT(test::throws<rmm::out_of_range>([] { RMM_FAIL("it is odd", rmm::out_of_range); }, failed));
#if EXPECT_MACROS_OF_CUDA
    auto const says = [](char const *what) {
        return [what](auto const &thrown) {
            return test::contains(thrown.what(), "CUDA error") && test::contains(thrown.what(), " at: ") &&
                   test::contains(thrown.what(), what);
        };
    };
    RMM_CUDA_TRY(cudaSuccess);
    RMM_CUDA_TRY_ALLOC(cudaSuccess, 8);
    RMM_ASSERT_CUDA_SUCCESS(cudaSuccess);
    RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaErrorCudartUnloading);
    EXPECT(test::throws<rmm::cuda_error>([] { RMM_CUDA_TRY(cudaErrorInvalidDevice); }, says("CUDA error at: ")));
    EXPECT(test::throws<std::runtime_error>([] { RMM_CUDA_TRY(cudaErrorInvalidDevice, std::runtime_error); }, says(": a name and a text")));
    EXPECT(test::throws<rmm::out_of_memory>([] { RMM_CUDA_TRY_ALLOC(cudaErrorMemoryAllocation, 8); }, says("CUDA error (failed to allocate 8 bytes) at: ")));
    EXPECT(test::throws<rmm::out_of_memory>([] { RMM_CUDA_TRY_ALLOC(cudaErrorMemoryAllocation); }));
    auto const other = [](rmm::bad_alloc const &thrown) { return dynamic_cast<rmm::out_of_memory const *>(&thrown) == nullptr; };
    EXPECT(test::throws<rmm::bad_alloc>([] { RMM_CUDA_TRY_ALLOC(cudaErrorInvalidDevice); }, other));
#endif
}

/// A resource of the program's below a layer gets the stream, the bytes and the address that it would get without the layer.
void as_the_program_wrote() {
    test::sim sim;
    noting mine;
    mine.late = 64;
    mr::aligned_resource_adaptor<noting> aligned{&mine, 4096, 65536};
    void *block = aligned.allocate(100);
    EXPECT(mine.stream == on_default && mine.stream == rmm::cuda_stream_default && mine.bytes == 100 && rmm::is_pointer_aligned(block, 64));
    mine.stream = rmm::cuda_stream_legacy;
    aligned.deallocate(block, 100);
    EXPECT(mine.stream == on_default && mine.out == 0);
    rmm::cuda_stream stream;
    block = aligned.allocate(100, stream);
    EXPECT(mine.stream == stream.view());
    aligned.deallocate(block, 100, stream);
    rmm::cuda_stream_view named = rmm::cuda_stream_legacy;
    mr::callback_memory_resource called(
        [&](std::size_t bytes, rmm::cuda_stream_view on, void *) {
            named = on;
            return mine.allocate(bytes, on);
        },
        [&](void *freed, std::size_t bytes, rmm::cuda_stream_view on, void *) { mine.deallocate(freed, bytes, on); });
    { rmm::device_buffer buffer(100, on_default, &called); }
    EXPECT(named == on_default && mine.out == 0);
}

void asked_about_too_much() {
    test::sim sim;
    mr::cuda_memory_resource cuda;
    int asked = 0;
    auto const once = [](std::size_t, void *count) { return ++*static_cast<int *>(count) == 1; };
    mr::failure_callback_resource_adaptor<mr::cuda_memory_resource, rmm::bad_alloc> asks{&cuda, once, &asked};
    EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(asks.allocate(std::size_t{1} << 40)); }) && asked == 2);
    // One that always says yes is asked no more in the end.
    auto const always = [](std::size_t, void *count) { return ++*static_cast<int *>(count) != 0; };
    asked = 0;
    mr::failure_callback_resource_adaptor<mr::cuda_memory_resource, rmm::bad_alloc> hopes{&cuda, always, &asked};
    EXPECT(test::throws<rmm::out_of_memory>([&] { rmm::device_buffer much(std::size_t{1} << 40, on_default, &hopes); }));
    EXPECT(asked > 0 && asked < 10);
    // One that throws has freed nothing.
    mr::failure_callback_resource_adaptor<mr::cuda_memory_resource, rmm::bad_alloc> throwing{
        &cuda, [](std::size_t, void *) -> bool { throw std::runtime_error("no"); }, nullptr};
    EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(throwing.allocate(std::size_t{1} << 40)); }));
}

void what_is_said() {
    test::sim sim(2);
    mr::cuda_memory_resource cuda;
    for (bool const stacks : {false, true}) {
        mr::tracking_resource_adaptor tracked{&cuda, stacks};
        rmm::device_buffer const buffer(1000, on_default, &tracked);
        auto const blocks = tracked.get_outstanding_allocations();
        EXPECT(blocks.size() == 1 && blocks.begin()->first == buffer.data() && blocks.begin()->second.allocation_size == 1000);
        EXPECT((blocks.begin()->second.strace != nullptr) == stacks);
        if (stacks) {
            std::ostringstream text;
            text << *blocks.begin()->second.strace;
            EXPECT(text.str() == blocks.begin()->second.call_site);
        }
    }
    EXPECT(rmm::detail::runtime_async_alloc::is_supported() && rmm::detail::async_alloc::is_supported());
    EXPECT(!mr::detail::is_system_memory_supported(rmm::get_current_cuda_device()));
    EXPECT(rmm::detail::runtime_async_managed_alloc::is_supported() && rmm::detail::concurrent_managed_access::is_supported());
    {
        mr::managed_memory_resource managed;
        rmm::device_buffer const buffer(1000, on_default, &managed);
        rmm::prefetch(buffer.data(), buffer.size(), rmm::get_current_cuda_device(), on_default);
    }
    EXPECT(test::throws<rmm::logic_error>([&] { mr::arena_memory_resource small(&cuda, 256); }));
    mr::arena_memory_resource least(&cuda, mib);

    // The first resource of a device stays what it is, whatever is current.
    mr::device_memory_resource *const first = mr::get_current_device_resource();
    mr::statistics_resource_adaptor counted{first};
    mr::set_current_device_resource(&counted);
    EXPECT(mr::detail::initial_resource() == first && mr::get_current_device_resource() == &counted);
    { rmm::device_buffer buffer(100, on_default); }
    EXPECT(counted.get_allocations_counter().total == 1 && mr::detail::initial_resource() == first);
    EXPECT(mr::reset_current_device_resource() == &counted && mr::get_current_device_resource() == first);
    rmm::cuda_set_device_raii const there(rmm::cuda_device_id{1});
    EXPECT(mr::detail::initial_resource() != first && mr::detail::initial_resource() == mr::get_current_device_resource());
}

void logs_in_folders() {
    test::sim sim;
    mr::cuda_memory_resource cuda;
    std::string const folder = "compat25-logs-" + std::to_string(reinterpret_cast<std::uintptr_t>(&cuda));
    for (int count = 0; count < 2; ++count) {
        auto log = mr::make_logging_adaptor(&cuda, folder + "/of/program.csv");
        { rmm::device_buffer buffer(1000, on_default, &log); }
        log.flush();
        std::string first;
        EXPECT(std::getline(std::ifstream(folder + "/of/program.csv"), first) && first == log.header());
    }
    std::remove((folder + "/of/program.csv").c_str());
    rmdir((folder + "/of").c_str());
    rmdir(folder.c_str());
}

void allocators() {
    test::sim sim;
    rmm::cuda_stream stream;
    mr::polymorphic_allocator<int> of_int;
    auto const ints = mr::stream_allocator_adaptor(of_int, stream);
    static_assert(std::is_same_v<decltype(ints), mr::stream_allocator_adaptor<mr::polymorphic_allocator<int>> const>);
    using of_double = std::allocator_traits<mr::stream_allocator_adaptor<mr::polymorphic_allocator<int>>>::rebind_alloc<double>;
    static_assert(std::is_same_v<of_double, mr::stream_allocator_adaptor<mr::polymorphic_allocator<double>>>);
    of_double doubles{ints};
    EXPECT(doubles == ints && !(doubles != ints) && doubles.stream() == stream.view());
    double *const numbers = doubles.allocate(10);
    doubles.deallocate(numbers, 10);
}

void memory_of_the_host() {
    test::sim sim;
    static_assert(rmm::RMM_DEFAULT_HOST_ALIGNMENT == alignof(std::max_align_t));
    mr::new_delete_resource ordinary;
    mr::pinned_memory_resource pinned;
    for (mr::host_memory_resource *each : std::initializer_list<mr::host_memory_resource *>{&ordinary, &pinned}) {
        void *const block = each->allocate(100, 257);
        EXPECT(rmm::is_pointer_aligned(block, rmm::RMM_DEFAULT_HOST_ALIGNMENT));
        each->deallocate(block, 100, 257);
    }
    // Memory that an allocator of the program's cannot align.
    static_assert(rmm::detail::align_up(100, 64) == 128 && rmm::detail::CUDA_ALLOCATION_ALIGNMENT == 256);
    EXPECT(rmm::detail::available_device_memory() == rmm::available_device_memory());
    for (std::size_t const alignment : {std::size_t{1}, std::size_t{16}, std::size_t{4096}}) {
        void *begin = nullptr;
        std::size_t asked = 0;
        void *const block = rmm::detail::aligned_host_allocate(100, alignment, [&](std::size_t bytes) {
            asked = bytes;
            return begin = ::operator new(bytes);
        });
        EXPECT(rmm::detail::is_pointer_aligned(block, alignment) && asked >= 100 + alignment && block >= begin);
        std::memset(block, 0xff, 100);
        void *freed = nullptr;
        rmm::detail::aligned_host_deallocate(block, 100, alignment, [&](void *of) { ::operator delete(freed = of); });
        EXPECT(freed == begin);
    }
    auto const never = [](std::size_t) -> void * { throw std::runtime_error("no"); };
    EXPECT(test::throws<rmm::bad_alloc>([&] { rmm::detail::aligned_allocate(~std::size_t{0} - 8, 16, never); }));

    rmm::cuda_stream stream;
    mr::pool_memory_resource<mr::pinned_memory_resource> pool{&pinned, mib, mib};
    mr::pool_memory_resource<mr::pinned_memory_resource> second{pinned, 64 * kib};
    EXPECT(pool.pool_size() == mib && second.pool_size() == 64 * kib);
    auto *const text = static_cast<char *>(pool.allocate(100, stream));
    text[99] = 'x';
    EXPECT(text[99] == 'x');
    pool.deallocate(text, 100, stream);
    rmm::device_buffer const buffer(100, stream, &pool);
    EXPECT(buffer.data() != nullptr);
}

} // namespace

int main() {
    macros();
    as_the_program_wrote();
    asked_about_too_much();
    what_is_said();
    logs_in_folders();
    allocators();
    memory_of_the_host();
    return test::failures == 0 ? 0 : 1;
}
