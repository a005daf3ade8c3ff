// What RMM's adaptors cost, on the workload of `alluvion bench layers`, in the same lines: layers,stack,case,value.
//
// Needs librmm and rapids_logger 26.10 and a GPU.
// build: g++ -std=c++20 -O3 -DNDEBUG rmm_layers.cpp -I<librmm>/include{,/rapids} -I<rapids_logger>/include -lrmm -lrapids_logger -lcudart -lpthread
// usage: rmm_layers LOGFILE
#include <rmm/cuda_stream.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/logging_resource_adaptor.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

using any_mr = cuda::mr::any_resource<cuda::mr::device_accessible>;
using wall = std::chrono::steady_clock;

static double ns_since(wall::time_point start) { return std::chrono::duration<double, std::nano>(wall::now() - start).count(); }

struct Stack {
  std::string name;
  std::function<any_mr(any_mr)> over;
};

static std::vector<Stack> stacks(std::string const& log) {
  constexpr size_t limit = size_t{1} << 40;
  return {
    {"rmm", [](any_mr up) -> any_mr { return up; }},
    {"rmm_statistics", [](any_mr up) -> any_mr { return rmm::mr::statistics_resource_adaptor{up}; }},
    {"rmm_limiting", [](any_mr up) -> any_mr { return rmm::mr::limiting_resource_adaptor{up, limit}; }},
    {"rmm_tracking", [](any_mr up) -> any_mr { return rmm::mr::tracking_resource_adaptor{up}; }},
    {"rmm_logging", [log](any_mr up) -> any_mr { return rmm::mr::logging_resource_adaptor{up, log}; }},
    {"rmm_logging+statistics+limiting", [log](any_mr up) -> any_mr {
      return rmm::mr::logging_resource_adaptor{rmm::mr::statistics_resource_adaptor{rmm::mr::limiting_resource_adaptor{up, limit}}, log}; }},
  };
}

// Nanoseconds for an allocation of 1 KiB and its free: the median of seven rounds.
static double pair_ns(any_mr& mr, cudaStream_t stream, int pairs) {
  std::vector<double> rounds;
  for (int round = 0; round < 7; round++) {
    auto start = wall::now();
    for (int i = 0; i < pairs; i++) {
      void* block = mr.allocate(cuda::stream_ref{stream}, 1024, 256);
      mr.deallocate(cuda::stream_ref{stream}, block, 1024, 256);
    }
    rounds.push_back(ns_since(start) / pairs);
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds[rounds.size() / 2];
}

// Million operations a second of `count` threads with a stream each that allocate and free 1 KiB.
static double threads_mops(any_mr& mr, int count, int pairs) {
  std::barrier line(count + 1);
  std::vector<std::thread> threads;
  for (int t = 0; t < count; t++) threads.emplace_back([&] {
    rmm::cuda_stream stream;
    auto pass = [&](int n) { for (int i = 0; i < n; i++) mr.deallocate(stream.view(), mr.allocate(stream.view(), 1024, 256), 1024, 256); };
    pass(100);
    line.arrive_and_wait();
    pass(pairs);
    line.arrive_and_wait();
  });
  line.arrive_and_wait();
  auto start = wall::now();
  line.arrive_and_wait();
  double ns = ns_since(start);
  for (auto& thread : threads) thread.join();
  return 2e3 * pairs * count / ns;
}

int main(int argc, char** argv) {
  if (argc != 2) { std::fprintf(stderr, "usage: rmm_layers LOGFILE\n"); return 2; }
  cudaFree(nullptr);
  rmm::cuda_stream stream;
  void* place = reinterpret_cast<void*>(0x100000000);
  for (auto const& stack : stacks(argv[1])) {
    auto null = any_mr{rmm::mr::callback_memory_resource{
      [place](size_t, cuda::stream_ref, void*) { return place; }, [](void*, size_t, cuda::stream_ref, void*) {}}};
    auto over_null = stack.over(null);
    std::printf("layers,%s,over=null pair ns,%.1f\n", stack.name.c_str(), pair_ns(over_null, stream.value(), 20000));
    auto pool = any_mr{rmm::mr::pool_memory_resource{any_mr{rmm::mr::cuda_memory_resource{}}, size_t{1} << 30}};
    auto over_pool = stack.over(pool);
    std::printf("layers,%s,over=pool pair ns,%.1f\n", stack.name.c_str(), pair_ns(over_pool, stream.value(), 5000));
    std::printf("layers,%s,over=pool T=16 Mops/s,%.3f\n", stack.name.c_str(), threads_mops(over_pool, 16, 5000));
    std::fflush(stdout);
  }
}
