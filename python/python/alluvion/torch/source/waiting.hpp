// The blocks of a device that PyTorch has freed and that other streams use still, or a capture.
#ifndef ALLUVION_TORCH_WAITING_HPP
#define ALLUVION_TORCH_WAITING_HPP

#include "blocks.hpp"

#include <c10/cuda/CUDAGuard.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace alluvion_torch {

// While it lives, calls of this thread break no capture of another one.
class beside_captures {
public:
    explicit beside_captures(bool any) : any_(any) { exchange(); }
    ~beside_captures() { exchange(); }
    beside_captures(beside_captures const &) = delete;
    beside_captures &operator=(beside_captures const &) = delete;

private:
    void exchange() {
        if (any_) (void)cudaThreadExchangeStreamCaptureMode(&mode_);
    }

    bool any_;
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Where the driver cannot say, as for the legacy stream beside a capture, the answer is yes.
inline bool captures(stream_of_device const &stream) {
    c10::cuda::CUDAGuard const here(stream.first);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream.second, &status) == cudaSuccess) return status != cudaStreamCaptureStatusNone;
    (void)cudaGetLastError();
    return true;
}

class waiting {
public:
    using freed_block = std::pair<void *, block>;

    // Whether there is anything to look for: read at each request.
    bool any() const { return count_.load(std::memory_order_relaxed) > 0; }

    // A block that streams besides its own use.
    void behind_its_users(void *address, block what) {
        auto entry = std::make_unique<waiting_block>();
        auto const users = std::move(what.users);
        entry->freed = {address, std::move(what)};
        std::vector<std::pair<stream_of_device, cudaEvent_t>> events;
        for (stream_of_device const &user : users) {
            cudaEvent_t const event = recorded(user);
            if (event == nullptr) {
                // Nobody can say when that stream is done: the block is never given back.
                std::lock_guard<std::mutex> const lock(mutex_);
                for (auto const &[of, unused] : events) spare_[of.first].push_back(unused);
                lost_.push_back(std::move(entry->freed));
                return;
            }
            events.emplace_back(user, event);
        }
        std::lock_guard<std::mutex> const lock(mutex_);
        entry->events = events.size();
        // Each event leads to it, and the last one ends it.
        waiting_block *const shared = entry.release();
        for (auto const &[user, event] : events) queues_[user].emplace_back(event, shared);
        count_.fetch_add(1, std::memory_order_relaxed);
    }

    // A block that was freed while one of its streams captures.
    void behind_a_capture(void *address, block what) {
        std::lock_guard<std::mutex> const lock(mutex_);
        in_captures_.emplace_back(address, std::move(what));
        count_.fetch_add(1, std::memory_order_relaxed);
    }

    // A segment of a private pool that PyTorch has given back beside a capture.
    void segment_behind_captures(void *address) {
        std::lock_guard<std::mutex> const lock(mutex_);
        segments_.push_back(address);
        count_.fetch_add(1, std::memory_order_relaxed);
    }

    std::vector<void *> segments() {
        std::vector<void *> all;
        std::lock_guard<std::mutex> const lock(mutex_);
        all.swap(segments_);
        count_.fetch_sub(all.size(), std::memory_order_relaxed);
        return all;
    }

    // The blocks that a capture has held back.
    std::vector<freed_block> from_captures() {
        std::vector<freed_block> all;
        std::lock_guard<std::mutex> const lock(mutex_);
        all.swap(in_captures_);
        count_.fetch_sub(all.size(), std::memory_order_relaxed);
        return all;
    }

    // The blocks that nobody uses any more; with `all`, those of all events, which it waits for.
    std::vector<freed_block> done(bool all) {
        std::vector<freed_block> done;
        std::lock_guard<std::mutex> const lock(mutex_);
        for (auto queue = queues_.begin(); queue != queues_.end();) {
            auto &[user, events] = *queue;
            while (!events.empty() && is_over(user, events.front().first, all)) {
                auto const [event, entry] = events.front();
                events.pop_front();
                spare_[user.first].push_back(event);
                if (--entry->events > 0) continue;
                done.push_back(std::move(entry->freed));
                delete entry;
                count_.fetch_sub(1, std::memory_order_relaxed);
            }
            queue = events.empty() ? queues_.erase(queue) : std::next(queue);
        }
        return done;
    }

    template <typename Body> void each(Body body) {
        std::lock_guard<std::mutex> const lock(mutex_);
        for (auto &[address, what] : lost_) body(address, what);
        for (auto &[address, what] : in_captures_) body(address, what);
        std::map<void *, block const *> seen;
        for (auto &[user, events] : queues_)
            for (auto &[event, entry] : events) seen.emplace(entry->freed.first, &entry->freed.second);
        for (auto &[address, what] : seen) body(address, *what);
    }

private:
    struct waiting_block {
        freed_block freed;
        std::size_t events = 0;
    };

    // Null where the driver refuses.
    cudaEvent_t recorded(stream_of_device const &user) {
        c10::cuda::CUDAGuard const here(user.first);
        cudaEvent_t event = nullptr;
        {
            std::lock_guard<std::mutex> const lock(mutex_);
            auto &spare = spare_[user.first];
            if (!spare.empty()) {
                event = spare.back();
                spare.pop_back();
            }
        }
        if (event == nullptr && cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) event = nullptr;
        if (event != nullptr && cudaEventRecord(event, user.second) == cudaSuccess) return event;
        (void)cudaGetLastError();
        return nullptr;
    }

    static bool is_over(stream_of_device const &user, cudaEvent_t event, bool wait) {
        c10::cuda::CUDAGuard const here(user.first);
        cudaError_t const said = wait ? cudaEventSynchronize(event) : cudaEventQuery(event);
        if (said == cudaSuccess) return true;
        (void)cudaGetLastError();
        return false;
    }

    std::mutex mutex_;
    std::atomic<std::size_t> count_{0};
    std::map<stream_of_device, std::deque<std::pair<cudaEvent_t, waiting_block *>>> queues_;
    std::map<c10::DeviceIndex, std::vector<cudaEvent_t>> spare_;
    std::vector<freed_block> in_captures_;
    std::vector<freed_block> lost_;
    std::vector<void *> segments_;
};

} // namespace alluvion_torch

#endif
