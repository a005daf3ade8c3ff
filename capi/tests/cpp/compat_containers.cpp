// Does a program of RMM's headers run without RMM? Streams, buffers, vectors and scalars, on a simulated machine, as programs
// write them that know RMM alone.
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/resource_ref.hpp>
#include <rmm/version_config.hpp>

#include "expect.hpp"

#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

// What must not compile.
static_assert(!std::is_convertible_v<int, rmm::cuda_stream_view> && !std::is_constructible_v<rmm::cuda_stream_view, int>);
static_assert(!std::is_constructible_v<rmm::cuda_stream_view, std::nullptr_t>);
static_assert(!std::is_copy_constructible_v<rmm::device_buffer> && !std::is_copy_assignable_v<rmm::device_buffer>);
static_assert(!std::is_copy_constructible_v<rmm::device_uvector<int>>);
static_assert(!std::is_default_constructible_v<rmm::device_uvector<int>>);
static_assert(!std::is_constructible_v<rmm::device_scalar<int>, int, rmm::cuda_stream_view>);
static_assert(std::is_constructible_v<rmm::device_scalar<int>, int const &, rmm::cuda_stream_view>);
static_assert(!std::is_copy_constructible_v<rmm::cuda_stream>);
// What must be cheap and safe to keep in containers of the standard library.
static_assert(std::is_nothrow_move_constructible_v<rmm::device_buffer> && std::is_nothrow_move_assignable_v<rmm::device_buffer>);
static_assert(std::is_nothrow_move_constructible_v<rmm::device_uvector<double>>);
static_assert(std::is_nothrow_move_assignable_v<rmm::device_uvector<double>>);
static_assert(std::is_nothrow_move_constructible_v<rmm::device_scalar<double>>);
static_assert(std::is_base_of_v<rmm::bad_alloc, rmm::out_of_memory> && std::is_base_of_v<std::bad_alloc, rmm::bad_alloc>);
static_assert(std::is_base_of_v<std::logic_error, rmm::logic_error> && std::is_base_of_v<std::runtime_error, rmm::cuda_error>);

namespace library {

// A function as libraries over RMM write them.
rmm::device_uvector<int> counting(std::size_t size, int first, rmm::cuda_stream_view stream = rmm::cuda_stream_default,
                                  rmm::device_async_resource_ref mr = rmm::mr::get_current_device_resource_ref()) {
    std::vector<int> values(size);
    std::iota(values.begin(), values.end(), first);
    rmm::device_buffer bytes(values.data(), size * sizeof(int), stream, mr);
    rmm::device_uvector<int> made(size, stream, mr);
    for (std::size_t index = 0; index < size; ++index) {
        made.set_element_async(index, values[index], stream);
    }
    stream.synchronize();
    return made;
}

std::unique_ptr<rmm::device_buffer> contents(rmm::device_uvector<int> vector) {
    return std::make_unique<rmm::device_buffer>(vector.release());
}

} // namespace library

namespace {

std::vector<int> to_host(rmm::device_uvector<int> const &vector, rmm::cuda_stream_view stream) {
    std::vector<int> values;
    for (std::size_t index = 0; index < vector.size(); ++index) {
        values.push_back(vector.element(index, stream));
    }
    return values;
}

void streams() {
    test::sim sim;
    rmm::cuda_stream_view const view;
    EXPECT(view.value() == nullptr && view == rmm::cuda_stream_default);
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
    EXPECT(view.is_per_thread_default() && !view.is_default());
#else
    EXPECT(view.is_default() && !view.is_per_thread_default());
#endif
    EXPECT(rmm::cuda_stream_legacy.is_default() && rmm::cuda_stream_per_thread.is_per_thread_default());
    EXPECT(rmm::cuda_stream_legacy != rmm::cuda_stream_per_thread);
    view.synchronize();
    view.sync();
    view.synchronize_no_throw();
    std::ostringstream said;
    said << rmm::cuda_stream_per_thread;
    EXPECT(said.str() == "0x2");

    rmm::cuda_stream first;
    rmm::cuda_stream second(rmm::cuda_stream::flags::non_blocking);
    EXPECT(first.is_valid() && second.is_valid() && first.value() != second.value());
    EXPECT(first.view().value() == first.value() && static_cast<alv_cuda_stream>(second) == second.value());
    rmm::cuda_stream moved(std::move(first));
    EXPECT(moved.is_valid() && !first.is_valid());
    first = std::move(moved);
    first.synchronize();
    first.synchronize_no_throw();

    rmm::cuda_stream_pool pool(3);
    EXPECT(pool.get_pool_size() == 3 && rmm::cuda_stream_pool::default_size == 16);
    rmm::cuda_stream_view const one = pool.get_stream();
    EXPECT(pool.get_stream() != one);
    EXPECT(pool.get_stream(1) == pool.get_stream(4) && pool.get_stream(1) != pool.get_stream(2));
    EXPECT(test::throws<rmm::logic_error>([] { rmm::cuda_stream_pool none(0); }));
    sim.fail("cuStreamSynchronize", 0, 1);
    EXPECT(test::throws<rmm::cuda_error>([&] { pool.get_stream().synchronize(); }));
    alv_sim_clear_faults(sim.handle());
}

// A stream that waits for the legacy default stream needs no event to read what that one wrote.
void waiting_streams() {
    for (bool const waits : {true, false}) {
        test::sim sim;
        rmm::cuda_stream stream(waits ? rmm::cuda_stream::flags::sync_default : rmm::cuda_stream::flags::non_blocking);
        rmm::device_buffer buffer(64, rmm::cuda_stream_legacy);
        rmm::detail::fill(rmm::cuda_device_id{0}, buffer.data(), 1, 64, rmm::cuda_stream_legacy);
        std::vector<unsigned char> host(64);
        rmm::detail::copy(rmm::cuda_device_id{0}, host.data(), buffer.data(), 64, stream);
        stream.synchronize();
        rmm::cuda_stream_legacy.synchronize();
        std::string const said = sim.report();
        EXPECT(test::contains(said, "race: ") != waits);
    }
}

void buffers() {
    test::sim sim;
    rmm::cuda_stream stream;
    rmm::device_buffer empty;
    EXPECT(empty.is_empty() && empty.data() == nullptr && empty.size() == 0 && empty.capacity() == 0 && empty.ssize() == 0);
    rmm::device_buffer none(0, stream);
    EXPECT(none.data() == nullptr && none.stream() == stream.view());

    std::vector<unsigned char> bytes(1000);
    std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
    rmm::device_buffer buffer(bytes.data(), bytes.size(), stream);
    EXPECT(buffer.size() == 1000 && buffer.capacity() == 1000 && buffer.alignment() == 256);
    EXPECT(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256 == 0);
    rmm::device_buffer copy(buffer, stream);
    EXPECT(copy.data() != buffer.data() && copy.size() == 1000);
    auto const host = [&](rmm::device_buffer const &from) {
        std::vector<unsigned char> back(from.size());
        rmm::detail::copy(rmm::cuda_device_id{0}, back.data(), from.data(), back.size(), stream);
        stream.synchronize();
        return back;
    };
    EXPECT(host(copy) == bytes);

    void const *const before = copy.data();
    copy.resize(10, stream);
    EXPECT(copy.size() == 10 && copy.capacity() == 1000 && copy.data() == before);
    copy.reserve(500, stream);
    EXPECT(copy.data() == before);
    copy.shrink_to_fit(stream);
    std::vector<unsigned char> const first_ten(bytes.begin(), bytes.begin() + 10);
    EXPECT(copy.capacity() == 10 && copy.data() != before && host(copy) == first_ten);
    copy.resize(4000, stream);
    EXPECT(copy.size() == 4000 && copy.capacity() == 4000);
    copy.reserve(8000, stream);
    EXPECT(copy.size() == 4000 && copy.capacity() == 8000);
    copy.resize(10, stream);
    EXPECT(host(copy) == first_ten);
    // A copy has what is in it, and not its spare room.
    EXPECT((rmm::device_buffer{copy, stream}.capacity() == 10));

    rmm::device_buffer moved(std::move(copy));
    EXPECT(moved.size() == 10 && copy.is_empty() && copy.data() == nullptr && copy.capacity() == 0);
    EXPECT(copy.stream() == rmm::cuda_stream_default);
    // It is empty, on the same resource.
    EXPECT(copy.memory_resource() == moved.memory_resource() && copy.alignment() == moved.alignment());
    copy.resize(1, stream);
    EXPECT(copy.size() == 1 && copy.data() != nullptr);
    copy = std::move(moved);
    EXPECT(copy.size() == 10);
    rmm::device_buffer &self = copy;
    copy = std::move(self);
    EXPECT(copy.size() == 10);

    EXPECT(test::throws<rmm::logic_error>([&] { rmm::device_buffer(nullptr, 8, stream); }));
    EXPECT((rmm::device_buffer{nullptr, 0, stream}.is_empty()));
    EXPECT(test::throws<rmm::invalid_argument>([&] { rmm::device_buffer(8, std::size_t{3}, stream); }));
    rmm::device_buffer aligned(100, std::size_t{4096}, stream, rmm::detail::resource("aligned(4096) | pool | cuda"));
    EXPECT(aligned.alignment() == 4096 && reinterpret_cast<std::uintptr_t>(aligned.data()) % 4096 == 0);
    EXPECT(test::throws<rmm::bad_alloc>([&] { rmm::device_buffer(std::numeric_limits<std::size_t>::max(), stream); }));
}

void buffers_that_fail() {
    test::sim sim;
    rmm::cuda_stream stream;
    rmm::mr::limiting_resource_adaptor limited(rmm::mr::get_current_device_resource_ref(), 4096);
    {
        rmm::device_buffer buffer(1024, stream, limited);
        void const *const before = buffer.data();
        EXPECT(test::throws<rmm::out_of_memory>(
            [&] { buffer.resize(1 << 20, stream); },
            [](auto const &failure) { return test::contains(failure.what(), "out_of_memory"); }));
        EXPECT(buffer.data() == before && buffer.size() == 1024 && limited.get_allocated_bytes() == 1024);
        EXPECT(test::throws<std::bad_alloc>([&] { rmm::device_uvector<int>(2000, stream, limited); }));
        // A copy that fails after the allocation loses no block.
        sim.fail("cuMemcpyAsync", 0, 1);
        EXPECT(test::throws<rmm::cuda_error>([&] { rmm::device_buffer(buffer, stream, limited); }));
        EXPECT(test::throws<rmm::cuda_error>([&] { buffer.reserve(2048, stream); }));
        EXPECT(buffer.data() == before && buffer.capacity() == 1024);
        alv_sim_clear_faults(sim.handle());
    }
    EXPECT(limited.get_allocated_bytes() == 0);
}

void vectors() {
    test::sim sim;
    rmm::cuda_stream stream;
    rmm::device_uvector<int> vector = library::counting(5, 10, stream);
    EXPECT((to_host(vector, stream) == std::vector<int>{10, 11, 12, 13, 14}));
    EXPECT(vector.size() == 5 && vector.ssize() == 5 && !vector.is_empty() && vector.capacity() == 5);
    EXPECT(vector.end() - vector.begin() == 5 && vector.cend() - vector.cbegin() == 5);
    EXPECT(vector.rend() - vector.rbegin() == 5 && vector.element_ptr(2) == vector.data() + 2);
    EXPECT(vector.front_element(stream) == 10 && vector.back_element(stream) == 14);
    vector.set_element(1, 7, stream);
    vector.set_element_to_zero_async(0, stream);
    EXPECT((to_host(vector, stream) == std::vector<int>{0, 7, 12, 13, 14}));
    EXPECT(test::throws<rmm::out_of_range>([&] { static_cast<void>(vector.element(5, stream)); }));
    EXPECT(test::throws<std::out_of_range>([&] { vector.set_element(5, 1, stream); }));

    vector.resize(8, stream);
    vector.resize(2, stream);
    vector.reserve(100, stream);
    EXPECT(vector.size() == 2 && vector.capacity() == 100);
    vector.shrink_to_fit(stream);
    EXPECT(vector.capacity() == 2 && (to_host(vector, stream) == std::vector<int>{0, 7}));

    rmm::device_uvector<int> copy(vector, stream);
    EXPECT(copy.data() != vector.data() && (to_host(copy, stream) == std::vector<int>{0, 7}));
    rmm::device_buffer taken = vector.release();
    EXPECT(taken.size() == 2 * sizeof(int) && vector.is_empty() && vector.data() == nullptr);
    EXPECT(test::throws<rmm::out_of_range>([&] { static_cast<void>(vector.back_element(stream)); }));
    // It goes on to be a vector, on the same resource.
    vector.resize(3, stream);
    EXPECT(vector.size() == 3 && vector.memory_resource() == copy.memory_resource());

    EXPECT(test::throws<rmm::invalid_argument>(
        [&] { rmm::device_uvector<double>(std::numeric_limits<std::size_t>::max() / 2, stream); }));
    rmm::device_uvector<int> moved(std::move(copy));
    EXPECT(copy.is_empty());
    copy.resize(1, stream);
    EXPECT(copy.size() == 1 && copy.data() != moved.data());
    EXPECT(moved.stream() == stream.view());
    moved.set_stream(rmm::cuda_stream_default);
    stream.synchronize();

    // Elements may be aligned to more than every block is.
    struct alignas(512) wide {
        int value;
    };
    rmm::device_uvector<wide> wides(3, stream, rmm::detail::resource("aligned(512) | pool | cuda"));
    EXPECT(reinterpret_cast<std::uintptr_t>(wides.data()) % 512 == 0);

    sim.fail("cuMemcpyAsync", 0, 1);
    int const three = 3;
    EXPECT(test::throws<rmm::cuda_error>([&] { moved.set_element(0, three, stream); }));
    alv_sim_clear_faults(sim.handle());
    EXPECT(library::contents(std::move(moved))->size() == 2 * sizeof(int));
}

void scalars() {
    test::sim sim;
    rmm::cuda_stream stream;
    double const initial = 2.5;
    rmm::device_scalar<double> scalar(initial, stream);
    EXPECT(scalar.value(stream) == 2.5 && scalar.size() == 1 && scalar.data() != nullptr);
    double const other = -1.0;
    scalar.set_value_async(other, stream);
    EXPECT(scalar.value(stream) == -1.0);
    rmm::device_scalar<double> copy(scalar, stream);
    scalar.set_value_to_zero_async(stream);
    EXPECT(scalar.value(stream) == 0.0 && copy.value(stream) == -1.0);
    rmm::device_scalar<int> uninitialised(stream);
    EXPECT(uninitialised.data() != nullptr && uninitialised.stream() == stream.view());
    // A flag: zero is false, and every other value is not.
    bool const yes = true;
    rmm::device_scalar<bool> flag(yes, stream);
    EXPECT(flag.value(stream));
}

// A free goes on the vector's own stream, so a vector that waits to be destroyed on another thread does no harm.
void threads() {
    test::sim sim;
    rmm::mr::statistics_resource_adaptor counted(rmm::mr::get_current_device_resource_ref());
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&counted, thread] {
            rmm::cuda_stream stream;
            for (int round = 0; round < 50; ++round) {
                auto vector = library::counting(16, thread * 100 + round, stream, counted);
                EXPECT(vector.front_element(stream) == thread * 100 + round);
                EXPECT(vector.back_element(stream) == thread * 100 + round + 15);
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    EXPECT(counted.get_bytes_counter().value == 0 && counted.get_allocations_counter().total == 4 * 50 * 2);
}

void devices() {
    test::sim sim(2);
    EXPECT(rmm::get_num_cuda_devices() == 2 && rmm::get_current_cuda_device() == rmm::cuda_device_id{0});
    {
        rmm::cuda_set_device_raii const other{rmm::cuda_device_id{1}};
        EXPECT(rmm::cuda_device_id{}.value() == 1);
        rmm::cuda_stream stream;
        auto vector = library::counting(4, 1, stream);
        EXPECT(vector.back_element(stream) == 4);
        // It goes back to its device, whichever is current then.
        rmm::cuda_set_device_raii const back{rmm::cuda_device_id{0}};
        rmm::device_uvector<int> gone(std::move(vector));
    }
    EXPECT(rmm::get_current_cuda_device().value() == 0);
    auto const [free, total] = rmm::available_device_memory();
    EXPECT(free <= total && total == std::size_t{1} << 30);
    EXPECT(rmm::percent_of_free_device_memory(50) == rmm::align_down(free / 2, 256));
    EXPECT(test::throws<rmm::cuda_error>([] { rmm::cuda_set_device_raii const none{rmm::cuda_device_id{9}}; }));
}

} // namespace

int main() {
    streams();
    waiting_streams();
    buffers();
    buffers_that_fail();
    vectors();
    scalars();
    threads();
    devices();
    return test::failures == 0 ? 0 : 1;
}
