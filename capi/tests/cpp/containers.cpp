// What do the containers hold, and what is left when a call of theirs fails? On a simulated machine, which runs the copies.
#include <alluvion/containers.hpp>

#include "expect.hpp"

#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <type_traits>
#include <vector>
#if __cplusplus >= 202002L
#include <span>
#endif

using alluvion::device_buffer;
using alluvion::device_scalar;
using alluvion::device_uvector;
using alluvion::resource;
using alluvion::stream_view;

static_assert(!std::is_copy_constructible_v<device_buffer> && !std::is_copy_assignable_v<device_buffer>);
static_assert(std::is_nothrow_move_constructible_v<device_buffer> && std::is_nothrow_move_assignable_v<device_buffer>);
static_assert(!std::is_copy_constructible_v<device_uvector<int>> && std::is_nothrow_move_constructible_v<device_uvector<int>>);
static_assert(!std::is_copy_constructible_v<device_scalar<int>> && std::is_nothrow_move_constructible_v<device_scalar<int>>);
static_assert(!std::is_constructible_v<device_scalar<int>, int, stream_view>, "a value without a name would dangle");
static_assert(std::is_constructible_v<device_scalar<int>, int const &, stream_view>);

namespace {

template <class T, class Index, class = void>
struct sets_temporaries : std::false_type {};
template <class T, class Index>
struct sets_temporaries<T, Index,
                        std::void_t<decltype(std::declval<device_uvector<T> &>().set_element_async(
                            std::declval<Index>(), std::declval<T>(), stream_view{}))>> : std::true_type {};
static_assert(!sets_temporaries<int, std::size_t>::value);

std::vector<int> host(device_uvector<int> const &vector, stream_view stream) {
    std::vector<int> copy(vector.size());
    vector.memory_resource().copy(copy.data(), vector.data(), copy.size() * sizeof(int), stream);
    vector.memory_resource().synchronize(stream);
    return copy;
}

/// Elements 0, 1, 2, ...
device_uvector<int> counting(int size, stream_view stream, resource const &mr) {
    std::vector<int> values(static_cast<std::size_t>(size));
    std::iota(values.begin(), values.end(), 0);
    device_uvector<int> made(values.size(), stream, mr);
    mr.copy(made.data(), values.data(), values.size() * sizeof(int), stream);
    mr.synchronize(stream);
    return made;
}

void bytes() {
    test::sim sim;
    resource pool("stats | pool | cuda-async");
    alluvion::stream stream;
    {
        device_buffer empty(0, stream, pool);
        EXPECT(empty.data() == nullptr && empty.is_empty() && empty.ssize() == 0 && empty.capacity() == 0);

        std::vector<unsigned char> from(300, 3), back(300);
        device_buffer filled(from.data(), from.size(), stream, pool);
        EXPECT(filled.size() == 300 && filled.capacity() == 300 && filled.stream() == stream.view());
        device_buffer copy(filled, stream, pool);
        EXPECT(copy.data() != filled.data() && copy.size() == 300);
        pool.copy(back.data(), copy.data(), 300, stream);
        stream.synchronize();
        EXPECT(back == from);

        device_buffer aligned(100, 4096, stream, pool);
        EXPECT(reinterpret_cast<std::uintptr_t>(aligned.data()) % 4096 == 0 && aligned.alignment() == 4096);
        device_buffer realigned(aligned, stream, pool);
        EXPECT(realigned.alignment() == 4096);

        void *before = filled.data();
        filled.resize(100, stream);
        EXPECT(filled.size() == 100 && filled.capacity() == 300 && filled.data() == before);
        filled.reserve(50, stream);
        EXPECT(filled.capacity() == 300);
        filled.shrink_to_fit(stream);
        EXPECT(filled.capacity() == 100 && filled.size() == 100);
        filled.resize(500, stream);
        EXPECT(filled.size() == 500 && filled.capacity() == 500);
        back.assign(100, 0);
        pool.copy(back.data(), filled.data(), 100, stream);
        stream.synchronize();
        EXPECT(back == std::vector<unsigned char>(100, 3));

        device_buffer moved(std::move(filled));
        EXPECT(filled.is_empty() && filled.data() == nullptr && filled.capacity() == 0 && moved.size() == 500);
        EXPECT(test::throws<std::logic_error>([&] { filled.resize(1, stream); }));
        filled.resize(0, stream);
        filled.shrink_to_fit(stream);
        filled = std::move(moved);
        EXPECT(filled.size() == 500);
        device_buffer &self = filled;
        filled = std::move(self);
        EXPECT(filled.size() == 500 && filled.data() != nullptr);
        EXPECT(test::throws<std::invalid_argument>([&] { device_buffer none(nullptr, 8, stream, pool); }));
        device_buffer nothing(nullptr, 0, stream, pool);
        EXPECT(nothing.is_empty());
    }
    EXPECT(pool.stats()->allocations.value == 0);
    // Of the current resource.
    device_buffer none;
    none.resize(64, stream);
    EXPECT(none.memory_resource() == alluvion::current_resource() && none.size() == 64);
    device_buffer sized(64, stream);
    EXPECT(sized.memory_resource() == alluvion::current_resource());
}

void vectors() {
    test::sim sim;
    resource pool("stats | pool | cuda-async");
    alluvion::stream stream;
    {
        device_uvector<int> vector = counting(1000, stream, pool);
        EXPECT(vector.size() == 1000 && vector.ssize() == 1000 && vector.size_bytes() == 4000 && !vector.is_empty());
        EXPECT(vector.element(7, stream) == 7);
        EXPECT(vector.front_element(stream) == 0 && vector.back_element(stream) == 999);
        int const value = 70;
        vector.set_element_async(7, value, stream);
        stream.synchronize();
        EXPECT(vector.element(7, stream) == 70);
        vector.set_element(8, 80, stream);
        EXPECT(vector.element(8, stream) == 80);
        vector.set_element_to_zero_async(7, stream);
        EXPECT(vector.element(7, stream) == 0);
        EXPECT(vector.element_ptr(3) == vector.data() + 3);
        EXPECT(vector.end() - vector.begin() == 1000 && vector.cend() - vector.cbegin() == 1000);
        EXPECT(vector.rend() - vector.rbegin() == 1000 && vector.crend() - vector.crbegin() == 1000);
        EXPECT(vector.rbegin().base() == vector.end());

        for (std::size_t wrong : {std::size_t{1000}, SIZE_MAX}) {
            EXPECT(test::throws<std::out_of_range>([&] { static_cast<void>(vector.element(wrong, stream)); }));
            EXPECT(test::throws<std::out_of_range>([&] { vector.set_element(wrong, value, stream); }));
            EXPECT(test::throws<std::out_of_range>([&] { vector.set_element_to_zero_async(wrong, stream); }));
        }

        device_uvector<int> copy(vector, stream, pool);
        EXPECT(host(copy, stream) == host(vector, stream) && copy.data() != vector.data());
        copy.resize(2000, stream);
        EXPECT(copy.size() == 2000 && copy.element(999, stream) == 999);
        copy.resize(10, stream);
        EXPECT(copy.capacity() == 2000);
        copy.shrink_to_fit(stream);
        EXPECT(copy.capacity() == 10 && copy.element(9, stream) == 9);
        copy.reserve(64, stream);
        EXPECT(copy.capacity() == 64 && copy.size() == 10 && copy.element(9, stream) == 9);

        device_buffer bytes = copy.release();
        EXPECT(bytes.size() == 40 && bytes.memory_resource() == pool);
        EXPECT(copy.is_empty() && copy.data() == nullptr && copy.stream() == stream.view());
        copy.resize(5, stream);
        EXPECT(copy.size() == 5 && copy.memory_resource() == pool);

        device_uvector<int> moved(std::move(copy));
        EXPECT(copy.is_empty() && moved.size() == 5);
        EXPECT(test::throws<std::logic_error>([&] { copy.resize(1, stream); }));
        EXPECT(test::throws<std::out_of_range>([&] { static_cast<void>(copy.back_element(stream)); }));
        EXPECT(copy.release().is_empty());
        copy = std::move(moved);
        EXPECT(copy.size() == 5);

        device_uvector<int> none(0, stream, pool);
        EXPECT(none.begin() == none.end() && none.data() == nullptr);
        EXPECT(test::throws<std::out_of_range>([&] { static_cast<void>(none.front_element(stream)); }));

        for (std::size_t many : {SIZE_MAX, SIZE_MAX / 4 + 1, SIZE_MAX / 8}) {
            auto const overflow = [](alluvion::bad_alloc const &thrown) { return thrown.status() == ALV_SIZE_OVERFLOW; };
            EXPECT(test::throws<alluvion::bad_alloc>([&] { device_uvector<int> huge(many, stream, pool); }, overflow));
            EXPECT(test::throws<std::bad_alloc>([&] { vector.resize(many, stream); }));
        }
        EXPECT(vector.size() == 1000 && vector.element(999, stream) == 999);
#if __cplusplus >= 202002L
        std::span<int> span = vector;
        std::span<int const> constant = std::as_const(vector);
        EXPECT(span.data() == vector.data() && constant.size() == 1000);
#endif
    }
    EXPECT(pool.stats()->allocations.value == 0);
}

struct pair_of_numbers {
    explicit pair_of_numbers(int both) : first(both), second(both) {}
    int first;
    double second;
};
static_assert(!std::is_default_constructible_v<pair_of_numbers>);

void scalars() {
    test::sim sim;
    resource pool("stats | pool | cuda-async");
    alluvion::stream stream;
    {
        double const initial = 2.5;
        device_scalar<double> scalar(initial, stream, pool);
        EXPECT(scalar.value(stream) == 2.5 && scalar.size() == 1 && scalar.data() != nullptr);
        device_scalar<double> copy(scalar, stream, pool);
        double const other = -1;
        scalar.set_value_async(other, stream);
        EXPECT(scalar.value(stream) == -1 && copy.value(stream) == 2.5);
        scalar.set_value_to_zero_async(stream);
        EXPECT(scalar.value(stream) == 0);
        device_scalar<double> moved(std::move(copy));
        EXPECT(moved.value(stream) == 2.5);
        EXPECT(test::throws<std::out_of_range>([&] { static_cast<void>(copy.value(stream)); }));
        // Without a constructor of no arguments.
        pair_of_numbers const pair(4);
        device_scalar<pair_of_numbers> both(pair, stream, pool);
        EXPECT(both.value(stream).first == 4 && both.value(stream).second == 4);
        device_scalar<char> bare(stream, pool);
        EXPECT(bare.stream() == stream.view() && bare.memory_resource() == pool);
    }
    EXPECT(pool.stats()->allocations.value == 0);
}

/// What a failed call has changed: nothing.
void failures() {
    constexpr int out_of_memory = 2, other = 999;
    test::sim sim;
    // Without a cache, each request reaches the driver.
    resource source("stats | cuda-async");
    alluvion::stream first, second;
    {
        device_uvector<int> vector = counting(100, first, source);
        int const *before = vector.data();
        sim.fail("cuMemAllocFromPoolAsync", 0, out_of_memory);
        EXPECT(test::throws<alluvion::out_of_memory>([&] { vector.resize(200, second); }));
        EXPECT(test::throws<alluvion::out_of_memory>([&] { vector.reserve(200, second); }));
        EXPECT(test::throws<alluvion::out_of_memory>([&] { device_uvector<int> copy(vector, first, source); }));
        vector.resize(50, first);
        EXPECT(test::throws<alluvion::out_of_memory>([&] { vector.shrink_to_fit(second); }));
        vector.resize(100, first);
        EXPECT(alv_sim_clear_faults(sim.handle()) == ALV_OK);
        EXPECT(vector.data() == before && vector.size() == 100 && vector.stream() == first.view());

        // The copy to the new block fails: the new block goes back.
        sim.fail("cuMemcpyAsync", 1, other);
        EXPECT(test::throws<alluvion::error>([&] { vector.resize(200, first); },
                                             [](auto &thrown) { return thrown.cuda_code() == other; }));
        EXPECT(vector.data() == before && vector.size() == 100 && source.stats()->allocations.value == 1);
        sim.fail("cuMemcpyAsync", 1, other);
        std::vector<char> from(64);
        EXPECT(test::throws<alluvion::error>([&] { device_buffer copy(from.data(), 64, first, source); }));
        EXPECT(source.stats()->allocations.value == 1);

        sim.fail("cuStreamSynchronize", 1, other);
        int const value = 5;
        EXPECT(test::throws<alluvion::error>([&] { vector.set_element(0, value, first); }));
        first.synchronize();
        EXPECT(vector.back_element(first) == 99);
    }
    first.synchronize();
    EXPECT(source.stats()->allocations.value == 0);
}

/// A vector moves its elements to another stream's work, and the old block goes back behind the copy.
void streams() {
    test::sim sim;
    resource pool("stats | pool | cuda-async");
    alluvion::stream first, second;
    device_uvector<int> vector = counting(100, first, pool);
    vector.resize(1000, second);
    EXPECT(vector.stream() == second.view());
    EXPECT(vector.element(99, second) == 99);
    vector.set_stream(first);
    EXPECT(vector.stream() == first.view());
    device_uvector<int> of_the_thread(10, stream_view::per_thread(), pool), of_the_device(10, stream_view{}, pool);
    of_the_thread.set_element(9, 4, stream_view::per_thread());
    of_the_device.set_element(9, 4, stream_view{});
    EXPECT(of_the_thread.back_element(stream_view::per_thread()) == of_the_device.back_element(stream_view::legacy()));
}

} // namespace

int main() {
    bytes();
    vectors();
    scalars();
    failures();
    streams();
    return test::failures == 0 ? 0 : 1;
}
