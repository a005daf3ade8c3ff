// Does a program of RMM's headers run on a GPU without RMM? Compiled against alluvion/compat, with the CCCL of the toolkit, whose
// resources have other names, and with a newer one.
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/device_vector.hpp>
#include <rmm/exec_policy.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/resource_ref.hpp>

#include "said.hpp"

#include <thrust/gather.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace library {

/// The order in which numbers are sorted, as a library over RMM computes it.
std::unique_ptr<rmm::device_uvector<int>>
sorted_order(rmm::device_uvector<int> const &numbers, rmm::cuda_stream_view stream = rmm::cuda_stream_default,
             rmm::device_async_resource_ref mr = rmm::mr::get_current_device_resource_ref()) {
    auto order = std::make_unique<rmm::device_uvector<int>>(numbers.size(), stream, mr);
    thrust::sequence(rmm::exec_policy_nosync(stream), order->begin(), order->end());
    rmm::device_uvector<int> keys(numbers, stream);
    thrust::stable_sort_by_key(rmm::exec_policy_nosync(stream), keys.begin(), keys.end(), order->begin());
    return order;
}

rmm::device_uvector<int> gathered(rmm::device_uvector<int> const &numbers, rmm::device_uvector<int> const &order,
                                  rmm::cuda_stream_view stream, rmm::device_async_resource_ref mr) {
    rmm::device_uvector<int> made(order.size(), stream, mr);
    thrust::gather(rmm::exec_policy_nosync(stream, mr), order.begin(), order.end(), numbers.begin(), made.begin());
    return made;
}

} // namespace library

namespace {

std::vector<int> on_host(rmm::device_uvector<int> const &numbers, rmm::cuda_stream_view stream) {
    std::vector<int> copied(numbers.size());
    CUDA(cudaMemcpyAsync(copied.data(), numbers.data(), copied.size() * sizeof(int), cudaMemcpyDefault, stream.value()));
    stream.synchronize();
    return copied;
}

void work(rmm::cuda_stream_view stream, rmm::device_async_resource_ref mr, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<int> numbers(50000);
    std::generate(numbers.begin(), numbers.end(), [&] { return static_cast<int>(random() % 100000); });
    rmm::device_uvector<int> given(numbers.size(), stream, mr);
    CUDA(cudaMemcpyAsync(given.data(), numbers.data(), numbers.size() * sizeof(int), cudaMemcpyDefault, stream.value()));
    auto const order = library::sorted_order(given, stream, mr);
    auto const sorted = library::gathered(given, *order, stream, mr);
    auto const result = on_host(sorted, stream);
    std::sort(numbers.begin(), numbers.end());
    EXPECT(result == numbers);

    rmm::device_scalar<int> largest(stream, mr);
    int const last = sorted.back_element(stream);
    largest.set_value_async(last, stream);
    EXPECT(largest.value(stream) == numbers.back());
}

std::string whole() {
    rmm::mr::cuda_async_memory_resource async;
    rmm::mr::pool_memory_resource pool{async, std::size_t{256} << 20};
    rmm::mr::statistics_resource_adaptor counted{pool};
    auto before = rmm::mr::set_current_device_resource(counted);
    {
        rmm::cuda_stream stream;
        work(stream, counted, 1);
        work(rmm::cuda_stream_default, rmm::mr::get_current_device_resource_ref(), 2);
        rmm::device_vector<int> sevens(1000, 7);
        EXPECT(thrust::reduce(rmm::exec_policy(), sevens.begin(), sevens.end()) == 7000);
        sevens.resize(2000);
        rmm::device_buffer copy(thrust::raw_pointer_cast(sevens.data()), 400, stream);
        stream.synchronize();
    }
    EXPECT(counted.get_bytes_counter().value == 0 && counted.get_bytes_counter().peak > 0);
    auto mine = rmm::mr::set_current_device_resource(before);
    return ", \"allocations\": " + std::to_string(counted.get_allocations_counter().total);
}

std::string threads() {
    rmm::mr::pool_memory_resource pool{rmm::mr::cuda_memory_resource{}, std::size_t{256} << 20};
    rmm::mr::statistics_resource_adaptor counted{pool};
    {
        rmm::cuda_stream_pool streams(8);
        std::vector<std::thread> running;
        for (unsigned thread = 0; thread < 8; ++thread) {
            running.emplace_back([&, thread] {
                CUDA(cudaSetDevice(0));
                for (unsigned round = 0; round < 10; ++round) {
                    work(streams.get_stream(), counted, thread * 10 + round);
                }
            });
        }
        for (auto &thread : running) {
            thread.join();
        }
    }
    EXPECT(counted.get_bytes_counter().value == 0);
    return "";
}

std::string exceptions() {
    rmm::mr::pool_memory_resource pool{rmm::mr::cuda_memory_resource{}, std::size_t{1} << 20, std::size_t{1} << 20};
    bool caught = false;
    try {
        rmm::device_uvector<double> much(1000000, rmm::cuda_stream_default, pool);
    } catch (rmm::out_of_memory const &) {
        caught = true;
    }
    EXPECT(caught && cudaPeekAtLastError() == cudaSuccess);
    return "";
}

} // namespace

int main() {
    CUDA(cudaSetDevice(0));
    CUDA(cudaFree(nullptr));
#if ALLUVION_COMPAT_RMM_CCCL
    char const *const types = "types of CCCL";
#else
    char const *const types = "types of our own";
#endif
    said::part("compat", (std::string("a program of RMM's headers, ") + types).c_str(), whole);
    said::part("compat", "eight threads", threads);
    said::part("compat", "exceptions", exceptions);
    return said::failures == 0 ? 0 : 1;
}
