// Which stream, which device, and who keeps them?
#include <alluvion.hpp>

#include "expect.hpp"

#include <memory>
#include <set>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using alluvion::device_id;
using alluvion::resource;
using alluvion::stream_view;

static_assert(sizeof(stream_view) == sizeof(void *) && std::is_trivially_copyable_v<stream_view>);
static_assert(!std::is_convertible_v<int, stream_view> && !std::is_constructible_v<stream_view, int>);
static_assert(!std::is_constructible_v<stream_view, std::nullptr_t> && !std::is_constructible_v<stream_view, void *>);
static_assert(!std::is_constructible_v<stream_view, long> && !std::is_constructible_v<stream_view, bool>);
static_assert(std::is_convertible_v<alv_cuda_stream, stream_view> && std::is_convertible_v<stream_view, alv_cuda_stream>);
static_assert(std::is_nothrow_move_constructible_v<alluvion::stream> && !std::is_copy_constructible_v<alluvion::stream>);
static_assert(!std::is_convertible_v<device_id, alluvion::stream>);

namespace {

/// A type of another library, which converts to a handle.
struct foreign_view {
    alv_cuda_stream handle;
    operator alv_cuda_stream() const noexcept { return handle; }
};
static_assert(std::is_nothrow_constructible_v<stream_view, foreign_view>);

void views() {
    test::sim sim;
    stream_view none;
    EXPECT(none.is_default() && !none.is_per_thread_default() && none.value() == nullptr && none.get() == nullptr);
    EXPECT(stream_view::legacy().is_default() && stream_view::legacy() != none);
    EXPECT(stream_view::per_thread().is_per_thread_default() && !stream_view::per_thread().is_default());
    none.synchronize();
    stream_view::legacy().sync();
    stream_view::per_thread().synchronize();

    alluvion::stream stream;
    stream_view view = stream;
    EXPECT(view == stream.view() && view.value() == stream.get() && !view.is_default() && view != none);
    EXPECT(stream_view(foreign_view{view}) == view);
    view.synchronize();
    sim.fail("cuStreamSynchronize", 1, 999);
    EXPECT(!view.synchronize_no_throw() && view.synchronize_no_throw());
    sim.fail("cuStreamSynchronize", 1, 999);
    EXPECT(test::throws<alluvion::error>([&] { stream.synchronize(); },
                                         [](auto const &thrown) { return thrown.cuda_code() == 999; }));
}

void owned() {
    test::sim sim;
    alluvion::stream stream;
    alv_cuda_stream const raw = stream.value();
    alluvion::stream moved(std::move(stream));
    EXPECT(!stream.is_valid() && moved.is_valid() && moved.value() == raw);
    resource pool("stats | pool | cuda-async");
    EXPECT(test::throws<alluvion::error>([&] { static_cast<void>(pool.allocate(stream, 8)); }));
    EXPECT(test::throws<alluvion::error>([&] { stream.synchronize(); }));
    stream = std::move(moved);
    EXPECT(stream.is_valid() && stream.value() == raw);

    // Wrapped with and without an owner, which goes once nothing needs the stream.
    auto owner = std::make_shared<int>(1);
    {
        alluvion::stream wrapped = alluvion::stream::wrap(stream);
        alluvion::stream kept = alluvion::stream::wrap_owned(stream, owner);
        EXPECT(owner.use_count() == 2 && wrapped.value() == raw && kept.value() == raw);
        void *block = pool.allocate(kept, 100);
        pool.deallocate(wrapped, block, 100);
        block = pool.allocate(wrapped, 100);
        pool.deallocate(kept, block, 100);
        static_cast<void>(pool.trim());
    }
    stream.synchronize();
    static_cast<void>(pool.trim());
    EXPECT(test::throws<alluvion::error>([&] { static_cast<void>(alluvion::stream::wrap_owned(stream_view{}, owner)); }));
    alluvion::stream adopted = alluvion::stream::adopt(alv_stream_retain(stream.native_handle()));
    EXPECT(adopted.value() == raw);
    alluvion::stream of_the_device = alluvion::stream::wrap(stream_view{});
    EXPECT(of_the_device.view().is_default());
}

void owner_goes_with_the_machine() {
    auto owner = std::make_shared<int>(1);
    {
        test::sim sim;
        alluvion::stream stream;
        { alluvion::stream kept = alluvion::stream::wrap_owned(stream, owner); }
        stream.synchronize();
    }
    EXPECT(owner.use_count() == 1);
}

void devices() {
    test::sim sim(3);
    EXPECT(device_id::count() == 3 && device_id::current() == 0);
    device_id(2).make_current();
    EXPECT(device_id::current().value() == 2);
    resource pool("pool | cuda-async");
    EXPECT(pool.device() == 2);
    alluvion::stream of_first(0), of_last;
    // It finds its device, whichever is current.
    of_first.view().synchronize();
    of_last.view().synchronize();
    EXPECT(test::throws<alluvion::error>([&] { static_cast<void>(pool.allocate(of_first.view(), 8)); },
                                         [](auto const &thrown) { return thrown.status() == ALV_DEVICE_MISMATCH; }));
    EXPECT(test::throws<alluvion::error>([&] { static_cast<void>(pool.allocate(of_first, 8)); },
                                         [](auto const &thrown) { return thrown.status() == ALV_DEVICE_MISMATCH; }));
    EXPECT(test::throws<alluvion::error>([] { device_id(7).make_current(); }));
    EXPECT(test::throws<alluvion::error>([] { device_id().make_current(); }));
    EXPECT(test::throws<alluvion::error>([] { alluvion::stream none(7); }));
    EXPECT(device_id::current() == 2);
    device_id(0).make_current();
}

void pools() {
    test::sim sim;
    alluvion::stream_pool const pool(4);
    EXPECT(pool.get_pool_size() == 4);
    std::set<alv_cuda_stream> seen;
    for (int turn = 0; turn < 8; ++turn) {
        seen.insert(pool.get_stream().value());
    }
    EXPECT(seen.size() == 4);
    EXPECT(pool.get_stream(1) == pool.get_stream(5) && pool.get_stream(1) != pool.get_stream(2));
    EXPECT(test::throws<alluvion::error>([] { alluvion::stream_pool none(0); }));
    EXPECT(alluvion::stream_pool().get_pool_size() == alluvion::stream_pool::default_size);
}

/// The stream of a thread is that of the thread that calls.
void per_thread() {
    test::sim sim;
    resource pool("stats | pool | cuda-async");
    std::vector<std::thread> threads;
    for (int number = 0; number < 3; ++number) {
        threads.emplace_back([&] {
            void *block = pool.allocate(stream_view::per_thread(), 100);
            pool.fill(block, 1, 100, stream_view::per_thread());
            pool.deallocate(stream_view::per_thread(), block, 100);
            stream_view::per_thread().synchronize();
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT(pool.stats()->allocations.total == 3 && pool.stats()->allocations.value == 0);
}

} // namespace

int main() {
    views();
    owned();
    owner_goes_with_the_machine();
    devices();
    pools();
    per_thread();
    return test::failures == 0 ? 0 : 1;
}
