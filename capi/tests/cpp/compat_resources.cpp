// Are the resources of compat/rmm what RMM's are? Each class, the current resource, counters, handlers, and resources of the
// program's own below and above them, on a simulated machine.
#include <rmm/detail/aligned.hpp>
#include <rmm/detail/cuda_stream.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/runtime_capabilities.hpp>
#include <rmm/mr/aligned_resource_adaptor.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/cuda_async_managed_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/logging_resource_adaptor.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/polymorphic_allocator.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/prefetch_resource_adaptor.hpp>
#include <rmm/mr/sam_headroom_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/system_memory_resource.hpp>
#include <rmm/mr/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>

#include <rmm/cuda_stream.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/prefetch.hpp>

#include "expect.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

static_assert(std::is_copy_constructible_v<rmm::mr::pool_memory_resource>);
static_assert(std::is_nothrow_move_constructible_v<rmm::mr::statistics_resource_adaptor>);
static_assert(sizeof(rmm::mr::statistics_resource_adaptor) <= 3 * sizeof(void *), "an erased resource keeps it in place");
#if ALLUVION_COMPAT_RMM_CCCL
static_assert(std::is_same_v<rmm::device_async_resource_ref, cuda::mr::resource_ref<cuda::mr::device_accessible>>);
static_assert(cuda::mr::resource_with<rmm::mr::pool_memory_resource, cuda::mr::device_accessible>);
static_assert(cuda::mr::resource_with<rmm::mr::failure_callback_resource_adaptor<>, cuda::mr::device_accessible>);
static_assert(cuda::mr::resource_with<rmm::mr::managed_memory_resource, cuda::mr::device_accessible, cuda::mr::host_accessible>);
static_assert(!cuda::mr::resource_with<rmm::mr::cuda_memory_resource, cuda::mr::host_accessible>);
static_assert(std::is_constructible_v<rmm::host_device_async_resource_ref, rmm::mr::pinned_host_memory_resource &>);
static_assert(std::is_constructible_v<rmm::device_async_resource_ref, rmm::host_device_async_resource_ref>);
#endif

namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = kib * kib;
constexpr rmm::cuda_stream_view on_default{};

bool says(::alluvion::basic_resource<rmm::detail::errors> const &resource, char const *part) {
    return test::contains(resource.describe(), part);
}

void sources() {
    test::sim sim;
    rmm::mr::cuda_memory_resource cuda;
    EXPECT(says(cuda, "Cuda(") && cuda == rmm::mr::cuda_memory_resource{});
    rmm::mr::cuda_async_memory_resource pool_of_driver;
    rmm::mr::cuda_async_memory_resource sized(mib, 2 * mib, rmm::mr::cuda_async_memory_resource::allocation_handle_type::none);
    EXPECT(says(pool_of_driver, "CudaAsync(") && pool_of_driver != sized);
    EXPECT(test::throws<rmm::logic_error>([] {
        rmm::mr::cuda_async_memory_resource shared({}, {}, rmm::mr::cuda_async_memory_resource::allocation_handle_type::fabric);
    }));
    rmm::mr::managed_memory_resource managed;
    rmm::mr::pinned_host_memory_resource pinned;
    rmm::mr::cuda_async_managed_memory_resource async_managed;
    EXPECT(says(managed, "Managed(") && says(pinned, "Pinned(") && says(async_managed, "CudaAsyncManaged("));
    void *const of_managed = managed.allocate_sync(64);
    void *const of_pinned = pinned.allocate_sync(64);
    EXPECT(of_managed != nullptr && of_pinned != nullptr);
    managed.deallocate_sync(of_managed, 64);
    pinned.deallocate_sync(of_pinned, 64);
    EXPECT(cuda.allocate(on_default, 0) == nullptr);
    cuda.deallocate(on_default, nullptr, 0);
    EXPECT(test::throws<rmm::bad_alloc>([&] { static_cast<void>(cuda.allocate(on_default, ~std::size_t{0})); }));
    EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(cuda.allocate(on_default, std::size_t{1} << 40)); }));
}

void suballocators() {
    test::sim sim;
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::pool_memory_resource pool{cuda, mib, 4 * mib};
    EXPECT(pool.pool_size() >= mib && says(pool, "Pool("));
    EXPECT(pool.get_upstream_resource() == rmm::device_async_resource_ref{cuda});
    void *block = pool.allocate(on_default, 3 * mib);
    EXPECT(pool.pool_size() >= 3 * mib);
    EXPECT(test::throws<rmm::out_of_memory>(
        [&] { static_cast<void>(pool.allocate(on_default, 3 * mib)); },
        [](auto const &failure) { return test::contains(failure.what(), "std::bad_alloc: out_of_memory"); }));
    pool.deallocate(on_default, block, 3 * mib);
    EXPECT(test::throws<rmm::logic_error>([&] { rmm::mr::pool_memory_resource{cuda, 1000}; }));
    EXPECT(test::throws<rmm::logic_error>([&] { rmm::mr::pool_memory_resource{cuda, 2 * mib, mib}; }));
    EXPECT(test::throws<rmm::out_of_memory>([&] { rmm::mr::pool_memory_resource{cuda, std::size_t{1} << 38}; }));

    rmm::mr::arena_memory_resource arena{cuda, 8 * mib};
    EXPECT(says(arena, "Arena("));
    block = arena.allocate(on_default, mib);
    EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(arena.allocate(on_default, 16 * mib)); }));
    arena.deallocate(on_default, block, mib);
    EXPECT(says(rmm::mr::arena_memory_resource{cuda}, "Arena("));
    EXPECT(test::throws<rmm::logic_error>([&] { rmm::mr::arena_memory_resource{cuda, mib - 256}; }));
    EXPECT(says(rmm::mr::arena_memory_resource{cuda, mib}, "Arena("));

    rmm::mr::fixed_size_memory_resource fixed{cuda, 1000, 4};
    EXPECT(fixed.get_block_size() == kib);
    block = fixed.allocate(on_default, 1000);
    EXPECT(test::throws<rmm::bad_alloc>([&] { static_cast<void>(fixed.allocate(on_default, 2000)); }));
    fixed.deallocate(on_default, block, 1000);
}

// What an arena writes when a request fails, if it was told to.
void dumps() {
    test::sim sim;
    char folder[] = "/tmp/alluvion-arena-XXXXXX";
    std::string const before = std::filesystem::current_path();
    EXPECT(mkdtemp(folder) != nullptr);
    std::filesystem::current_path(folder);
    for (bool const dumps : {false, true}) {
        rmm::mr::arena_memory_resource const arena{rmm::mr::cuda_memory_resource{}, mib, dumps};
        EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(arena.allocate(on_default, 8 * mib)); }));
        EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(arena.allocate_sync(8 * mib)); }));
        std::ifstream file("rmm_arena_memory_dump.log");
        std::string line;
        int failures = 0, snapshots = 0;
        while (std::getline(file, line)) {
            failures += test::contains(line.c_str(), "out_of_memory") && test::contains(line.c_str(), "8 MiB");
            snapshots += test::contains(line.c_str(), "\"alluvion-snapshot\"");
        }
        EXPECT(failures == 2 * dumps && snapshots == 2 * dumps);
    }
    std::filesystem::current_path(before);
    std::filesystem::remove_all(folder);
}

// A source without a state is below a layer of another device, and as its current resource, what it is there, as in RMM.
void another_device() {
    test::sim sim(2);
    rmm::mr::cuda_memory_resource const cuda;
    rmm::mr::managed_memory_resource const managed;
#if ALLUVION_COMPAT_RMM_CCCL
    rmm::mr::cuda_async_memory_resource const pooled;
    EXPECT(test::throws<rmm::cuda_error>([&] { static_cast<void>(rmm::mr::set_per_device_resource(rmm::cuda_device_id{1}, pooled)); }));
    auto const before = rmm::mr::set_per_device_resource(rmm::cuda_device_id{1}, cuda);
    EXPECT(rmm::get_current_cuda_device().value() == 0 && rmm::detail::resource::current(alluvion::device_id(1)).device().value() == 1);
#endif
    rmm::cuda_set_device_raii const there(rmm::cuda_device_id{1});
#if ALLUVION_COMPAT_RMM_CCCL
    rmm::mr::cuda_memory_resource mine;
    EXPECT(rmm::mr::get_current_device_resource_ref() == rmm::device_async_resource_ref{mine});
    { rmm::device_buffer const buffer(1000, on_default); }
    static_cast<void>(rmm::mr::set_current_device_resource(before));
    rmm::mr::pool_memory_resource pool{cuda, mib};
    rmm::mr::thread_safe_resource_adaptor locked{managed};
    EXPECT(pool.device().value() == 1 && locked.device().value() == 1);
    { rmm::device_buffer const buffer(1000, on_default, pool); }
    { rmm::device_buffer const buffer(1000, on_default, locked); }
#else
    // The handle is all that is left of it there.
    EXPECT((rmm::mr::pool_memory_resource{cuda, mib}.device().value() == 0));
    EXPECT(rmm::mr::thread_safe_resource_adaptor{managed}.device().value() == 0);
#endif
}

void bins() {
    test::sim sim;
    rmm::mr::statistics_resource_adaptor below{rmm::mr::cuda_memory_resource{}};
    {
        rmm::mr::binning_memory_resource bins{below, 10, 12};
        EXPECT(bins.get_upstream_resource() == rmm::device_async_resource_ref{below});
        // A block of a bin comes of what the bin took when it was made; a larger one of the upstream.
        auto const at_first = below.get_allocations_counter().total;
        void *small = bins.allocate(on_default, 700);
        EXPECT(below.get_allocations_counter().total == at_first);
        void *large = bins.allocate(on_default, 5000);
        EXPECT(below.get_allocations_counter().total == at_first + 1);
        EXPECT(test::throws<rmm::logic_error>([&] { bins.add_bin(8192); }));
        EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(bins.allocate(on_default, std::size_t{1} << 40)); }));
        bins.deallocate(on_default, large, 5000);
        bins.deallocate(on_default, small, 700);
        EXPECT(test::throws<rmm::logic_error>([&] { rmm::mr::binning_memory_resource{below, 12, 10}; }));
    }
    {
        rmm::mr::statistics_resource_adaptor own{rmm::mr::cuda_memory_resource{}};
        rmm::mr::binning_memory_resource bins{below};
        bins.add_bin(3000, rmm::device_async_resource_ref{own});
        bins.add_bin(512);
        EXPECT(test::throws<rmm::logic_error>([&] { bins.add_bin(0); }));
        rmm::mr::binning_memory_resource copy = bins;
        void *first = copy.allocate(on_default, 2900);
        EXPECT(own.get_bytes_counter().value == 2900);
        void *second = bins.allocate(on_default, 500);
        void *third = bins.allocate(on_default, 4000);
        EXPECT(own.get_allocations_counter().total == 1);
        bins.deallocate(on_default, first, 2900);
        bins.deallocate(on_default, second, 500);
        bins.deallocate(on_default, third, 4000);
        EXPECT(own.get_bytes_counter().value == 0);
    }
    {
        // Beside powers of two: the smallest that is large enough serves.
        rmm::mr::statistics_resource_adaptor own{rmm::mr::cuda_memory_resource{}};
        rmm::mr::binning_memory_resource bins{below, 10, 12};
        bins.add_bin(1536, rmm::device_async_resource_ref{own});
        bins.add_bin(2048, rmm::device_async_resource_ref{own});
        std::vector<std::pair<void *, std::size_t>> blocks;
        for (std::size_t const bytes : {1000, 1100, 1600, 4096, 1025}) {
            blocks.emplace_back(bins.allocate(on_default, bytes), bytes);
        }
        EXPECT(own.get_allocations_counter().total == 2 && own.get_bytes_counter().total == 1100 + 1025);
        for (auto const &[block, bytes] : blocks) {
            bins.deallocate(on_default, block, bytes);
        }
    }
    EXPECT(below.get_bytes_counter().value == 0);
}

void statistics() {
    test::sim sim;
    rmm::mr::statistics_resource_adaptor counted{rmm::mr::cuda_memory_resource{}};
    std::vector<void *> blocks;
    for (int block = 0; block < 10; ++block) {
        blocks.push_back(counted.allocate(on_default, 5 * mib));
        if (block % 2 == 1) {
            counted.deallocate(on_default, blocks.back(), 5 * mib);
            blocks.pop_back();
        }
    }
    EXPECT(counted.get_bytes_counter().value == static_cast<std::int64_t>(25 * mib));
    EXPECT(counted.get_bytes_counter().peak == static_cast<std::int64_t>(30 * mib));
    EXPECT(counted.get_bytes_counter().total == static_cast<std::int64_t>(50 * mib));
    EXPECT(counted.get_allocations_counter().value == 5 && counted.get_allocations_counter().peak == 6);

    auto const [bytes, allocations] = counted.push_counters();
    EXPECT(bytes.value == static_cast<std::int64_t>(25 * mib) && allocations.total == 10);
    EXPECT(counted.get_bytes_counter().value == 0 && counted.get_bytes_counter().peak == 0);
    counted.deallocate(on_default, blocks.back(), 5 * mib);
    blocks.pop_back();
    EXPECT(counted.get_bytes_counter().value == -static_cast<std::int64_t>(5 * mib));
    EXPECT(counted.pop_counters().first.value == -static_cast<std::int64_t>(5 * mib));
    EXPECT(counted.get_bytes_counter().value == static_cast<std::int64_t>(20 * mib));
    EXPECT(test::throws<std::out_of_range>([&] { counted.pop_counters(); }));
    for (void *block : blocks) {
        counted.deallocate(on_default, block, 5 * mib);
    }
    EXPECT(counted.get_bytes_counter().value == 0);

    rmm::mr::statistics_resource_adaptor::counter sum{10, 20, 30};
    sum.add_counters_from_tracked_sub_block({5, 15, 15});
    EXPECT(sum.value == 15 && sum.peak == 25 && sum.total == 45);
    (sum += 20) -= 5;
    EXPECT(sum.value == 30 && sum.peak == 35 && sum.total == 65);
}

void layers() {
    test::sim sim;
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::limiting_resource_adaptor limited{cuda, 4 * mib};
    EXPECT(limited.get_allocation_limit() == 4 * mib);
    void *block = limited.allocate(on_default, 3 * mib);
    EXPECT(limited.get_allocated_bytes() == 3 * mib);
    EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(limited.allocate(on_default, 2 * mib)); }));
    limited.deallocate(on_default, block, 3 * mib);
    EXPECT(limited.get_allocated_bytes() == 0);
    EXPECT(test::throws<rmm::invalid_argument>([&] { rmm::mr::limiting_resource_adaptor{cuda, mib, 3}; }));

    rmm::mr::tracking_resource_adaptor tracked{cuda};
    block = tracked.allocate(on_default, 100);
    void *other = tracked.allocate(on_default, 200);
    EXPECT(tracked.get_allocated_bytes() == 300 && tracked.get_outstanding_allocations().size() == 2);
    EXPECT(tracked.get_outstanding_allocations().at(block).allocation_size == 100);
    EXPECT(tracked.get_outstanding_allocations().at(block).strace == nullptr);
    {
        rmm::mr::tracking_resource_adaptor with_stacks{cuda, true};
        rmm::device_buffer const buffer(100, on_default, with_stacks);
        auto const blocks = with_stacks.get_outstanding_allocations();
        std::ostringstream trace;
        EXPECT(blocks.size() == 1 && blocks.begin()->second.strace != nullptr);
        trace << *blocks.begin()->second.strace;
        EXPECT(trace.str() == blocks.begin()->second.call_site);
    }
    std::ostringstream address;
    address << other;
    EXPECT(test::contains(tracked.get_outstanding_allocations_str(), address.str().c_str()));
    tracked.deallocate(on_default, block, 100);
    tracked.deallocate(on_default, other, 200);
    EXPECT(tracked.get_outstanding_allocations_str().empty() && tracked.get_allocated_bytes() == 0);
    tracked.log_outstanding_allocations();

    rmm::mr::aligned_resource_adaptor aligned{rmm::mr::pool_memory_resource{cuda, 0}, 4096, 1000};
    block = aligned.allocate(on_default, 5000);
    EXPECT(reinterpret_cast<std::uintptr_t>(block) % 4096 == 0);
    aligned.deallocate(on_default, block, 5000);
    EXPECT(says(rmm::mr::aligned_resource_adaptor{cuda, 8}, "Aligned("));
    EXPECT(test::throws<rmm::logic_error>([&] { rmm::mr::aligned_resource_adaptor{cuda, 100}; }));

    rmm::mr::prefetch_resource_adaptor fetched{rmm::mr::managed_memory_resource{}};
    block = fetched.allocate(on_default, 100);
    EXPECT(says(fetched, "Prefetch"));
    fetched.deallocate(on_default, block, 100);
}

void logs() {
    test::sim sim;
    char name[] = "/tmp/alluvion \"log\" XXXXXX";
    int const file = mkstemp(name);
    EXPECT(file >= 0);
    {
        rmm::mr::logging_resource_adaptor logged{rmm::mr::cuda_memory_resource{}, name, true};
        void *block = logged.allocate(on_default, 100);
        logged.deallocate(on_default, block, 100);
        logged.flush();
        std::ifstream written(name);
        std::string row;
        std::getline(written, row);
        EXPECT(row == logged.header());
        std::getline(written, row);
        EXPECT(test::contains(row, "allocate,") && test::contains(row, ",100,"));
        std::getline(written, row);
        EXPECT(test::contains(row, "free,"));
    }
    setenv("RMM_LOG_FILE", name, 1);
    EXPECT(rmm::mr::logging_resource_adaptor::get_default_filename() == name);
    unsetenv("RMM_LOG_FILE");
    EXPECT(test::throws<rmm::logic_error>([] { rmm::mr::logging_resource_adaptor{rmm::mr::cuda_memory_resource{}}; }));
    std::remove(name);
}

void macros() {
    int const number = 3;
    RMM_EXPECTS(number == 3, "never");
    EXPECT(test::throws<rmm::logic_error>([&] { RMM_EXPECTS(number % 2 == 0, "it is odd"); }, [](rmm::logic_error const &thrown) {
        return test::contains(thrown.what(), "RMM failure at: ") && test::contains(thrown.what(), ": it is odd");
    }));
    EXPECT(test::throws<rmm::out_of_range>([] { RMM_FAIL("it is odd", rmm::out_of_range); }));
    void *const block = rmm::detail::aligned_host_allocate(100, 4096, [](std::size_t bytes) { return ::operator new(bytes); });
    EXPECT(rmm::is_pointer_aligned(block, 4096));
    rmm::detail::aligned_host_deallocate(block, 100, 4096, [](void *of) { ::operator delete(of); });
}

void handlers() {
    test::sim sim;
    rmm::mr::limiting_resource_adaptor limited{rmm::mr::cuda_memory_resource{}, mib};
    struct spare {
        rmm::mr::limiting_resource_adaptor *from;
        void *block;
        int asked;
    } kept{&limited, limited.allocate(on_default, 800 * kib), 0};
    auto const give_back = [](std::size_t bytes, void *argument) {
        auto &kept = *static_cast<spare *>(argument);
        EXPECT(bytes == 500 * kib);
        ++kept.asked;
        if (kept.block == nullptr) {
            return false;
        }
        kept.from->deallocate(on_default, std::exchange(kept.block, nullptr), 800 * kib);
        return true;
    };
    rmm::mr::failure_callback_resource_adaptor<> helped{limited, give_back, &kept};
    void *block = helped.allocate(on_default, 500 * kib);
    EXPECT(kept.asked == 1 && kept.block == nullptr);
    void *second = helped.allocate(on_default, 500 * kib);
    EXPECT(kept.asked == 1);
    EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(helped.allocate(on_default, 500 * kib)); }));
    EXPECT(kept.asked == 2);
    helped.deallocate(on_default, block, 500 * kib);
    helped.deallocate(on_default, second, 500 * kib);

    // One of a base is asked about what is too large, too, though not for ever.
    int asked = 0;
    rmm::mr::failure_callback_resource_adaptor<rmm::bad_alloc> always{
        limited, [](std::size_t, void *count) { return ++*static_cast<int *>(count) != 0; }, &asked};
    EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(always.allocate(on_default, 2 * mib)); }));
    EXPECT(asked == 2);

    // One that throws has freed nothing.
    rmm::mr::failure_callback_resource_adaptor<std::bad_alloc> throwing{
        limited, [](std::size_t, void *) -> bool { throw std::runtime_error("no"); }, nullptr};
    EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(throwing.allocate(on_default, 2 * mib)); }));
}

void callbacks() {
    test::sim sim;
    rmm::mr::cuda_memory_resource cuda;
    int allocations = 0;
    rmm::mr::callback_memory_resource called{[&cuda](std::size_t bytes, rmm::cuda_stream_view stream, void *count) {
                                                 ++*static_cast<int *>(count);
                                                 return cuda.allocate(stream, bytes);
                                             },
                                             [&cuda](void *block, std::size_t bytes, rmm::cuda_stream_view stream, void *) {
                                                 cuda.deallocate(stream, block, bytes);
                                             },
                                             &allocations};
    rmm::mr::statistics_resource_adaptor counted{called};
    {
        rmm::device_buffer buffer(1000, on_default, counted);
        EXPECT(allocations == 1 && counted.get_bytes_counter().value == 1000);
    }
    rmm::mr::callback_memory_resource throwing{
        [](std::size_t, rmm::cuda_stream_view, void *) -> void * { throw rmm::out_of_memory("nothing here"); },
        [](void *, std::size_t, rmm::cuda_stream_view, void *) {}};
    EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(throwing.allocate(on_default, 1)); }));
    rmm::mr::callback_memory_resource odd{[](std::size_t, rmm::cuda_stream_view, void *) -> void * { throw 7; },
                                          [](void *, std::size_t, rmm::cuda_stream_view, void *) {}};
    EXPECT(test::throws<int>([&] { static_cast<void>(odd.allocate(on_default, 1)); }));
}

void current() {
    test::sim sim(2);
    rmm::mr::statistics_resource_adaptor counted{rmm::mr::pool_memory_resource{rmm::mr::cuda_memory_resource{}, mib}};
    {
        auto before = rmm::mr::set_current_device_resource(counted);
        EXPECT(rmm::mr::get_current_device_resource_ref() == rmm::device_async_resource_ref{counted});
        EXPECT(rmm::mr::get_per_device_resource_ref(rmm::cuda_device_id{0}) == rmm::device_async_resource_ref{counted});
        EXPECT(rmm::mr::get_per_device_resource_ref(rmm::cuda_device_id{1}) != rmm::device_async_resource_ref{counted});
        rmm::device_uvector<int> vector(100, on_default);
        EXPECT(counted.get_bytes_counter().value == 400 && vector.memory_resource() == rmm::device_async_resource_ref{counted});
        // Programs in C see it, and so do these headers what programs in C set.
        EXPECT(alluvion::current_resource().native_handle() != nullptr);
        EXPECT(alv_resource_equal(alluvion::current_resource().native_handle(), counted.native_handle()));
        alluvion::resource other("stats | cuda");
        auto const by_c = alluvion::set_current_resource(other);
        EXPECT(by_c == counted);
        rmm::device_buffer buffer(64, on_default);
        EXPECT(other.stats()->bytes.value == 64 && counted.get_bytes_counter().value == 400);
        auto set_by_c = rmm::mr::set_current_device_resource(before);
        EXPECT(rmm::mr::get_current_device_resource_ref() == rmm::device_async_resource_ref{before});
        EXPECT(rmm::mr::get_current_device_resource_ref() != rmm::device_async_resource_ref{set_by_c});
    }
    EXPECT(counted.get_bytes_counter().value == 0);
    {
        // A layer over what is current now, in its place.
        rmm::mr::tracking_resource_adaptor tracked{rmm::mr::get_current_device_resource_ref()};
        auto before = rmm::mr::set_current_device_resource(tracked);
        rmm::device_buffer buffer(64, on_default);
        EXPECT(tracked.get_allocated_bytes() == 64);
        auto mine = rmm::mr::reset_current_device_resource();
        EXPECT(rmm::mr::get_current_device_resource_ref() != rmm::device_async_resource_ref{mine});
        EXPECT(rmm::mr::get_current_device_resource_ref() == rmm::device_async_resource_ref{before});
    }
    static_cast<void>(rmm::mr::set_per_device_resource(rmm::cuda_device_id{0}, counted));
    static_cast<void>(rmm::mr::reset_per_device_resource(rmm::cuda_device_id{0}));
    EXPECT(test::throws<rmm::cuda_error>([] { static_cast<void>(rmm::mr::get_per_device_resource_ref(rmm::cuda_device_id{5})); }));
    rmm::mr::cuda_memory_resource *const nobody = nullptr;
    EXPECT(test::throws<rmm::logic_error>([&] { static_cast<void>(rmm::to_device_async_resource_ref_checked(nobody)); }));
    EXPECT(rmm::to_device_async_resource_ref_checked(&counted) == rmm::device_async_resource_ref{counted});

    {
        // A layer over a reference to what is current takes its place, and the reference puts it back. It is of another type, and larger.
        auto const reference = rmm::mr::get_current_device_resource_ref();
        for (int round = 0; round < 2; ++round) {
            static_cast<void>(rmm::mr::set_current_device_resource(rmm::mr::tracking_resource_adaptor{reference}));
            EXPECT(says(rmm::detail::resource::current(), "Tracking"));
            { rmm::device_buffer buffer(64, on_default); }
            static_cast<void>(rmm::mr::set_current_device_resource(reference));
            EXPECT(!says(rmm::detail::resource::current(), "Tracking"));
            EXPECT(rmm::mr::get_current_device_resource_ref() == reference);
            { rmm::device_buffer buffer(64, on_default); }
        }
        // Also over a handler, whose handle equals the one below it.
        auto const no_help = [](std::size_t, void *) { return false; };
        static_cast<void>(rmm::mr::set_current_device_resource(rmm::mr::failure_callback_resource_adaptor<>{reference, no_help, nullptr}));
        auto const handled = rmm::mr::set_current_device_resource(reference);
        EXPECT(rmm::mr::get_current_device_resource_ref() == reference);
        static_cast<void>(handled);
    }

    // The first resource of a device stays what it is, whatever is current.
    auto &&first = rmm::mr::detail::initial_resource();
    EXPECT(rmm::device_async_resource_ref{first} == rmm::mr::get_current_device_resource_ref());
    static_cast<void>(rmm::mr::set_current_device_resource(counted));
    EXPECT(first == rmm::mr::detail::initial_resource());
    EXPECT(rmm::mr::get_current_device_resource_ref() == rmm::device_async_resource_ref{counted});
    static_cast<void>(rmm::mr::reset_current_device_resource());
    rmm::cuda_set_device_raii const there(rmm::cuda_device_id{1});
    EXPECT(first != rmm::mr::detail::initial_resource());
}

// What programs ask before they choose a resource, and where managed memory goes before it is used.
void capabilities() {
    test::sim sim(2);
    EXPECT(rmm::detail::runtime_async_alloc::is_supported() && rmm::detail::runtime_async_managed_alloc::is_supported());
    EXPECT(rmm::detail::concurrent_managed_access::is_supported());
    EXPECT(rmm::detail::export_handle_type::is_supported(rmm::mr::cuda_async_memory_resource::allocation_handle_type::none));
    EXPECT(!rmm::detail::export_handle_type::is_supported(rmm::mr::cuda_async_memory_resource::allocation_handle_type::fabric));
    EXPECT(!rmm::mr::detail::is_system_memory_supported(rmm::get_current_cuda_device()));
    EXPECT(rmm::detail::is_default_stream(on_default) && !rmm::detail::is_default_stream(rmm::cuda_stream{}));

    rmm::cuda_stream const stream;
    rmm::mr::managed_memory_resource managed;
    rmm::device_uvector<int> vector(1000, stream, managed);
    rmm::prefetch(vector.data(), 4000, rmm::get_current_cuda_device(), stream);
    rmm::prefetch(vector.data(), 400, rmm::cuda_device_id{1}, on_default);
    rmm::prefetch(vector.data(), 400, rmm::cuda_device_id{-1}, stream);
    rmm::prefetch(nullptr, 0, rmm::cuda_device_id{0}, stream);
#if ALLUVION_COMPAT_RMM_CCCL
    rmm::prefetch<int>(vector, rmm::get_current_cuda_device(), stream);
    rmm::prefetch<int>({vector.data(), 10}, rmm::get_current_cuda_device(), stream);
#endif
    EXPECT(test::throws<rmm::cuda_error>([&] { rmm::prefetch(vector.data(), 400, rmm::cuda_device_id{2}, stream); }));
    stream.synchronize();
    // Memory of a device stays where it is.
    rmm::device_buffer const plain(1000, stream, rmm::mr::cuda_memory_resource{});
    rmm::prefetch(plain.data(), plain.size(), rmm::get_current_cuda_device(), stream);
}

// What one thread sets, others allocate from, and the last one set is the one that is there.
void current_by_threads() {
    test::sim sim;
    rmm::mr::statistics_resource_adaptor first{rmm::mr::cuda_memory_resource{}}, second{rmm::mr::cuda_memory_resource{}};
    auto before = rmm::mr::set_current_device_resource(first);
    // A reference names what is current, also after another is set.
    auto const reference = rmm::mr::get_current_device_resource_ref();
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
            for (int round = 0; round < 100; ++round) {
                if (thread == 0) {
                    static_cast<void>(rmm::mr::set_current_device_resource(round % 2 == 0 ? second : first));
                }
                rmm::device_buffer buffer(64, on_default);
                // It keeps the one that it was made of.
                EXPECT(buffer.memory_resource() == rmm::device_async_resource_ref{first} ||
                       buffer.memory_resource() == rmm::device_async_resource_ref{second});
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    EXPECT(first.get_bytes_counter().value == 0 && second.get_bytes_counter().value == 0);
    EXPECT(first.get_allocations_counter().total + second.get_allocations_counter().total == 400);
    auto last = rmm::mr::set_current_device_resource(second);
    EXPECT(rmm::device_async_resource_ref{last} == rmm::device_async_resource_ref{first});
#if ALLUVION_COMPAT_RMM_CCCL
    EXPECT(reference == rmm::device_async_resource_ref{second});
#else
    EXPECT(reference == rmm::device_async_resource_ref{first});
#endif
    static_cast<void>(rmm::mr::set_current_device_resource(before));
}

void allocators() {
    test::sim sim;
    rmm::mr::statistics_resource_adaptor counted{rmm::mr::cuda_memory_resource{}};
    rmm::mr::polymorphic_allocator<int> allocator{counted};
    int *block = allocator.allocate(100, on_default);
    EXPECT(counted.get_bytes_counter().value == 400);
    rmm::mr::polymorphic_allocator<double> rebound{allocator};
    EXPECT(rebound == allocator && rebound.get_upstream_resource() == rmm::device_async_resource_ref{counted});
    EXPECT(rmm::mr::polymorphic_allocator<int>{} != allocator);
    allocator.deallocate(block, 100, on_default);
    rmm::device_async_resource_ref const reference{counted};
    rmm::mr::polymorphic_allocator<int> const of_reference = reference;
    EXPECT(of_reference == allocator);

    auto on_stream = rmm::mr::stream_allocator_adaptor(allocator, on_default);
    static_assert(std::is_same_v<decltype(on_stream), rmm::mr::stream_allocator_adaptor<rmm::mr::polymorphic_allocator<int>>>);
    using of_char = std::allocator_traits<decltype(on_stream)>::rebind_alloc<char>;
    of_char bytes{on_stream};
    char *text = bytes.allocate(100);
    EXPECT(counted.get_bytes_counter().value == 100 && bytes.stream() == on_default && bytes == on_stream);
    bytes.deallocate(text, 100);
    EXPECT(counted.get_bytes_counter().value == 0);
    EXPECT(test::throws<std::bad_alloc>([&] { static_cast<void>(allocator.allocate(~std::size_t{0} / 2, on_default)); }));
}

#if ALLUVION_COMPAT_RMM_CCCL

/// A resource of the program's own, as CCCL has them, which several threads must not use at once.
struct own_resource {
    struct state {
        rmm::mr::cuda_memory_resource memory;
        int inside = 0;
        int most = 0;
        bool full = false;
    };
    std::shared_ptr<state> shared = std::make_shared<state>();

    void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t align) {
        shared->most = std::max(shared->most, ++shared->inside);
        void *block = nullptr;
        if (!shared->full) {
            block = shared->memory.allocate(stream, bytes, align);
        }
        --shared->inside;
        if (shared->full) {
            throw rmm::bad_alloc("mine is full");
        }
        return block;
    }
    void deallocate(cuda::stream_ref stream, void *block, std::size_t bytes, std::size_t align) noexcept {
        shared->memory.deallocate(stream, block, bytes, align);
    }
    void *allocate_sync(std::size_t bytes, std::size_t align) { return shared->memory.allocate_sync(bytes, align); }
    void deallocate_sync(void *block, std::size_t bytes, std::size_t align) noexcept {
        shared->memory.deallocate_sync(block, bytes, align);
    }
    friend bool operator==(own_resource const &first, own_resource const &second) { return first.shared == second.shared; }
    friend bool operator!=(own_resource const &first, own_resource const &second) { return first.shared != second.shared; }
    friend constexpr void get_property(own_resource const &, cuda::mr::device_accessible) noexcept {}
};

void own_resources() {
    test::sim sim;
    own_resource own;
    {
        rmm::device_uvector<int> vector(100, on_default, own);
        rmm::mr::statistics_resource_adaptor counted{own};
        EXPECT(counted.get_upstream_resource() == rmm::device_async_resource_ref{own});
        rmm::device_uvector<int> other(vector, on_default, counted);
        EXPECT(counted.get_bytes_counter().value == 400 && says(counted, "Callback"));
        auto before = rmm::mr::set_current_device_resource(own);
        EXPECT(rmm::mr::get_current_device_resource_ref() == rmm::device_async_resource_ref{own});
        rmm::device_buffer buffer(64, on_default);
        auto mine = rmm::mr::set_current_device_resource(before);
        EXPECT(rmm::device_async_resource_ref{mine} == rmm::device_async_resource_ref{own});
        own.shared->full = true;
        EXPECT(test::throws<rmm::bad_alloc>([&] { rmm::device_buffer more(64, on_default, own); }));
        EXPECT(test::throws<rmm::bad_alloc>([&] { static_cast<void>(counted.allocate(on_default, 64)); },
                                            [](auto const &thrown) { return test::contains(thrown.what(), "mine is full"); }));
        own.shared->full = false;
    }
    {
        rmm::mr::thread_safe_resource_adaptor one_by_one{own};
        std::vector<std::thread> threads;
        for (int thread = 0; thread < 4; ++thread) {
            threads.emplace_back([&one_by_one] {
                for (int round = 0; round < 100; ++round) {
                    void *block = one_by_one.allocate(on_default, 64);
                    one_by_one.deallocate(on_default, block, 64);
                }
            });
        }
        for (auto &thread : threads) {
            thread.join();
        }
        EXPECT(own.shared->most == 1);
    }
    // Layers over erased copies of ours stand on the handle itself, also over a reference to a layer.
    rmm::mr::pool_memory_resource pool{rmm::mr::cuda_memory_resource{}, 0};
    cuda::mr::any_resource<cuda::mr::device_accessible> erased{pool};
    rmm::mr::statistics_resource_adaptor counted{erased};
    EXPECT(says(counted, "> Pool("));
    rmm::mr::tracking_resource_adaptor tracked{rmm::device_async_resource_ref{counted}};
    EXPECT(says(tracked, "> Stats("));
    EXPECT(rmm::mr::thread_safe_resource_adaptor{counted}.describe() == counted.describe());
    cuda::mr::resource_ref<cuda::mr::device_accessible> ref = rmm::mr::get_current_device_resource_ref();
    void *block = ref.allocate(on_default, 64, 16);
    ref.deallocate(on_default, block, 64, 256);
}

#endif

} // namespace

int main() {
    sources();
    suballocators();
    dumps();
    another_device();
    bins();
    statistics();
    layers();
    logs();
    macros();
    handlers();
    callbacks();
    current();
    capabilities();
    current_by_threads();
    allocators();
#if ALLUVION_COMPAT_RMM_CCCL
    own_resources();
#endif
    return test::failures == 0 ? 0 : 1;
}
