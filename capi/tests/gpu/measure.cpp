// What does a pair of an allocation and a free cost, beside RMM's pool and arena in the same run? A line of JSON for each figure.
// Every figure is the least of several rounds: what the machine does meanwhile only adds.
#include <alluvion/containers.hpp>
#include <alluvion/rmm.hpp>

#include "said.hpp"

#include <rmm/device_uvector.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda/memory_resource>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace {

using any_resource = cuda::mr::any_resource<cuda::mr::device_accessible>;
using clock_type = std::chrono::steady_clock;

constexpr std::size_t kib = 1024;
constexpr std::size_t gib = kib * kib * kib;
constexpr int rounds = 7;

double seconds_since(clock_type::time_point started) {
    return std::chrono::duration<double>(clock_type::now() - started).count();
}

void print(char const *what, char const *how, char const *stream, std::size_t bytes, unsigned threads, double value,
           char const *unit) {
    std::printf("{\"measure\": \"%s\", \"how\": \"%s\", \"build\": \"%s\", \"stream\": \"%s\", ", what, how, said::build(), stream);
    std::printf("\"bytes\": %zu, \"threads\": %u, \"%s\": %.1f}\n", bytes, threads, unit, value);
    std::fflush(stdout);
}

/// Nanoseconds of one call of `body`, the least of several rounds of `count` calls.
template <class Body>
double nanoseconds(int count, Body const &body) {
    for (int warm = 0; warm < 100; ++warm) {
        body();
    }
    double least = std::numeric_limits<double>::max();
    for (int round = 0; round < rounds; ++round) {
        auto const started = clock_type::now();
        for (int call = 0; call < count; ++call) {
            body();
        }
        least = std::min(least, seconds_since(started) * 1e9 / count);
    }
    return least;
}

/// Million calls a second of all threads together, each with what `make` makes it: the most of several rounds.
template <class Make>
double millions(unsigned threads, int count, Make const &make) {
    double most = 0;
    for (int round = 0; round < rounds; ++round) {
        std::atomic<unsigned> ready{0};
        std::atomic<bool> go{false};
        std::vector<double> seconds(threads);
        std::vector<std::thread> running;
        for (unsigned thread = 0; thread < threads; ++thread) {
            running.emplace_back([&, thread] {
                CUDA(cudaSetDevice(0));
                auto body = make(thread);
                for (int warm = 0; warm < 100; ++warm) {
                    body();
                }
                ++ready;
                while (!go.load(std::memory_order_acquire)) {
                }
                auto const started = clock_type::now();
                for (int call = 0; call < count; ++call) {
                    body();
                }
                seconds[thread] = seconds_since(started);
            });
        }
        while (ready.load() < threads) {
        }
        go.store(true, std::memory_order_release);
        for (auto &thread : running) {
            thread.join();
        }
        most = std::max(most, threads * static_cast<double>(count) / *std::max_element(seconds.begin(), seconds.end()) / 1e6);
    }
    return most;
}

struct named_stream {
    char const *name;
    cudaStream_t stream;
};

template <class Resource>
void pairs_erased(char const *how, Resource const &resource, std::vector<named_stream> const &streams) {
    any_resource erased(resource);
    for (auto const &[name, stream] : streams) {
        cuda::stream_ref const ref(stream);
        for (std::size_t const bytes : {kib, 256 * kib}) {
            double const cost = nanoseconds(20000, [&] { erased.deallocate(ref, erased.allocate(ref, bytes, 256), bytes, 256); });
            print("a pair through any_resource", how, name, bytes, 1, cost, "ns");
        }
    }
}

template <class Resource>
void threads_erased(char const *how, Resource const &resource, std::vector<cudaStream_t> const &streams, int count) {
    any_resource const erased(resource);
    double const rate = millions(16, count, [&](unsigned thread) {
        return [own = erased, ref = cuda::stream_ref(streams[thread])]() mutable {
            own.deallocate(ref, own.allocate(ref, kib, 256), kib, 256);
        };
    });
    print("pairs through any_resource, a stream each", how, "created", kib, 16, rate, "million a second");
}

template <class Resource>
void vectors(char const *how, Resource const &resource, std::vector<named_stream> const &streams) {
    for (auto const &[name, stream] : streams) {
        cuda::stream_ref const ref(stream);
        any_resource const erased(resource);
        double const cost = nanoseconds(20000, [&] { rmm::device_uvector<int> vector(1000, ref, erased); });
        print("rmm::device_uvector<int>(1000)", how, name, 4000, 1, cost, "ns");
    }
}

void ours(alluvion::resource const &resource, std::vector<named_stream> const &streams) {
    alv_resource *const handle = resource.native_handle();
    for (auto const &[name, stream] : streams) {
        for (std::size_t const bytes : {kib, 256 * kib}) {
            double const raw = nanoseconds(50000, [&, stream = stream] {
                void *block = nullptr;
                if (alv_allocate(handle, bytes, 256, stream, &block) == ALV_OK) {
                    alv_deallocate(handle, block, bytes, 256, stream);
                }
            });
            print("a pair through C", "a raw handle", name, bytes, 1, raw, "ns");
            auto const known = alluvion::stream::wrap(stream);
            double const wrapped = nanoseconds(50000, [&] {
                void *block = nullptr;
                if (alv_allocate_on(handle, bytes, 256, known.native_handle(), &block) == ALV_OK) {
                    alv_deallocate_on(handle, block, bytes, 256, known.native_handle());
                }
            });
            print("a pair through C", "a wrapped stream", name, bytes, 1, wrapped, "ns");
        }
        double const vector =
            nanoseconds(20000, [&, stream = stream] { alluvion::device_uvector<int> vector(1000, stream, resource); });
        print("alluvion::device_uvector<int>(1000)", "pool | cuda-async", name, 4000, 1, vector, "ns");
    }
}

void ledgers(alluvion::resource const &resource, std::vector<named_stream> const &streams, std::vector<cudaStream_t> const &each) {
    alv_ledger *ledger = nullptr;
    EXPECT(alv_ledger_over(resource.native_handle(), &ledger) == ALV_OK);
    auto const pair = [ledger](cudaStream_t stream) {
        void *block = nullptr;
        if (alv_ledger_allocate_raw(ledger, kib, 256, alv_stream_of_this_file(stream), &block) == ALV_OK) {
            alv_ledger_free_raw(ledger, block, alv_stream_of_this_file(stream));
        }
    };
    for (auto const &[name, stream] : streams) {
        print("a pair through a ledger", "pool | cuda-async", name, kib, 1,
              nanoseconds(50000, [&, stream = stream] { pair(stream); }), "ns");
    }
    double const rate = millions(16, 200000, [&](unsigned thread) { return [&pair, stream = each[thread]] { pair(stream); }; });
    print("pairs through a ledger, a stream each", "pool | cuda-async", "created", kib, 16, rate, "million a second");
    alv_ledger_release(ledger);
}

} // namespace

int main() {
    CUDA(cudaSetDevice(0));
    CUDA(cudaFree(nullptr));
    std::vector<cudaStream_t> created(16);
    for (auto &stream : created) {
        CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    std::vector<named_stream> const streams{
        {"0", nullptr}, {"legacy", cudaStreamLegacy}, {"of the thread", cudaStreamPerThread}, {"created", created[0]}};
    {
        alluvion::resource pool("pool(initial=1GiB) | cuda-async", 0);
        alluvion::rmm::resource for_rmm(pool);
        rmm::mr::pool_memory_resource rmm_pool{rmm::mr::cuda_memory_resource{}, gib};
        rmm::mr::arena_memory_resource rmm_arena{rmm::mr::cuda_memory_resource{}, 2 * gib};

        ours(pool, streams);
        pairs_erased("pool | cuda-async", for_rmm, streams);
        pairs_erased("RMM's pool", rmm_pool, streams);
        pairs_erased("RMM's arena", rmm_arena, streams);
        threads_erased("pool | cuda-async", for_rmm, created, 200000);
        threads_erased("RMM's pool", rmm_pool, created, 5000);
        threads_erased("RMM's arena", rmm_arena, created, 20000);
        vectors("pool | cuda-async", for_rmm, streams);
        vectors("RMM's pool", rmm_pool, streams);
        vectors("RMM's arena", rmm_arena, streams);

        double const handle = nanoseconds(100000, [&] { alluvion::resource copy(pool); });
        print("a copy and a drop", "the handle", "none", 0, 1, handle, "ns");
        any_resource const of_ours(for_rmm), of_theirs(rmm_pool);
        double const erased = nanoseconds(100000, [&] { any_resource copy(of_ours); });
        print("a copy and a drop", "any_resource over the handle", "none", 0, 1, erased, "ns");
        double const theirs = nanoseconds(100000, [&] { any_resource copy(of_theirs); });
        print("a copy and a drop", "any_resource over RMM's pool", "none", 0, 1, theirs, "ns");
        ledgers(pool, streams, created);
    }
    CUDA(cudaDeviceSynchronize());
    for (cudaStream_t stream : created) {
        CUDA(cudaStreamDestroy(stream));
    }
    return said::failures == 0 ? 0 : 1;
}
