// Does the program's RMM work on our handle, and do our layers work on its resources? With librmm 26.10 and the CCCL that comes
// with it.
#include <alluvion/rmm.hpp>
#include <alluvion/thrust.hpp>

#include "said.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/device_vector.hpp>
#include <rmm/exec_policy.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/polymorphic_allocator.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <thread>
#include <vector>

namespace {

// A function as libraries over RMM write them.
rmm::device_uvector<int> descending(std::size_t count, cuda::stream_ref stream, rmm::device_async_resource_ref mr) {
    rmm::device_uvector<int> made(count, stream, mr);
    thrust::sequence(rmm::exec_policy_nosync(stream, mr), made.begin(), made.end(), static_cast<int>(count) - 1, -1);
    return made;
}

std::int64_t out(alluvion::rmm::resource const &resource) { return resource.stats()->bytes.value; }

std::string containers(alluvion::rmm::resource resource) {
    rmm::cuda_stream stream;
    {
        auto numbers = descending(100000, stream, resource);
        EXPECT(out(resource) == 400000);
        EXPECT(numbers.front_element(stream) == 99999 && numbers.back_element(stream) == 0);
        thrust::sort(rmm::exec_policy_nosync(stream, resource), numbers.begin(), numbers.end());
        EXPECT(numbers.element(4321, stream) == 4321);
        // By ours, too: one policy or the other.
        alluvion::exec_policy const ours(stream.value(), resource);
        EXPECT(thrust::reduce(ours, numbers.begin(), numbers.end(), 0LL) == 4999950000LL);
        numbers.resize(200000, stream);
        numbers.shrink_to_fit(stream);
        int const seven = 7;
        numbers.set_element_async(150000, seven, stream);
        EXPECT(numbers.element(150000, stream) == 7);
        rmm::device_uvector<int> copy(numbers, stream, resource);
        EXPECT(copy.element(150000, stream) == 7 && copy.data() != numbers.data());
        rmm::device_buffer bytes = copy.release();
        EXPECT(bytes.size() == 800000);
        double const value = 2.5;
        rmm::device_scalar<double> scalar(value, stream, resource);
        EXPECT(scalar.value(stream) == 2.5);
        rmm::device_vector<int> thrusts(1000, 3, rmm::mr::thrust_allocator<int>(stream, resource));
        stream.synchronize();
        CUDA(cudaDeviceSynchronize());
        EXPECT(thrust::reduce(rmm::exec_policy(stream, resource), thrusts.begin(), thrusts.end()) == 3000);
        rmm::mr::polymorphic_allocator<int> allocator(resource);
        int *const block = allocator.allocate(100, stream);
        allocator.deallocate(block, 100, stream);
    }
    EXPECT(out(resource) == 0);
    return ", \"allocations\": " + std::to_string(resource.stats()->allocations.total);
}

std::string current(alluvion::rmm::resource resource) {
    auto before = rmm::mr::set_current_device_resource(resource);
    {
        rmm::device_uvector<int> numbers(1000, cuda::stream_ref{cudaStream_t{nullptr}});
        EXPECT(out(resource) == 4000);
        EXPECT(rmm::mr::get_current_device_resource_ref() == rmm::device_async_resource_ref{resource});
        rmm::mr::statistics_resource_adaptor counted{rmm::mr::get_current_device_resource_ref()};
        rmm::device_buffer more(64, cuda::stream_ref{cudaStream_t{nullptr}}, counted);
        EXPECT(counted.get_bytes_counter().value == 64 && out(resource) == 4064);
    }
    rmm::mr::set_current_device_resource(before);
    EXPECT(out(resource) == 0);
    return "";
}

std::string exceptions() {
    alluvion::rmm::resource limited("stats | limiting(1MiB) | pool | cuda-async", 0);
    cuda::stream_ref const stream{cudaStream_t{nullptr}};
    bool caught = false;
    try {
        rmm::device_uvector<int> much(1000000, stream, limited);
    } catch (rmm::out_of_memory const &thrown) {
        caught = std::string(thrown.what()).find("out_of_memory") != std::string::npos;
    }
    EXPECT(caught);
    // RMM's handler catches them, frees, and tries again.
    void *spare = limited.allocate(stream, 900000);
    struct state {
        alluvion::rmm::resource *from;
        void **spare;
        int asked;
    } kept{&limited, &spare, 0};
    rmm::mr::failure_callback_resource_adaptor<> helped{
        limited,
        [](std::size_t, void *argument) {
            auto &kept = *static_cast<state *>(argument);
            ++kept.asked;
            if (*kept.spare == nullptr) {
                return false;
            }
            kept.from->deallocate(cudaStream_t{nullptr}, std::exchange(*kept.spare, nullptr), 900000);
            return true;
        },
        &kept};
    {
        rmm::device_buffer buffer(500000, stream, helped);
        EXPECT(kept.asked == 1);
    }
    EXPECT(out(limited) == 0);
    return "";
}

std::string theirs_below() {
    rmm::mr::pool_memory_resource pool{rmm::mr::cuda_memory_resource{}, std::size_t{64} << 20};
    {
        auto layers = alluvion::rmm::resource::over("stats | tracking", alluvion::rmm::from_rmm(pool));
        containers(layers);
        alluvion::resource ours(layers);
        alluvion::stream stream;
        void *const block = ours.allocate(stream, 4096);
        ours.deallocate(stream, block, 4096);
        stream.synchronize();
    }
    // What RMM throws comes through the layers as what it is.
    alluvion::rmm::resource small = alluvion::rmm::from_rmm(
        rmm::mr::pool_memory_resource{rmm::mr::cuda_memory_resource{}, std::size_t{1} << 20, std::size_t{1} << 20});
    bool caught = false;
    try {
        static_cast<void>(small.allocate(cudaStream_t{nullptr}, std::size_t{8} << 20));
    } catch (rmm::out_of_memory const &) {
        caught = true;
    }
    EXPECT(caught);
    return "";
}

std::string threads(alluvion::rmm::resource resource) {
    rmm::cuda_stream_pool streams(8);
    std::vector<std::thread> running;
    for (int thread = 0; thread < 8; ++thread) {
        running.emplace_back([&, thread] {
            CUDA(cudaSetDevice(0));
            for (int round = 0; round < 100; ++round) {
                auto const stream = streams.get_stream();
                std::size_t const count = 1000 + static_cast<std::size_t>(thread * 100 + round);
                auto numbers = descending(count, stream, resource);
                thrust::sort(rmm::exec_policy_nosync(stream, resource), numbers.begin(), numbers.end());
                EXPECT(numbers.element(count / 2, stream) == static_cast<int>(count / 2));
            }
        });
    }
    for (auto &thread : running) {
        thread.join();
    }
    EXPECT(out(resource) == 0);
    return "";
}

} // namespace

int main() {
    CUDA(cudaSetDevice(0));
    CUDA(cudaFree(nullptr));
    for (char const *recipe : {"stats | pool | cuda-async", "stats | arena(bytes=4GiB) | cuda", "stats | cuda-async"}) {
        alluvion::rmm::resource resource(recipe, 0);
        said::part("rmm", (std::string("containers over ") + recipe).c_str(), [&] { return containers(resource); });
        said::part("rmm", (std::string("current resource ") + recipe).c_str(), [&] { return current(resource); });
        said::part("rmm", (std::string("eight threads over ") + recipe).c_str(), [&] { return threads(resource); });
    }
    said::part("rmm", "exceptions", exceptions);
    said::part("rmm", "layers over resources of RMM's", theirs_below);
    return said::failures == 0 ? 0 : 1;
}
