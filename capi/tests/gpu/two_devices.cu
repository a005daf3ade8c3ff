// Does each of two devices have its own stack, and use memory of the other? On a machine with one, it says so, and is done.
#include <alluvion.hpp>
#include <alluvion/containers.hpp>

#include "said.hpp"

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t words = std::size_t{3} << 18;

__global__ void write(std::uint32_t *block, std::size_t count, std::uint32_t seed) {
    for (std::size_t at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += gridDim.x * blockDim.x) {
        block[at] = seed + static_cast<std::uint32_t>(at);
    }
}

/// Streams of both devices, and an event of each, to have the one wait for the other.
class pair_of_streams {
public:
    pair_of_streams() {
        for (int device = 0; device < 2; ++device) {
            CUDA(cudaSetDevice(device));
            CUDA(cudaStreamCreateWithFlags(&streams_[device], cudaStreamNonBlocking));
            CUDA(cudaEventCreateWithFlags(&events_[device], cudaEventDisableTiming));
        }
    }
    pair_of_streams(pair_of_streams const &) = delete;
    pair_of_streams &operator=(pair_of_streams const &) = delete;
    ~pair_of_streams() {
        for (int device = 0; device < 2; ++device) {
            cudaSetDevice(device);
            cudaStreamSynchronize(streams_[device]);
            cudaEventDestroy(events_[device]);
            cudaStreamDestroy(streams_[device]);
        }
    }

    cudaStream_t of(int device) const { return streams_[device]; }

    /// What a device is given next comes after all that the other one was given so far.
    void follow(int device) const {
        CUDA(cudaSetDevice(1 - device));
        CUDA(cudaEventRecord(events_[1 - device], streams_[1 - device]));
        CUDA(cudaSetDevice(device));
        CUDA(cudaStreamWaitEvent(streams_[device], events_[1 - device], 0));
    }

private:
    std::array<cudaStream_t, 2> streams_{};
    std::array<cudaEvent_t, 2> events_{};
};

bool holds(void const *block, int device, cudaStream_t stream, std::uint32_t seed) {
    std::vector<std::uint32_t> found(words);
    CUDA(cudaSetDevice(device));
    CUDA(cudaMemcpyAsync(found.data(), block, words * sizeof(std::uint32_t), cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    for (std::size_t at = 0; at < words; ++at) {
        if (found[at] != seed + static_cast<std::uint32_t>(at)) {
            return false;
        }
    }
    return true;
}

/// A kernel of the device, at memory of either.
void write_by(int device, cudaStream_t stream, void *block, std::uint32_t seed) {
    CUDA(cudaSetDevice(device));
    write<<<64, 256, 0, stream>>>(static_cast<std::uint32_t *>(block), words, seed);
    CUDA(cudaGetLastError());
}

/// Each device writes memory of the other, and the memory is given back while that work may still run.
std::string peers(char const *recipe) {
    auto const stacks = alluvion::per_device(recipe);
    EXPECT(stacks.size() >= 2);
    pair_of_streams const streams;
    for (std::uint32_t round = 0; round < 8; ++round) {
        for (int own = 0; own < 2; ++own) {
            int const other = 1 - own;
            alluvion::stream_view const home(streams.of(own));
            alluvion::buffer block(words * sizeof(std::uint32_t), home, stacks[static_cast<std::size_t>(own)]);
            streams.follow(other);
            write_by(other, streams.of(other), block.data(), 100 * round);
            streams.follow(own);
            EXPECT(holds(block.data(), own, streams.of(own), 100 * round));
            streams.follow(other);
            write_by(other, streams.of(other), block.data(), 100 * round + 1);
            // The block goes back behind the work of the peer.
            streams.follow(own);
        }
    }
    for (auto const &stack : stacks) {
        auto const counts = stack.stats();
        EXPECT(counts && counts->allocations.value == 0 && counts->allocations.total == 8);
    }
    return "";
}

/// The loop over devices of RMM's guide: a stack for each, current there, and containers that find it.
std::string loop() {
    std::vector<alluvion::resource> const stacks = alluvion::per_device("stats | pool | cuda-async");
    auto const live_of = [](alluvion::resource const &stack) { return stack.stats()->allocations.value; };
    std::vector<alluvion::device_uvector<std::uint32_t>> made;
    alluvion::stream const first(0), second(1);
    for (int device = 0; device < 2; ++device) {
        CUDA(cudaSetDevice(device));
        alluvion::stream const &stream = device == 0 ? first : second, &wrong = device == 0 ? second : first;
        alluvion::resource const &stack = stacks[static_cast<std::size_t>(device)];
        alluvion::device_uvector<std::uint32_t> numbers(words, stream, stack);
        numbers.set_element(words - 1, 7 + static_cast<std::uint32_t>(device), stream);
        EXPECT(numbers.element(words - 1, stream) == 7 + static_cast<std::uint32_t>(device));
        cudaPointerAttributes found{};
        CUDA(cudaPointerGetAttributes(&found, numbers.data()));
        EXPECT(found.device == device);
        EXPECT(live_of(stack) == 1);
        // A stream of the other device is refused, before anything has happened.
        alv_status status = ALV_OK;
        try {
            static_cast<void>(stack.allocate(wrong, 256));
        } catch (alluvion::error const &thrown) {
            status = thrown.status();
        }
        EXPECT(status == ALV_DEVICE_MISMATCH && live_of(stack) == 1);
        made.push_back(std::move(numbers));
    }
    // That of the first device is destroyed where the second one is current.
    CUDA(cudaSetDevice(1));
    made.clear();
    EXPECT(live_of(stacks[0]) == 0 && live_of(stacks[1]) == 0);
    int current = -1;
    CUDA(cudaGetDevice(&current));
    EXPECT(current == 1);
    return "";
}

/// A stack sleeps behind the work of a peer that writes to its pages; both devices have them at the old addresses again.
std::string sleep() {
    alluvion::resource const stack("stats | tracking | pool | mapped(peers=all)", 0);
    alluvion::host_device_resource const host("pool | pinned", 0);
    pair_of_streams const streams;
    for (std::uint32_t round = 0; round < 4; ++round) {
        alluvion::stream_view const home(streams.of(0));
        alluvion::buffer block(words * sizeof(std::uint32_t), home, stack);
        void *const address = block.data();
        streams.follow(1);
        write_by(1, streams.of(1), address, 10 * round);
        streams.follow(0);
        alluvion::sleeper asleep(stack, host);
        EXPECT(asleep.is_asleep() && stack.status()->reserved_bytes == 0);
        asleep.wake();
        EXPECT(block.data() == address && holds(address, 0, streams.of(0), 10 * round));
        streams.follow(1);
        write_by(1, streams.of(1), address, 10 * round + 1);
        streams.follow(0);
        EXPECT(holds(address, 0, streams.of(0), 10 * round + 1));
    }
    return "";
}

} // namespace

int main() {
    int count = 0;
    CUDA(cudaGetDeviceCount(&count));
    if (count < 2) {
        std::printf("{\"program\": \"two_devices\", \"build\": \"%s\", \"skipped\": \"there is one GPU\"}\n", said::build());
        return 0;
    }
    for (char const *recipe : {"stats | cuda(peers=all)", "stats | pool | cuda(peers=all)", "stats | pool | cuda-async(peers=all)",
                               "stats | pool | mapped(peers=all)"}) {
        said::part("two_devices", recipe, [&] { return peers(recipe); });
    }
    said::part("two_devices", "the loop over devices", [] { return loop(); });
    said::part("two_devices", "sleep of what a peer uses", [] { return sleep(); });
    return said::failures == 0 ? 0 : 1;
}
