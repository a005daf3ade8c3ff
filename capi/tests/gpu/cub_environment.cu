// Does CUB take its temporary memory from our handle, by its environment? With CCCL 3.4 and later.
#include <alluvion.hpp>

#include "said.hpp"

#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>
#include <cuda/std/execution>

#include <numeric>
#include <vector>

namespace {

static_assert(CCCL_VERSION >= 3004000, "older ones have no environment with a resource");

template <class Environment>
void algorithms(Environment const &environment, alluvion::resource const &resource, cudaStream_t stream) {
    std::vector<int> numbers(1 << 20);
    std::iota(numbers.begin(), numbers.end(), 0);
    std::size_t const bytes = numbers.size() * sizeof(int);
    auto *const given = static_cast<int *>(resource.allocate(stream, bytes));
    auto *const made = static_cast<int *>(resource.allocate(stream, bytes));
    CUDA(cudaMemcpyAsync(given, numbers.data(), bytes, cudaMemcpyDefault, stream));
    auto const before = resource.stats()->allocations.total;

    CUDA(cub::DeviceReduce::Sum(given, made, numbers.size(), environment));
    int sum = 0;
    CUDA(cudaMemcpyAsync(&sum, made, sizeof(sum), cudaMemcpyDefault, stream));
    CUDA(cudaStreamSynchronize(stream));
    EXPECT(static_cast<unsigned>(sum) == static_cast<unsigned>(std::accumulate(numbers.begin(), numbers.end(), std::uint64_t{0})));

    CUDA(cub::DeviceScan::ExclusiveSum(given, made, numbers.size(), environment));
    std::vector<int> scanned(numbers.size());
    CUDA(cudaMemcpyAsync(scanned.data(), made, bytes, cudaMemcpyDefault, stream));
    CUDA(cudaStreamSynchronize(stream));
    std::vector<unsigned> expected(numbers.begin(), numbers.end());
    std::exclusive_scan(expected.begin(), expected.end(), expected.begin(), 0U);
    EXPECT(std::equal(scanned.begin(), scanned.end(), expected.begin(),
                      [](int first, unsigned second) { return static_cast<unsigned>(first) == second; }));
    // The temporary memory was ours.
    EXPECT(resource.stats()->allocations.total >= before + 2);
    resource.deallocate(stream, given, bytes);
    resource.deallocate(stream, made, bytes);
}

std::string environments(alluvion::resource const &resource) {
    {
        alluvion::stream stream;
        cuda::stream_ref const ref(stream.value());
        algorithms(cuda::std::execution::env{ref, resource}, resource, stream.value());
        using memory = cuda::std::execution::prop<cuda::mr::get_memory_resource_t, alluvion::resource>;
        algorithms(cuda::std::execution::env{ref, memory{{}, resource}}, resource, stream.value());
        stream.synchronize();
    }
    EXPECT(resource.stats()->bytes.value == 0);
    return ", \"allocations\": " + std::to_string(resource.stats()->allocations.total);
}

/// CUB keeps exceptions in: a request that fails is a status.
std::string failures() {
    alluvion::resource none("stats | limiting(8MiB) | cuda-async");
    {
        alluvion::stream stream;
        auto *const given = static_cast<int *>(none.allocate(stream, std::size_t{8} << 20));
        cuda::std::execution::env const environment{cuda::stream_ref(stream.value()), none};
        cudaError_t const status = cub::DeviceReduce::Sum(given, given, 1 << 20, environment);
        EXPECT(status == cudaErrorMemoryAllocation);
        none.deallocate(stream, given, std::size_t{8} << 20);
        stream.synchronize();
    }
    EXPECT(none.stats()->bytes.value == 0);
    return "";
}

} // namespace

int main() {
    CUDA(cudaSetDevice(0));
    CUDA(cudaFree(nullptr));
    for (char const *recipe : {"stats | pool | cuda-async", "stats | arena(bytes=4GiB) | cuda"}) {
        alluvion::resource resource(recipe, 0);
        said::part("cub", (std::string("environments with ") + recipe).c_str(), [&] { return environments(resource); });
    }
    said::part("cub", "a request that fails", failures);
    return said::failures == 0 ? 0 : 1;
}
