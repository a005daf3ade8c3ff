// The blocks of stacks that PyTorch has, by their addresses.
//
// PyTorch frees by the address alone, and asks of a tensor that its context is its address, so that nothing about a block can travel
// with it.
#ifndef ALLUVION_TORCH_BLOCKS_HPP
#define ALLUVION_TORCH_BLOCKS_HPP

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace alluvion_torch {

// A stream of a device. Equal handles of two devices are two streams: the default stream of each is null.
using stream_of_device = std::pair<c10::DeviceIndex, cudaStream_t>;

struct block {
    // What the stack was asked for, and what PyTorch had asked for.
    std::size_t bytes;
    std::size_t requested;
    c10::DeviceIndex device;
    cudaStream_t stream;
    // The streams besides its own that its free waits for.
    std::vector<stream_of_device> users;
    std::shared_ptr<c10::GatheredContext> context;
};

class blocks {
public:
    void add(void *address, block what) {
        shard &place = of(address);
        std::lock_guard<std::mutex> const lock(place.mutex);
        place.blocks.insert_or_assign(address, std::move(what));
    }

    std::optional<block> take(void *address) {
        shard &place = of(address);
        std::lock_guard<std::mutex> const lock(place.mutex);
        auto const found = place.blocks.find(address);
        if (found == place.blocks.end()) return std::nullopt;
        std::optional<block> taken(std::move(found->second));
        place.blocks.erase(found);
        return taken;
    }

    // Whether there is such a block, which `body` has seen under the lock then.
    template <typename Body> bool see(void *address, Body body) {
        shard &place = of(address);
        std::lock_guard<std::mutex> const lock(place.mutex);
        auto const found = place.blocks.find(address);
        if (found == place.blocks.end()) return false;
        body(found->second);
        return true;
    }

    template <typename Body> void each(Body body) {
        for (shard &place : shards_) {
            std::lock_guard<std::mutex> const lock(place.mutex);
            for (auto &[address, what] : place.blocks) body(address, what);
        }
    }

    std::size_t count() {
        std::size_t all = 0;
        for (shard &place : shards_) {
            std::lock_guard<std::mutex> const lock(place.mutex);
            all += place.blocks.size();
        }
        return all;
    }

private:
    // No block has less than 512 bytes, so the bits below tell no two apart.
    struct by_address {
        std::size_t operator()(void *address) const noexcept {
            auto const number = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(address)) >> 9;
            return static_cast<std::size_t>((number * 0x9E3779B97F4A7C15ULL) >> 16);
        }
    };

    struct alignas(64) shard {
        std::mutex mutex;
        std::unordered_map<void *, block, by_address> blocks;
    };

    shard &of(void *address) { return shards_[by_address()(address) % shards_.size()]; }

    // A prime, so that the shard of a block says nothing about its place in the table there.
    std::array<shard, 61> shards_;
};

} // namespace alluvion_torch

#endif
