// Do Thrust's algorithms and containers do the same with our memory as the host does without?
#include <alluvion/thrust.hpp>

#include "said.hpp"

#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace {

std::vector<std::uint32_t> drawn(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::uint32_t> numbers(count);
    std::generate(numbers.begin(), numbers.end(), [&] { return random() % 1000000; });
    return numbers;
}

/// Numbers in memory of ours, on the stream of their allocator.
alluvion::device_vector<std::uint32_t> on_device(std::vector<std::uint32_t> const &numbers, alluvion::stream_view stream,
                                                 alluvion::resource const &resource) {
    alluvion::device_vector<std::uint32_t> made(numbers.size(), alluvion::thrust_allocator<std::uint32_t>(stream, resource));
    thrust::copy(numbers.begin(), numbers.end(), made.begin());
    // Thrust has written on its default stream.
    CUDA(cudaDeviceSynchronize());
    return made;
}

std::vector<std::uint32_t> on_host(alluvion::device_vector<std::uint32_t> const &numbers, alluvion::stream_view stream) {
    CUDA(cudaStreamSynchronize(stream.value()));
    std::vector<std::uint32_t> copied(numbers.size());
    thrust::copy(numbers.begin(), numbers.end(), copied.begin());
    return copied;
}

/// Sorts, sums, scans and counts by a policy, beside the host.
template <class Policy>
void algorithms(Policy const &policy, alluvion::stream_view stream, alluvion::resource const &resource, unsigned seed) {
    auto expected = drawn(1 << 20, seed);
    auto numbers = on_device(expected, stream, resource);
    std::uint64_t const sum = thrust::reduce(policy, numbers.begin(), numbers.end(), std::uint64_t{0});
    EXPECT(sum == std::accumulate(expected.begin(), expected.end(), std::uint64_t{0}));
    auto const odd = [] __host__ __device__(std::uint32_t number) { return number % 2 == 1; };
    EXPECT(thrust::count_if(policy, numbers.begin(), numbers.end(), odd) == std::count_if(expected.begin(), expected.end(), odd));

    thrust::sort(policy, numbers.begin(), numbers.end());
    std::sort(expected.begin(), expected.end());
    EXPECT(on_host(numbers, stream) == expected);

    thrust::inclusive_scan(policy, numbers.begin(), numbers.end(), numbers.begin());
    std::partial_sum(expected.begin(), expected.end(), expected.begin());
    EXPECT(on_host(numbers, stream) == expected);

    // Two allocations at a time: keys and values.
    auto keys = on_device(drawn(100000, seed + 1), stream, resource);
    auto values = on_device(drawn(100000, seed + 1), stream, resource);
    thrust::stable_sort_by_key(policy, keys.begin(), keys.end(), values.begin());
    EXPECT(on_host(keys, stream) == on_host(values, stream));
}

std::string policies(alluvion::resource const &resource) {
    auto const before = resource.stats()->bytes.total;
    {
        alluvion::stream stream;
        algorithms(alluvion::exec_policy(stream, resource), stream, resource, 1);
        algorithms(alluvion::exec_policy_nosync(stream, resource), stream, resource, 2);
        algorithms(alluvion::exec_policy({}, resource), {}, resource, 3);
        alluvion::thrust_allocator<char> temporary(stream, resource);
        algorithms(thrust::cuda::par(temporary).on(stream.value()), stream, resource, 4);
        algorithms(thrust::cuda::par_nosync(temporary).on(stream.value()), stream, resource, 5);
        stream.synchronize();
    }
    auto const counted = resource.stats();
    EXPECT(counted->bytes.value == 0 && counted->bytes.total > before);
    return ", \"allocations\": " + std::to_string(counted->allocations.total);
}

std::string containers(alluvion::resource const &resource) {
    {
        alluvion::thrust_allocator<int> const allocator({}, resource);
        alluvion::device_vector<int> numbers(1000, 7, allocator);
        EXPECT(thrust::reduce(alluvion::exec_policy({}, resource), numbers.begin(), numbers.end()) == 7000);
        numbers.resize(5000, 1);
        EXPECT(thrust::reduce(alluvion::exec_policy({}, resource), numbers.begin(), numbers.end()) == 11000);
        alluvion::device_vector<int> copy(numbers);
        numbers.clear();
        numbers.shrink_to_fit();
        EXPECT(copy.size() == 5000 && copy[999] == 7 && copy[4999] == 1);
        alluvion::device_vector<int> moved(std::move(copy));
        EXPECT(moved.get_allocator() == allocator && moved.get_allocator().get_upstream_resource() == resource);
        alluvion::thrust_allocator<double> const other(allocator);
        EXPECT(other == allocator && other.stream() == allocator.stream());
    }
    EXPECT(resource.stats()->bytes.value == 0);
    return "";
}

/// What an allocation throws comes out of the algorithm, and nothing is lost.
std::string exceptions() {
    alluvion::resource resource("stats | limiting(5MiB) | pool | cuda-async");
    {
        alluvion::stream stream;
        auto numbers = on_device(drawn(1 << 20, 9), stream, resource);
        bool thrown = false;
        try {
            auto const less = [] __host__ __device__(std::uint32_t first, std::uint32_t second) {
                return first % 1024 < second % 1024;
            };
            thrust::sort(alluvion::exec_policy_nosync(stream, resource), numbers.begin(), numbers.end(), less);
        } catch (alluvion::out_of_memory const &) {
            thrown = true;
        }
        EXPECT(thrown);
        bool too_many = false;
        try {
            static_cast<void>(alluvion::thrust_allocator<double>(stream, resource).allocate(~std::size_t{0} / 4));
        } catch (alluvion::bad_alloc const &) {
            too_many = true;
        }
        EXPECT(too_many);
        stream.synchronize();
    }
    EXPECT(resource.stats()->bytes.value == 0);
    return "";
}

std::string threads(alluvion::resource const &resource) {
    std::vector<std::thread> running;
    for (unsigned thread = 0; thread < 4; ++thread) {
        running.emplace_back([&resource, thread] {
            CUDA(cudaSetDevice(0));
            alluvion::stream stream(0);
            algorithms(alluvion::exec_policy_nosync(stream, resource), stream, resource, 20 + thread);
            stream.synchronize();
        });
    }
    for (auto &thread : running) {
        thread.join();
    }
    EXPECT(resource.stats()->bytes.value == 0);
    return "";
}

} // namespace

int main() {
    CUDA(cudaSetDevice(0));
    CUDA(cudaFree(nullptr));
    for (char const *recipe : {"stats | pool | cuda-async", "stats | arena(bytes=4GiB) | cuda"}) {
        alluvion::resource resource(recipe, 0);
        said::part("thrust", (std::string("policies over ") + recipe).c_str(), [&] { return policies(resource); });
        said::part("thrust", (std::string("containers over ") + recipe).c_str(), [&] { return containers(resource); });
        said::part("thrust", (std::string("four threads over ") + recipe).c_str(), [&] { return threads(resource); });
    }
    said::part("thrust", "exceptions", exceptions);
    return said::failures == 0 ? 0 : 1;
}
