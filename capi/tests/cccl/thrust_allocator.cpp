// Is `rmm::mr::thrust_allocator` the class that RMM's is? Thrust's vectors are for a compiler of CUDA (ci/nvcc); an allocator is not.
#include <rmm/mr/thrust_allocator_adaptor.hpp>

#include <rmm/device_vector.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include "../cpp/expect.hpp"

#include <memory>
#include <type_traits>

namespace {

// What a program can do with a class template and not with an alias.
template <class Allocator>
struct element_of;
template <class T>
struct element_of<rmm::mr::thrust_allocator<T>> {
    using type = T;
};
template <template <class> class Allocator, class T>
struct of_template {
    using type = Allocator<T>;
};
struct derived : public rmm::mr::thrust_allocator<int> {
    using rmm::mr::thrust_allocator<int>::thrust_allocator;
};

using ints = rmm::mr::thrust_allocator<int>;
static_assert(std::is_same_v<element_of<ints>::type, int>);
static_assert(std::is_same_v<of_template<rmm::mr::thrust_allocator, int>::type, ints>);
static_assert(std::is_same_v<std::allocator_traits<ints>::rebind_alloc<char>, rmm::mr::thrust_allocator<char>>);
static_assert(std::is_same_v<rmm::device_vector<int>, thrust::device_vector<int, ints>>);

} // namespace

// In the namespace of the class, and not of its base: found by its argument.
namespace rmm {
inline namespace ALLUVION_STREAMS_NAMESPACE {
inline namespace ALLUVION_COMPAT_RMM_RESOURCES {
namespace mr {
template <class T>
constexpr int elements_have(thrust_allocator<T> const &) {
    return sizeof(T);
}
} // namespace mr
} // namespace ALLUVION_COMPAT_RMM_RESOURCES
} // namespace ALLUVION_STREAMS_NAMESPACE
} // namespace rmm

int main() {
    test::sim sim;
    rmm::mr::statistics_resource_adaptor counted{rmm::mr::cuda_memory_resource{}};
    {
        ints first(rmm::cuda_stream_view{}, counted);
        ints const copy(first);
        rmm::mr::thrust_allocator<double> const other(first);
        derived own(rmm::cuda_stream_view{}, counted);
        EXPECT(elements_have(first) == 4 && elements_have(other) == 8);
        EXPECT(first == copy && first == other && first == own && first != ints());
        EXPECT(other.get_upstream_resource() == rmm::device_async_resource_ref{counted});
        auto const block = first.allocate(100);
        EXPECT(counted.get_bytes_counter().value == 400);
        own.deallocate(block, 100);
        EXPECT(counted.get_bytes_counter().value == 0);
        first = ints(rmm::cuda_stream_per_thread);
        EXPECT(first.stream() == rmm::cuda_stream_per_thread && first != copy);
    }
    return test::failures == 0 ? 0 : 1;
}
