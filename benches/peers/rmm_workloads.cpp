// RMM on the workloads of `alluvion bench multi-stream`, `vectors`, `stream-pool` and `priming`, in the same lines: workload,stack,case,value.
//
// Needs librmm and rapids_logger 26.10 and a GPU. Over the headers of alluvion/compat it measures this library instead, as a program of RMM's
// would see it: ci/capi compiles it so.
// build: g++ -std=c++20 -O3 -DNDEBUG rmm_workloads.cpp -I<librmm>/include{,/rapids} -I<rapids_logger>/include -lrmm -lrapids_logger -lcudart -lpthread
// usage: rmm_workloads [--quick]
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

using wall = std::chrono::steady_clock;

static bool quick = false;

static double ns_since(wall::time_point start) { return std::chrono::duration<double, std::nano>(wall::now() - start).count(); }

// The median, over seven rounds of `count` operations, of nanoseconds an operation.
template <class Operation>
static double per_operation(int count, Operation operation) {
  std::vector<double> rounds;
  for (int round = 0; round < 7; round++) {
    auto start = wall::now();
    for (int i = 0; i < count; i++) operation();
    rounds.push_back(ns_since(start) / count);
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds[rounds.size() / 2];
}

// An integer for each piece of work, on the streams in turn. The kernel of RMM's own program is left out.
template <class Make>
static void multi_stream(char const* name, Make make) {
  for (int kernels : {4, 8}) {
    for (int count : {1, 2, 4}) {
      auto mr = make();
      std::vector<rmm::cuda_stream> streams(count);
      auto round = [&] {
        for (int i = 0; i < kernels; i++) rmm::device_uvector<int> one(1, streams[i % count].view(), mr);
      };
      auto start = wall::now();
      round();
      double first = ns_since(start) / kernels;
      double ns = per_operation(quick ? 10 : 1000, round) / kernels;
      for (auto& stream : streams) stream.synchronize();
      std::printf("multi-stream,%s,streams=%d kernels=%d first=%.1f,%.1f\n", name, count, kernels, first, ns);
    }
  }
}

template <class Make>
static void vectors(char const* name, Make make) {
  auto mr = make();
  rmm::cuda_stream stream;
  for (std::size_t elements = 10000; elements <= (quick ? 100000u : 1000000000u); elements *= 10) {
    int count = quick ? 3 : 100;
    double ns = per_operation(count, [&] { rmm::device_uvector<int> made(elements, stream.view(), mr); });
    std::printf("vectors,%s,made and dropped elements=%zu,%.1f\n", name, elements, ns);
    ns = per_operation(count, [&] {
      rmm::device_uvector<int> first(elements, stream.view(), mr);
      rmm::device_uvector<int> second(first, stream.view(), mr);
      rmm::device_uvector<int> third(second, stream.view(), mr);
      stream.synchronize();
    });
    std::printf("vectors,%s,three, two copies elements=%zu,%.1f\n", name, elements, ns);
  }
}

static void stream_pool() {
  rmm::cuda_stream_pool pool;
  void* volatile seen = nullptr;
  double ns = per_operation(quick ? 1000 : 100000, [&] { seen = pool.get_stream().get(); });
  std::printf("stream-pool,next of a pool,%.1f\n", ns);
  ns = per_operation(quick ? 10 : 1000, [&] { rmm::cuda_stream made; seen = made.value(); });
  std::printf("stream-pool,made and destroyed,%.1f\n", ns);
}

static void priming() {
  std::size_t const bytes = std::size_t{1} << 20;
  std::size_t const blocks = quick ? 10 : 100;
  rmm::cuda_stream stream;
  for (std::size_t initial : {std::size_t{0}, blocks * bytes}) {
    auto start = wall::now();
    rmm::mr::cuda_async_memory_resource mr{initial};
    stream.synchronize();
    double made = ns_since(start) / 1e6;
    double rounds[2];
    for (double& round : rounds) {
      std::vector<rmm::device_uvector<char>> taken;
      taken.reserve(blocks);
      start = wall::now();
      for (std::size_t i = 0; i < blocks; i++) taken.emplace_back(bytes, stream.view(), mr);
      stream.synchronize();
      round = ns_since(start) / static_cast<double>(blocks);
      taken.clear();
      stream.synchronize();
    }
    std::printf("priming,cuda-async,initial=%zuMiB made=%.3fms first=%.1f,%.1f\n", initial >> 20, made, rounds[0], rounds[1]);
  }
}

int main(int argc, char** argv) {
  quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  auto pool = [] { return rmm::mr::pool_memory_resource{rmm::mr::cuda_memory_resource{}, 0}; };
  auto driver = [] { return rmm::mr::cuda_async_memory_resource{}; };
  multi_stream("rmm_pool", pool);
  multi_stream("rmm_cuda_async", driver);
  vectors("rmm_pool", pool);
  vectors("rmm_cuda_async", driver);
  stream_pool();
  priming();
}
