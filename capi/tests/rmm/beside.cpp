// Does the RMM that a program is compiled with work on our handle, and do our layers work on its resources? RMM's own containers
// and current resource over memory of a simulated machine: copies and streams of RMM's need a GPU, and are in tests/gpu.
#include <alluvion/rmm.hpp>

#include "../cpp/expect.hpp"

#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#if __has_include(<rmm/mr/per_device_resource.hpp>)
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#else
#include <rmm/mr/device/per_device_resource.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#endif

#include <cstddef>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

// Both ways, and by nobody's mistake from another type.
static_assert(std::is_convertible_v<alluvion::resource, alluvion::rmm::resource>);
static_assert(std::is_convertible_v<alluvion::rmm::resource, alluvion::resource>);
static_assert(!std::is_convertible_v<char const *, alluvion::rmm::resource>);
static_assert(sizeof(alluvion::rmm::resource) == sizeof(void *));
// As RMM's calls do, and those of the handle without RMM do not.
static_assert(alluvion::detail::ensures_context<alluvion::rmm::errors>);
static_assert(!alluvion::detail::ensures_context<alluvion::default_errors>);

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

cuda::stream_ref default_stream() { return cuda::stream_ref{cudaStream_t{nullptr}}; }

std::int64_t out(alluvion::rmm::resource const &resource) { return resource.stats()->bytes.value; }

void exceptions() {
    test::sim sim;
    alluvion::rmm::resource limited("limiting(1MiB) | pool | cuda-async");
    EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(limited.allocate(default_stream(), 2 * mib)); },
                                            [](auto const &thrown) { return test::contains(thrown.what(), "out_of_memory"); }));
    EXPECT(test::throws<std::bad_alloc>([&] { static_cast<void>(limited.allocate_sync(2 * mib)); }));
    bool plain = false;
    try {
        static_cast<void>(limited.allocate(default_stream(), ~std::size_t{0}));
    } catch (rmm::out_of_memory const &) {
    } catch (rmm::bad_alloc const &) {
        plain = true;
    }
    EXPECT(plain);
    EXPECT(test::throws<alluvion::rmm::error_types::invalid_argument>([] { alluvion::rmm::resource wrong("pol"); }));
    EXPECT(test::throws<rmm::logic_error>([&] { static_cast<void>(limited.push_stats()); }));
    EXPECT(test::throws<rmm::cuda_error>([] { alluvion::rmm::resource none("cuda", 7); }));
}

void containers() {
    test::sim sim;
    alluvion::rmm::resource pool("stats | limiting(1MiB) | pool | cuda-async");
    {
        rmm::device_buffer buffer(1000, default_stream(), pool);
        EXPECT(out(pool) == 1000);
        rmm::device_async_resource_ref ref{pool};
        rmm::device_uvector<int> vector(1000, default_stream(), ref);
        EXPECT(out(pool) == 5000);
        EXPECT(test::throws<rmm::out_of_memory>([&] { rmm::device_uvector<double> much(mib, default_stream(), pool); }));
        rmm::device_uvector<int> moved(std::move(vector));
        EXPECT(out(pool) == 5000 && moved.size() == 1000);
    }
    EXPECT(out(pool) == 0);
}

void current() {
    test::sim sim;
    alluvion::rmm::resource pool("stats | pool | cuda-async");
#if ALLUVION_RMM_HAS_BASE_CLASS
    alluvion::rmm::device_memory_resource installed(pool);
    auto *const before = rmm::mr::set_current_device_resource(&installed);
    EXPECT(rmm::mr::get_current_device_resource() == &installed);
    EXPECT(installed.is_equal(alluvion::rmm::device_memory_resource(pool)));
    EXPECT(!installed.is_equal(alluvion::rmm::device_memory_resource(alluvion::rmm::resource("cuda"))));
#else
    auto before = rmm::mr::set_current_device_resource(pool);
    EXPECT(rmm::mr::get_current_device_resource_ref() == rmm::device_async_resource_ref{pool});
#endif
    {
        // Old ones round sizes up.
        rmm::device_uvector<int> vector(64, default_stream());
        EXPECT(out(pool) == 256);
    }
    EXPECT(out(pool) == 0);
    static_cast<void>(rmm::mr::set_current_device_resource(before));
}

void theirs_below() {
    test::sim sim;
    alluvion::rmm::resource memory("stats | limiting(1MiB) | pool | cuda-async");
    {
        rmm::device_async_resource_ref const theirs{memory};
        auto layers = alluvion::rmm::resource::over("stats | tracking", alluvion::rmm::from_rmm(theirs));
        void *const block = layers.allocate(default_stream(), 512);
        EXPECT(out(layers) == 512 && out(memory) == 512);
        layers.deallocate(default_stream(), block, 512);
        EXPECT(out(layers) == 0 && out(memory) == 0);
        EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(layers.allocate(default_stream(), 2 * mib)); }));
        // Who can free memory is asked about what RMM's resource cannot give.
        int asked = 0;
        auto const helped = layers.with_oom_handler([&asked](alluvion::oom_report const &) { return ++asked < 2; });
        EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(helped.allocate(default_stream(), 2 * mib)); }));
        EXPECT(asked == 2);
        // The exceptions of another policy, over the same.
        alluvion::resource ours(layers);
        EXPECT(ours == layers && test::throws<alluvion::out_of_memory>([&] { static_cast<void>(ours.allocate_sync(2 * mib)); }));
    }
#if !ALLUVION_RMM_HAS_BASE_CLASS
    {
        // What is thrown below comes out as it is.
        rmm::mr::callback_memory_resource refusing([](std::size_t, cuda::stream_ref, void *) -> void * { throw rmm::bad_alloc("mine"); },
                                                   [](void *, std::size_t, cuda::stream_ref, void *) {});
        auto layers = alluvion::rmm::resource::over("stats", alluvion::rmm::from_rmm(refusing));
        EXPECT(test::throws<rmm::bad_alloc>([&] { static_cast<void>(layers.allocate(default_stream(), 512)); },
                                            [](auto const &thrown) { return std::string(thrown.what()) == "std::bad_alloc: mine"; }));
    }
    {
        // What owns its resource keeps it below the layers.
        auto layers = alluvion::rmm::resource::over(
            "stats", alluvion::rmm::from_rmm(rmm::mr::statistics_resource_adaptor{rmm::device_async_resource_ref{memory}}));
        rmm::device_buffer buffer(100, default_stream(), layers);
        EXPECT(out(layers) == 100 && out(memory) == 100);
    }
#endif
    EXPECT(out(memory) == 0);
}

} // namespace

int main() {
    exceptions();
    containers();
    current();
    theirs_below();
    return test::failures == 0 ? 0 : 1;
}
