// Is memory handed out early? Owner words in every block of threads that share streams, streams that are destroyed with work on
// them, and requests while a stream captures. Built with and without per-thread default streams.
#include <alluvion.hpp>

#include "said.hpp"

#include <cuda_runtime.h>

#include <cstdint>
#include <deque>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

__global__ void fill(std::uint64_t *block, std::size_t words, std::uint64_t owner) {
    for (std::size_t word = blockIdx.x * blockDim.x + threadIdx.x; word < words; word += gridDim.x * blockDim.x) {
        block[word] = owner + word;
    }
}

__global__ void verify(std::uint64_t const *block, std::size_t words, std::uint64_t owner, unsigned *wrong) {
    for (std::size_t word = blockIdx.x * blockDim.x + threadIdx.x; word < words; word += gridDim.x * blockDim.x) {
        if (block[word] != owner + word) {
            atomicAdd(wrong, 1);
        }
    }
}

/// Keeps its stream busy, and writes at the end: where the memory is somebody else's by then, that one sees it.
__global__ void write_late(std::uint64_t *block, std::size_t words, std::uint64_t owner, long long nanoseconds) {
    long long start = 0, now = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        __nanosleep(1000);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
    for (std::size_t word = threadIdx.x; word < words; word += blockDim.x) {
        block[word] = owner + word;
    }
}

/// A counter in memory of the device that kernels count mistakes in.
class mistakes {
public:
    mistakes() {
        CUDA(cudaMalloc(&count_, sizeof(unsigned)));
        CUDA(cudaMemset(count_, 0, sizeof(unsigned)));
        CUDA(cudaDeviceSynchronize());
    }
    ~mistakes() { cudaFree(count_); }
    unsigned *where() const { return count_; }
    unsigned count() const {
        unsigned found = 0;
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaMemcpy(&found, count_, sizeof(found), cudaMemcpyDeviceToHost));
        return found;
    }

private:
    unsigned *count_ = nullptr;
};

struct held {
    void *block;
    std::size_t bytes;
    std::uint64_t owner;
    cudaStream_t stream;
};

std::string owners(alluvion::resource const &resource, int threads, int rounds) {
    // The three special handles, and streams that wait for the legacy one and that do not.
    std::vector<cudaStream_t> streams{cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread};
    std::vector<cudaStream_t> made;
    for (int stream = 0; stream < 5; ++stream) {
        cudaStream_t next = nullptr;
        CUDA(cudaStreamCreateWithFlags(&next, stream % 2 == 0 ? cudaStreamNonBlocking : cudaStreamDefault));
        made.push_back(next);
        streams.push_back(next);
    }
    mistakes wrong;
    std::vector<std::thread> running;
    for (int thread = 0; thread < threads; ++thread) {
        running.emplace_back([&, thread] {
            std::mt19937_64 random(static_cast<std::uint64_t>(thread) + 1);
            std::deque<held> blocks;
            cudaEvent_t order = nullptr;
            CUDA(cudaEventCreateWithFlags(&order, cudaEventDisableTiming));
            auto const give_back = [&] {
                held const last = blocks.front();
                blocks.pop_front();
                auto const *const words = static_cast<std::uint64_t *>(last.block);
                verify<<<4, 256, 0, last.stream>>>(words, last.bytes / 8, last.owner, wrong.where());
                cudaStream_t back = last.stream;
                if (random() % 4 == 0) {
                    // On another stream, which waits for this one first.
                    back = streams[random() % streams.size()];
                    CUDA(cudaEventRecord(order, last.stream));
                    CUDA(cudaStreamWaitEvent(back, order, 0));
                }
                resource.deallocate(back, last.block, last.bytes);
            };
            for (int round = 0; round < rounds; ++round) {
                std::size_t const bytes = (std::size_t{256} << random() % 13) + random() % 64 * 8;
                cudaStream_t const stream = streams[random() % streams.size()];
                std::uint64_t const owner = (std::uint64_t(thread + 1) << 48) | (std::uint64_t(round) << 24);
                void *const block = resource.allocate(stream, bytes);
                fill<<<4, 256, 0, stream>>>(static_cast<std::uint64_t *>(block), bytes / 8, owner);
                blocks.push_back({block, bytes, owner, stream});
                while (blocks.size() > 12) {
                    give_back();
                }
            }
            while (!blocks.empty()) {
                give_back();
            }
            // The stream of this thread goes with it.
            CUDA(cudaStreamSynchronize(cudaStreamPerThread));
            CUDA(cudaEventDestroy(order));
        });
    }
    for (auto &thread : running) {
        thread.join();
    }
    unsigned const found = wrong.count();
    EXPECT(found == 0);
    for (cudaStream_t stream : made) {
        CUDA(cudaStreamDestroy(stream));
    }
    auto const counted = resource.stats();
    EXPECT(counted && counted->bytes.value == 0 && counted->allocations.total == threads * rounds);
    return ", \"blocks\": " + std::to_string(threads * rounds) + ", \"wrong words\": " + std::to_string(found);
}

/// The driver gives the handle of a destroyed stream out again while its work still runs.
std::string destroyed(alluvion::resource const &resource, int rounds) {
    mistakes wrong;
    int same = 0, same_block = 0;
    constexpr std::size_t bytes = mib;
    for (int round = 0; round < rounds; ++round) {
        cudaStream_t first = nullptr, second = nullptr;
        CUDA(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
        void *const old = resource.allocate(first, bytes);
        write_late<<<1, 256, 0, first>>>(static_cast<std::uint64_t *>(old), bytes / 8, 1, 2'000'000);
        resource.deallocate(first, old, bytes);
        CUDA(cudaStreamDestroy(first));

        CUDA(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
        same += first == second ? 1 : 0;
        void *const block = resource.allocate(second, bytes);
        same_block += block == old ? 1 : 0;
        std::uint64_t const owner = std::uint64_t{2} << 40;
        fill<<<16, 256, 0, second>>>(static_cast<std::uint64_t *>(block), bytes / 8, owner);
        // What the old kernel writes late is written by now.
        CUDA(cudaDeviceSynchronize());
        verify<<<16, 256, 0, second>>>(static_cast<std::uint64_t *>(block), bytes / 8, owner, wrong.where());
        resource.deallocate(second, block, bytes);
        CUDA(cudaStreamDestroy(second));
    }
    unsigned const found = wrong.count();
    EXPECT(found == 0);
    return ", \"rounds\": " + std::to_string(rounds) + ", \"same handle\": " + std::to_string(same) +
           ", \"same block\": " + std::to_string(same_block) + ", \"wrong words\": " + std::to_string(found);
}

/// Ten thousand streams that come and go leave nothing behind that a program could notice.
std::string many_streams(alluvion::resource const &resource, int rounds) {
    for (int round = 0; round < rounds; ++round) {
        cudaStream_t stream = nullptr;
        CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        void *const block = resource.allocate(stream, 4096);
        fill<<<1, 256, 0, stream>>>(static_cast<std::uint64_t *>(block), 512, 1);
        resource.deallocate(stream, block, 4096);
        CUDA(cudaStreamDestroy(stream));
    }
    CUDA(cudaDeviceSynchronize());
    auto const counted = resource.stats();
    auto const pool = resource.status();
    EXPECT(counted && counted->bytes.value == 0);
    // One segment: the blocks of streams that are gone serve the next ones.
    EXPECT(pool && pool->peak_reserved_bytes <= 64 * mib);
    return ", \"streams\": " + std::to_string(rounds) +
           ", \"peak reserved\": " + std::to_string(pool ? pool->peak_reserved_bytes : 0);
}

std::string captures(alluvion::resource const &resource) {
    std::string more;
    for (auto const &[mode, name] : {std::pair{cudaStreamCaptureModeThreadLocal, "thread-local"},
                                    std::pair{cudaStreamCaptureModeGlobal, "global"},
                                    std::pair{cudaStreamCaptureModeRelaxed, "relaxed"}}) {
        cudaStream_t stream = nullptr;
        CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        // Into the cache of the stream.
        void *block = resource.allocate(stream, mib);
        resource.deallocate(stream, block, mib);
        CUDA(cudaStreamSynchronize(stream));

        CUDA(cudaStreamBeginCapture(stream, mode));
        alv_status const cached = alv_allocate(resource.native_handle(), mib, 0, stream, &block);
        if (cached == ALV_OK) {
            fill<<<4, 256, 0, stream>>>(static_cast<std::uint64_t *>(block), mib / 8, 5);
        }
        void *larger = nullptr;
        alv_status const grown = alv_allocate(resource.native_handle(), 3000 * mib, 0, stream, &larger);
        if (grown == ALV_OK) {
            alv_deallocate(resource.native_handle(), larger, 3000 * mib, 0, stream);
        }
        // The capture goes on in any case.
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        CUDA(cudaStreamIsCapturing(stream, &status));
        EXPECT(status == cudaStreamCaptureStatusActive);
        if (cached == ALV_OK) {
            alv_deallocate(resource.native_handle(), block, mib, 0, stream);
        }
        cudaGraph_t graph = nullptr;
        cudaError_t const ended = cudaStreamEndCapture(stream, &graph);
        EXPECT(ended == cudaSuccess && graph != nullptr);
        EXPECT(cached == ALV_OK);
        EXPECT(grown == ALV_OK || grown == ALV_CAPTURE);
        if (ended == cudaSuccess) {
            cudaGraphExec_t program = nullptr;
            CUDA(cudaGraphInstantiate(&program, graph, 0));
            CUDA(cudaGraphLaunch(program, stream));
            CUDA(cudaStreamSynchronize(stream));
            CUDA(cudaGraphExecDestroy(program));
            CUDA(cudaGraphDestroy(graph));
        }
        // And everything works afterwards.
        block = resource.allocate(stream, 3000 * mib);
        resource.deallocate(stream, block, 3000 * mib);
        CUDA(cudaStreamSynchronize(stream));
        CUDA(cudaStreamDestroy(stream));
        more += std::string(", \"") + name + "\": \"" + alv_status_name(cached) + ", " + alv_status_name(grown) + "\"";
    }
    return more;
}

/// What fails changes nothing of the program's state of CUDA.
std::string state(alluvion::resource const &resource) {
    int before = -1, after = -1;
    CUDA(cudaGetDevice(&before));
    void *block = nullptr;
    EXPECT(alv_allocate(resource.native_handle(), std::size_t{1} << 46, 0, nullptr, &block) == ALV_OUT_OF_MEMORY);
    EXPECT(block == nullptr && cudaPeekAtLastError() == cudaSuccess);
    // A handle that is no stream is not asked for more than what it is.
    EXPECT(alv_allocate(resource.native_handle(), 64, 3, nullptr, &block) == ALV_INVALID_ALIGNMENT);
    CUDA(cudaGetDevice(&after));
    EXPECT(before == after && cudaGetLastError() == cudaSuccess);
    return "";
}

} // namespace

int main() {
    CUDA(cudaSetDevice(0));
    CUDA(cudaFree(nullptr));
    for (char const *recipe : {"stats | pool | cuda-async", "stats | arena(bytes=8GiB) | cuda", "stats | pool | mapped"}) {
        alluvion::resource resource(recipe, 0);
        said::part("streams", recipe, [&] { return owners(resource, 8, 1500); });
    }
    {
        alluvion::resource resource("stats | pool | cuda-async", 0);
        said::part("streams", "destroyed with work on them", [&] { return destroyed(resource, 300); });
    }
    {
        alluvion::resource resource("stats | pool | cuda", 0);
        said::part("streams", "ten thousand", [&] { return many_streams(resource, 10000); });
    }
    for (char const *recipe : {"pool | cuda-async", "pool | cuda"}) {
        alluvion::resource resource(recipe, 0);
        said::part("streams", (std::string("captures of ") + recipe).c_str(), [&] { return captures(resource); });
        said::part("streams", (std::string("state after failures of ") + recipe).c_str(), [&] { return state(resource); });
    }
    return said::failures == 0 ? 0 : 1;
}
