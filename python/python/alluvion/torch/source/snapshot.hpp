// What `torch.cuda.memory_snapshot` shows of a device's stack.
#ifndef ALLUVION_TORCH_SNAPSHOT_HPP
#define ALLUVION_TORCH_SNAPSHOT_HPP

#include "blocks.hpp"
#include "door.hpp"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace alluvion_torch {

using c10::cuda::CUDACachingAllocator::BlockInfo;
using c10::cuda::CUDACachingAllocator::SegmentInfo;
using c10::cuda::CUDACachingAllocator::SnapshotInfo;
using c10::cuda::CUDACachingAllocator::TraceEntry;

// Memory by its address and bytes.
using piece = std::pair<std::size_t, std::size_t>;

struct seen_block {
    std::size_t address;
    block what;
    // By PyTorch, while streams use it still.
    bool is_freed;
};

// The pieces of the driver's memory that a stack has. Without a suballocator each block is one.
inline std::vector<piece> pieces_of(alv_door_handle *stack, std::vector<seen_block> const &blocks) {
    std::vector<piece> pieces;
    int32_t const status = table()->segments(
        stack,
        [](void *to, void *address, std::size_t bytes) {
            static_cast<std::vector<piece> *>(to)->emplace_back(reinterpret_cast<std::size_t>(address), bytes);
        },
        &pieces);
    if (status != ALV_DOOR_OK)
        for (seen_block const &each : blocks) pieces.emplace_back(each.address, each.what.bytes);
    return pieces;
}

// What is left of pieces beside the holes, which lie in them.
inline std::vector<piece> without(std::vector<piece> const &pieces, std::map<void *, std::size_t> const &holes) {
    std::vector<piece> left;
    for (auto [begin, bytes] : pieces) {
        std::size_t const end = begin + bytes;
        for (auto each = holes.lower_bound(reinterpret_cast<void *>(begin)); each != holes.end(); ++each) {
            auto const hole = reinterpret_cast<std::size_t>(each->first);
            if (hole >= end) break;
            if (hole > begin) left.emplace_back(begin, hole - begin);
            begin = hole + each->second;
        }
        if (begin < end) left.emplace_back(begin, end - begin);
    }
    return left;
}

inline void add_gap(SegmentInfo &segment, std::size_t bytes) {
    if (bytes == 0) return;
    BlockInfo free;
    free.size = bytes;
    segment.blocks.push_back(std::move(free));
}

inline void add_block(SegmentInfo &segment, seen_block const &seen) {
    BlockInfo info;
    info.size = seen.what.bytes;
    info.requested_size = seen.what.requested;
    info.allocated = !seen.is_freed;
    info.active = true;
    info.context_when_allocated = seen.what.context;
    segment.active_size += info.size;
    segment.requested_size += info.requested_size;
    if (info.allocated) segment.allocated_size += info.size;
    if (segment.stream == nullptr) segment.stream = seen.what.stream;
    segment.blocks.push_back(std::move(info));
}

// Adds a segment for each piece. Both are in the order of their addresses.
inline void add_segments(SnapshotInfo &sum, c10::DeviceIndex device, std::vector<piece> const &pieces, std::vector<seen_block> const &blocks) {
    auto next = blocks.begin();
    for (auto const &[begin, bytes] : pieces) {
        SegmentInfo segment;
        segment.device = device;
        segment.address = begin;
        segment.total_size = bytes;
        segment.is_large = true;
        // A segment of ours grows and shrinks, and has more than one allocation of the driver's.
        segment.is_expandable = true;
        while (next != blocks.end() && next->address < begin) ++next;
        std::size_t at = begin;
        for (; next != blocks.end() && next->address + next->what.bytes <= begin + bytes; ++next) {
            // Beside threads that allocate, a block may be seen that lies where another one was seen before.
            if (next->address < at) continue;
            add_gap(segment, next->address - at);
            add_block(segment, *next);
            at = next->address + next->what.bytes;
        }
        add_gap(segment, begin + bytes - at);
        sum.segments.push_back(std::move(segment));
    }
}

// Adds entries to those of a device, in the order of time.
inline void add_traces(SnapshotInfo &sum, std::size_t device, std::vector<TraceEntry> ours) {
    if (ours.empty()) return;
    static auto *const clock = new c10::ApproximateClockToUnixTimeConverter;
    auto const time = clock->makeConverter();
    for (TraceEntry &each : ours) each.time_.t_ = time(each.time_.approx_t_) / 1000;
    if (sum.device_traces.size() <= device) sum.device_traces.resize(device + 1);
    auto &all = sum.device_traces[device];
    all.insert(all.end(), std::make_move_iterator(ours.begin()), std::make_move_iterator(ours.end()));
    std::stable_sort(all.begin(), all.end(), [](TraceEntry const &one, TraceEntry const &other) { return one.time_.t_ < other.time_.t_; });
}

} // namespace alluvion_torch

#endif
