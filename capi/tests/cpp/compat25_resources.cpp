// Are the resources of compat_25 what those of RMM 25.12 and before are? Objects that others point to, classes that the program derives,
// the current resource by its pointer, and containers over all of them, on a simulated machine.
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/device/aligned_resource_adaptor.hpp>
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/binning_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_managed_memory_resource.hpp>
#include <rmm/mr/device/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/device/fixed_size_memory_resource.hpp>
#include <rmm/mr/device/is_resource_adaptor.hpp>
#include <rmm/mr/device/limiting_resource_adaptor.hpp>
#include <rmm/mr/device/logging_resource_adaptor.hpp>
#include <rmm/mr/device/managed_memory_resource.hpp>
#include <rmm/mr/device/owning_wrapper.hpp>
#include <rmm/mr/device/polymorphic_allocator.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/prefetch_resource_adaptor.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#include <rmm/mr/device/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/device/tracking_resource_adaptor.hpp>
#include <rmm/mr/host/new_delete_resource.hpp>
#include <rmm/mr/host/pinned_memory_resource.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/version_config.hpp>

#include "expect.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace mr = rmm::mr;

static_assert(RMM_VERSION_MAJOR == 25);
static_assert(std::is_base_of_v<mr::device_memory_resource, mr::pool_memory_resource<mr::cuda_memory_resource>>);
static_assert(std::is_convertible_v<mr::cuda_memory_resource *, rmm::device_async_resource_ref>);
static_assert(std::is_convertible_v<mr::cuda_memory_resource &, rmm::device_async_resource_ref>);
static_assert(std::is_convertible_v<rmm::device_async_resource_ref, mr::device_memory_resource *>);
static_assert(!std::is_constructible_v<rmm::device_async_resource_ref, std::nullptr_t>);
static_assert(!std::is_copy_constructible_v<mr::pool_memory_resource<mr::cuda_memory_resource>>);

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr rmm::cuda_stream_view on_default{};

/// A resource of the program's, as RMM 0.20 had it derived: with all that was asked of one then.
class counting final : public mr::device_memory_resource {
public:
    [[nodiscard]] bool supports_streams() const noexcept override { return false; }
    [[nodiscard]] bool supports_get_mem_info() const noexcept override { return true; }
    int out = 0;
    int ever = 0;

private:
    void *do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
        if (bytes > 100 * mib) {
            throw rmm::out_of_memory("more than this resource has");
        }
        void *const block = below_.allocate(bytes, stream);
        ++out;
        ++ever;
        return block;
    }
    void do_deallocate(void *block, std::size_t bytes, rmm::cuda_stream_view stream) override {
        --out;
        below_.deallocate(block, bytes, stream);
    }
    [[nodiscard]] std::pair<std::size_t, std::size_t> do_get_mem_info(rmm::cuda_stream_view) const override { return {7, 8}; }

    mr::cuda_memory_resource below_;
};

void sources() {
    test::sim sim;
    mr::cuda_memory_resource cuda;
    mr::device_memory_resource *const base = &cuda;
    EXPECT(cuda == mr::cuda_memory_resource{} && base->is_equal(mr::cuda_memory_resource{}));
    EXPECT(base->supports_streams() && base->supports_get_mem_info());
    EXPECT(base->get_mem_info(on_default) == rmm::available_device_memory());
    void *block = base->allocate(1000);
    EXPECT(block != nullptr && rmm::is_pointer_aligned(block));
    base->deallocate(block, 1000);
    block = base->allocate(1000, on_default);
    base->deallocate(block, 1000, on_default);
    block = base->allocate_async(1000, 256, on_default);
    base->deallocate_async(block, 1000, 256, on_default);
    block = base->allocate(1000, std::size_t{64});
    base->deallocate(block, 1000, std::size_t{64});
    EXPECT(test::throws<rmm::bad_alloc>([&] { static_cast<void>(base->allocate_async(1000, 512, on_default)); }));
    EXPECT(test::throws<rmm::bad_alloc>([&] { static_cast<void>(base->allocate(~std::size_t{0} - 8)); }));
    mr::managed_memory_resource managed;
    mr::pinned_host_memory_resource pinned;
    mr::cuda_async_memory_resource pool_of_driver{mib, 2 * mib};
    mr::cuda_async_managed_memory_resource async_managed;
    for (mr::device_memory_resource *each :
         std::initializer_list<mr::device_memory_resource *>{&managed, &pinned, &pool_of_driver, &async_managed}) {
        void *const of_it = each->allocate(100, on_default);
        EXPECT(of_it != nullptr && !each->is_equal(cuda) && each->is_equal(*each));
        each->deallocate(of_it, 100, on_default);
    }
    EXPECT(test::contains(managed.handle().describe(), "Managed("));
}

template <class Layer>
void works(Layer &layer, mr::device_memory_resource *upstream) {
    EXPECT(layer.get_upstream_resource() == rmm::device_async_resource_ref{upstream});
    rmm::device_buffer buffer(1000, on_default, &layer);
    EXPECT(buffer.data() != nullptr && buffer.memory_resource() == &layer);
    rmm::device_buffer second(buffer, on_default, layer);
    EXPECT(second.size() == 1000);
}

void layers() {
    test::sim sim;
    mr::cuda_memory_resource cuda;
    mr::pool_memory_resource<mr::cuda_memory_resource> pool{&cuda};
    EXPECT(pool.pool_size() >= 256 * mib && pool.get_upstream() == &cuda);
    works(pool, &cuda);
    mr::pool_memory_resource sized{cuda, 1 << 20, 4 << 20};
    static_assert(std::is_same_v<decltype(sized), mr::pool_memory_resource<mr::cuda_memory_resource>>);
    EXPECT(sized.pool_size() == mib && sized != pool && sized == sized);
    EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(sized.allocate(8 * mib)); }));
    EXPECT(test::throws<rmm::logic_error>([&] { mr::pool_memory_resource odd(&cuda, 1000); }));
    EXPECT(test::throws<rmm::logic_error>([] {
        mr::pool_memory_resource<mr::cuda_memory_resource> over_nothing(static_cast<mr::cuda_memory_resource *>(nullptr), 0);
    }));
    mr::arena_memory_resource arena{&cuda, 32 * mib};
    works(arena, &cuda);
    mr::fixed_size_memory_resource fixed{&cuda, 4096, 2};
    EXPECT(fixed.get_block_size() == 4096);
    works(fixed, &cuda);
    mr::limiting_resource_adaptor limited{&cuda, mib};
    works(limited, &cuda);
    EXPECT(limited.get_allocation_limit() == mib && limited.get_allocated_bytes() == 0);
    EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(limited.allocate(2 * mib)); }));
    mr::aligned_resource_adaptor aligned{&pool, 4096};
    rmm::device_buffer far(100, on_default, &aligned);
    EXPECT(rmm::is_pointer_aligned(far.data(), 4096));
    mr::prefetch_resource_adaptor prefetch{&cuda};
    works(prefetch, &cuda);
    mr::thread_safe_resource_adaptor one_at_a_time{&pool};
    works(one_at_a_time, &pool);

    // Layers of one type over equal upstreams are equal, pools are not.
    mr::statistics_resource_adaptor<mr::cuda_memory_resource> counted{&cuda};
    mr::statistics_resource_adaptor<mr::cuda_memory_resource> others{&cuda};
    EXPECT(counted == others && counted != limited);
    {
        rmm::device_buffer buffer(1000, on_default, &counted);
        auto const before = counted.push_counters();
        EXPECT(before.first.value == 1000 && counted.get_bytes_counter().value == 0);
        EXPECT(counted.pop_counters().second.total == 0);
        EXPECT(counted.get_bytes_counter().peak == 1000 && counted.get_allocations_counter().value == 1);
    }
    EXPECT(counted.get_bytes_counter().value == 0);
    mr::tracking_resource_adaptor tracked{&cuda, true};
    {
        rmm::device_buffer buffer(1000, on_default, &tracked);
        EXPECT(tracked.get_allocated_bytes() == 1000 && tracked.get_outstanding_allocations().count(buffer.data()) == 1);
        EXPECT(test::contains(tracked.get_outstanding_allocations_str(), "1000 B"));
    }
    std::string const file = "compat25-log-" + std::to_string(reinterpret_cast<std::uintptr_t>(&cuda)) + ".csv";
    {
        auto log = mr::make_logging_adaptor(&cuda, file);
        rmm::device_buffer buffer(1000, on_default, &log);
        log.flush();
        std::string first;
        EXPECT(std::getline(std::ifstream(file), first) && first == log.header());
    }
    std::remove(file.c_str());
    mr::binning_memory_resource bins{&pool, 10, 12};
    bins.add_bin(mib);
    bins.add_bin(2 * mib, &fixed);
    bins.add_bin(3 * mib, nullptr);
    works(bins, &pool);
    int asked = 0;
    mr::failure_callback_resource_adaptor<mr::limiting_resource_adaptor<mr::cuda_memory_resource>> asks{
        &limited, [](std::size_t, void *count) { return ++*static_cast<int *>(count) < 3; }, &asked};
    rmm::device_buffer half(mib / 2, on_default, &asks);
    EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(asks.allocate(mib / 4 * 3)); }) && asked == 3);
}

void of_the_program() {
    test::sim sim;
    counting mine;
    {
        rmm::device_buffer buffer(1000, on_default, &mine);
        rmm::device_uvector<int> numbers{100, on_default, &mine};
        rmm::device_scalar<int> value{on_default, &mine};
        value.set_value(42, on_default);
        EXPECT(value.value(on_default) == 42 && mine.out == 3);
        mr::device_memory_resource *const same = numbers.memory_resource();
        EXPECT(same == &mine && numbers.memory_resource()->supports_get_mem_info());
        EXPECT(same->get_mem_info(on_default) == std::make_pair(std::size_t{7}, std::size_t{8}));
        buffer.resize(3000, on_default);
        EXPECT(mine.out == 3 && mine.ever == 4);
    }
    EXPECT(mine.out == 0);
    {
        // Below our layers, and what it throws comes out.
        mr::pool_memory_resource<counting> pool{&mine, 0};
        mr::statistics_resource_adaptor counted{&pool};
        rmm::device_buffer buffer(1000, on_default, &counted);
        EXPECT(mine.out == 1 && pool.get_upstream() == &mine);
        EXPECT(test::throws<rmm::out_of_memory>([&] { static_cast<void>(counted.allocate(200 * mib)); }));
    }
    EXPECT(mine.out == 0);
    // What derives from nothing, and is called as CCCL called resources then.
    struct concept_of_cccl {
        counting *to;
        void *allocate(std::size_t bytes, std::size_t) { return to->allocate(bytes); }
        void deallocate(void *block, std::size_t bytes, std::size_t) { to->deallocate(block, bytes); }
        void *allocate_async(std::size_t bytes, std::size_t, rmm::cuda_stream_view stream) { return to->allocate(bytes, stream); }
        void deallocate_async(void *block, std::size_t bytes, std::size_t, rmm::cuda_stream_view stream) {
            to->deallocate(block, bytes, stream);
        }
        bool operator==(concept_of_cccl const &other) const { return to == other.to; }
    };
    concept_of_cccl first{&mine}, second{&mine};
    EXPECT(rmm::device_async_resource_ref(first) == rmm::device_async_resource_ref(&second));
    {
        rmm::device_buffer buffer(1000, on_default, first);
        EXPECT(mine.out == 1);
    }
    EXPECT(mine.out == 0);
}

void current() {
    test::sim sim(2);
    mr::device_memory_resource *const initial = mr::get_current_device_resource();
    EXPECT(initial == mr::get_current_device_resource() && !initial->is_equal(counting{}));
    mr::cuda_memory_resource cuda;
    {
        mr::pool_memory_resource<mr::cuda_memory_resource> pool{&cuda, mib};
        EXPECT(mr::set_current_device_resource(&pool) == initial && mr::get_current_device_resource() == &pool);
        EXPECT(mr::get_per_device_resource(rmm::cuda_device_id{0}) == &pool);
        EXPECT(mr::get_per_device_resource(rmm::cuda_device_id{1}) != &pool);
        rmm::device_buffer buffer(1000, on_default);
        EXPECT(buffer.memory_resource() == &pool);
        EXPECT(test::contains(alluvion::resource::current().describe(), "Pool"));
        EXPECT(mr::set_current_device_resource(initial) == &pool && mr::get_current_device_resource() == initial);
        EXPECT(mr::set_current_device_resource_ref(pool) == initial);
        EXPECT(mr::set_current_device_resource(nullptr) == &pool && mr::get_current_device_resource() == initial);
    }
    // Without a state it allocates on the current device, also below a layer.
    std::vector<std::unique_ptr<mr::pool_memory_resource<mr::cuda_memory_resource>>> pools;
    for (int number = 0; number < rmm::get_num_cuda_devices(); ++number) {
        rmm::cuda_set_device_raii const there(rmm::cuda_device_id{number});
        pools.push_back(std::make_unique<mr::pool_memory_resource<mr::cuda_memory_resource>>(&cuda, mib));
        int32_t device = -1;
        EXPECT(alv_resource_device(pools.back()->handle().native_handle(), &device) == ALV_OK && device == number);
    }
    counting mine;
    EXPECT(mr::set_per_device_resource(rmm::cuda_device_id{1}, &mine) != &mine);
    {
        rmm::cuda_set_device_raii const there(rmm::cuda_device_id{1});
        rmm::device_buffer buffer(1000, on_default);
        EXPECT(mine.out == 1 && mr::get_current_device_resource() == &mine);
    }
    EXPECT(mr::reset_per_device_resource(rmm::cuda_device_id{1}) == &mine && mine.out == 0);
    // What C has set has a pointer, which stays the same.
    auto const before = alluvion::set_current_resource(alluvion::resource("stats | cuda"));
    mr::device_memory_resource *const of_c = mr::get_current_device_resource();
    EXPECT(of_c != initial && of_c == mr::get_current_device_resource());
    {
        rmm::device_buffer buffer(1000, on_default);
        EXPECT(alluvion::resource::current().stats()->bytes.value == 1000);
    }
    alluvion::set_current_resource(before);
    EXPECT(mr::get_current_device_resource() == initial && mr::set_current_device_resource(of_c) == initial);
    EXPECT(mr::reset_current_device_resource() == of_c);
}

void kept() {
    test::sim sim;
    // Blocks of a resource of ours go back also after its object has gone.
    std::optional<rmm::device_buffer> buffer;
    {
        mr::cuda_memory_resource cuda;
        mr::pool_memory_resource<mr::cuda_memory_resource> pool{&cuda, mib};
        buffer.emplace(1000, on_default, &pool);
    }
    buffer.reset();
    auto wrapped = mr::make_owning_wrapper<mr::pool_memory_resource>(std::make_shared<mr::cuda_memory_resource>(), mib);
    auto both = mr::make_owning_wrapper<mr::statistics_resource_adaptor>(std::make_tuple(wrapped));
    void *const block = both->allocate(1000);
    EXPECT(both->wrapped().get_bytes_counter().value == 1000 && wrapped->wrapped().pool_size() == mib);
    both->deallocate(block, 1000);
    EXPECT(both->is_equal(*both));
}

/// What goes too early, and what must not matter then.
void what_goes_first() {
    test::sim sim(2);
    // A handle is kept, also one that is no temporary, and one that a resource has.
    std::optional<rmm::device_buffer> buffer;
    std::optional<mr::statistics_resource_adaptor<mr::device_memory_resource>> counted;
    {
        alluvion::resource handle("stats | cuda");
        buffer.emplace(1000, on_default, handle);
        counted.emplace(handle);
        mr::cuda_memory_resource cuda;
        mr::pool_memory_resource pool{&cuda, mib};
        rmm::device_async_resource_ref const same{pool.handle()};
        EXPECT(same.native_handle() != nullptr);
    }
    rmm::device_buffer other(100, on_default, &*counted);
    buffer.reset();
    // A pointer to what nobody else has is one to set again.
    mr::set_current_device_resource_ref(alluvion::resource("stats | cuda"));
    mr::cuda_memory_resource cuda;
    mr::device_memory_resource *const before = mr::set_current_device_resource(&cuda);
    EXPECT(mr::set_current_device_resource(before) == &cuda && mr::get_current_device_resource() == before);
    EXPECT(mr::reset_current_device_resource() == before);
    // A pool that is current gives its memory back when it goes, and not to an upstream that has gone.
    mr::device_memory_resource *const first = mr::get_current_device_resource();
    counting mine;
    {
        mr::pool_memory_resource<counting> pool{&mine, mib};
        mr::set_current_device_resource(&pool);
        rmm::device_buffer of_it(1000, on_default);
        EXPECT(mine.out == 1);
    }
    EXPECT(mine.out == 0 && mr::get_current_device_resource() == first);
    // A reference means the device that is current where it is used.
    rmm::device_async_resource_ref const everywhere{cuda};
    rmm::cuda_set_device_raii const there(rmm::cuda_device_id{1});
    rmm::device_buffer on_second(1000, on_default, everywhere);
    rmm::device_buffer beside(1000, on_default, &cuda);
    EXPECT(cuda.handle().device() == 1 && on_second.memory_resource().native_handle() == beside.memory_resource().native_handle());
}

/// What a class does that its handle does not, and what a reference can.
void more_than_a_handle() {
    test::sim sim;
    mr::cuda_memory_resource cuda;
    int asked = 0;
    auto const ask = [](std::size_t, void *count) { return ++*static_cast<int *>(count) % 2 == 1; };
    mr::callback_memory_resource refuses([](std::size_t, rmm::cuda_stream_view, void *) -> void * { throw rmm::bad_alloc("no"); },
                                         [](void *, std::size_t, rmm::cuda_stream_view, void *) {});
    mr::failure_callback_resource_adaptor<mr::callback_memory_resource, rmm::bad_alloc> asks{&refuses, ask, &asked};
    EXPECT(test::throws<rmm::bad_alloc>([&] { rmm::device_buffer none(100, on_default, &asks); }) && asked == 2);
    mr::statistics_resource_adaptor above{&asks};
    EXPECT(test::throws<rmm::bad_alloc>([&] { static_cast<void>(above.allocate(100)); }) && asked == 4);

    rmm::device_uvector<int> const constant(10, on_default, &cuda);
    rmm::device_uvector<int> const copy(constant, on_default, constant.memory_resource());
    EXPECT(copy.memory_resource() == &cuda);
    rmm::device_async_resource_ref reference{cuda};
    mr::binning_memory_resource<mr::cuda_memory_resource> bins{&cuda};
    bins.add_bin(mib, reference);
    rmm::device_async_resource_ref const moved = std::move(reference);
    void *const block = reference.allocate_sync(100);
    reference.deallocate_sync(block, 100);
    EXPECT(moved == reference);
    mr::pool_memory_resource pool{&cuda, mib};
    mr::statistics_resource_adaptor counted{&pool};
    EXPECT(counted.supports_get_mem_info() && counted.get_mem_info(on_default) == cuda.get_mem_info(on_default));
    std::vector<mr::statistics_resource_adaptor<mr::pool_memory_resource<mr::cuda_memory_resource>>> several;
    several.emplace_back(&pool);
    several.emplace_back(&pool);
    EXPECT(several.back() == counted && !mr::is_resource_adaptor<mr::cuda_memory_resource> &&
           mr::is_resource_adaptor<mr::pool_memory_resource<mr::cuda_memory_resource>>);
}

void allocators_and_host() {
    test::sim sim;
    rmm::cuda_stream stream;
    mr::polymorphic_allocator<int> alloc;
    auto adapted = mr::make_stream_allocator_adaptor(alloc, stream.view());
    int *const numbers = adapted.allocate(100);
    EXPECT(numbers != nullptr);
    adapted.deallocate(numbers, 100);
    counting mine;
    mr::polymorphic_allocator<int> over_mine{&mine};
    int *const others = over_mine.allocate(10, stream);
    EXPECT(mine.out == 1);
    over_mine.deallocate(others, 10, stream);

    mr::new_delete_resource ordinary;
    mr::pinned_memory_resource pinned;
    for (mr::host_memory_resource *each : std::initializer_list<mr::host_memory_resource *>{&ordinary, &pinned}) {
        for (std::size_t const alignment : {std::size_t{8}, std::size_t{64}, std::size_t{256}}) {
            auto *const text = static_cast<char *>(each->allocate(100, alignment));
            EXPECT(rmm::is_pointer_aligned(text, alignment));
            text[99] = 'x';
            each->deallocate(text, 100, alignment);
        }
        each->deallocate(each->allocate(100), 100);
    }
    EXPECT(ordinary == mr::new_delete_resource{} && ordinary != pinned);
    mr::callback_memory_resource called([&](std::size_t bytes, rmm::cuda_stream_view on, void *) { return mine.allocate(bytes, on); },
                                        [&](void *block, std::size_t bytes, rmm::cuda_stream_view on, void *) {
                                            mine.deallocate(block, bytes, on);
                                        });
    rmm::device_buffer buffer(1000, stream, &called);
    EXPECT(mine.out == 1);
}

void debug_log() {
    test::sim sim;
    std::string const file = "compat25-debug-" + std::to_string(reinterpret_cast<std::uintptr_t>(&sim)) + ".txt";
    setenv("RMM_DEBUG_LOG_FILE", file.c_str(), 1);
    auto const text = [&] {
        std::ifstream in(file);
        return std::string(std::istreambuf_iterator<char>(in), {});
    };
    mr::cuda_memory_resource cuda;
    mr::pool_memory_resource pool{&cuda, 0, 16 * mib};
    EXPECT(rmm::logger().level() == rmm::level_enum::info && !rmm::logger().should_log(spdlog::level::debug));
    { rmm::device_buffer grown(1000, on_default, &pool); }
    EXPECT(text().empty());
    rmm::logger().set_level(spdlog::level::trace);
    mr::pool_memory_resource second{&cuda, 0, 16 * mib};
    { rmm::device_buffer grown(8 * mib, on_default, &second); }
    EXPECT(test::contains(text(), "[debug   ] growth by ") && test::contains(text(), "for a request of 8388608 B"));
    static_cast<void>(test::throws<rmm::out_of_memory>([&] { rmm::device_buffer much(32 * mib, on_default, &pool); }));
    EXPECT(test::contains(text(), "[error   ] a request of 33554432 B failed: std::bad_alloc: out_of_memory: "));
    auto const before = text();
    rmm::default_logger().set_level(rmm::level_enum::off);
    static_cast<void>(test::throws<rmm::out_of_memory>([&] { static_cast<void>(pool.allocate(32 * mib)); }));
    rmm::default_logger().critical("of the program");
    EXPECT(text() == before);
    rmm::default_logger().set_level(rmm::level_enum::warn);
    rmm::default_logger().warn("of the program");
    EXPECT(test::contains(text(), "[warn    ] of the program\n"));
    rmm::default_logger().set_level(rmm::level_enum::off);
    std::remove(file.c_str());
}

} // namespace

int main() {
    // First: the file is opened at the first line, and requests fail in what follows.
    debug_log();
    sources();
    layers();
    of_the_program();
    current();
    kept();
    what_goes_first();
    more_than_a_handle();
    allocators_and_host();
    return test::failures == 0 ? 0 : 1;
}
