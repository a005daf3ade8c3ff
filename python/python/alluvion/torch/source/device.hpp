// A device of PyTorch's, and the stack that its tensors come from.
#ifndef ALLUVION_TORCH_DEVICE_HPP
#define ALLUVION_TORCH_DEVICE_HPP

#include "blocks.hpp"
#include "door.hpp"
#include "figures.hpp"
#include "history.hpp"
#include "waiting.hpp"

#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <vector>

namespace alluvion_torch {

using pool_id = c10::cuda::MempoolId_t;

// What PyTorch rounds its blocks up to.
inline constexpr std::size_t granularity = 512;

// The alignment of a stack's blocks, which is 256: a request for more takes the slow way.
inline constexpr std::size_t alignment = 0;

// A pool that requests go to while its filter accepts their stream: of a capture, or of `torch.cuda.use_mem_pool`.
struct open_pool {
    pool_id id;
    std::function<bool(cudaStream_t)> accepts;
    // The current stream of the thread that opened it: the one that captures, if it is for a capture.
    stream_of_device stream;
};

class device {
public:
    alluvion_torch::figures figures;
    alluvion_torch::history history;
    alluvion_torch::waiting waiting;
    // The most bytes that tensors may have: `set_per_process_memory_fraction`.
    std::atomic<std::size_t> limit{std::numeric_limits<std::size_t>::max()};

    // While one lives, `wait_for_visitors` waits, so that a stack which was found stays.
    class visit {
    public:
        // Before a stack is read, or that it is going, as whoever takes it reads this afterwards: sequentially consistent, both.
        visit() {
            visitors().fetch_add(1);
            ++depth();
        }
        ~visit() {
            --depth();
            visitors().fetch_sub(1);
        }
        visit(visit const &) = delete;
        visit &operator=(visit const &) = delete;
    };

    // The stack, for as long as the visit; null where there is none.
    alv_door_handle *stack(visit const &) const { return stack_.load(); }

    // What the stack has of the driver, without what private pools of PyTorch's have of it, which PyTorch counts.
    std::size_t reserved(alv_door_handle *stack) {
        std::size_t const lent = lent_bytes();
        std::size_t bytes = 0;
        if (table()->reserved_bytes(stack, &bytes) != ALV_DOOR_OK) return static_cast<std::size_t>(figures.active_bytes());
        return bytes > lent ? bytes - lent : 0;
    }

    // PyTorch makes its streams once and destroys none: the library need not ask which one it is. A stream from elsewhere may end.
    void know(alv_door_handle *stack, c10::cuda::CUDAStream const &stream) {
        static thread_local std::pair<alv_door_handle *, cudaStream_t> last{nullptr, nullptr};
        std::pair<alv_door_handle *, cudaStream_t> const now(stack, stream.stream());
        // Those that PyTorch makes have odd numbers; the default stream has 0, and those from elsewhere have their handles, which are even.
        if (last == now || (stream.id() & 1) == 0) return;
        last = now;
        std::lock_guard<std::mutex> const lock(mutex_);
        if (known_.insert(now).second) (void)table()->keep_stream(stack, now.second);
    }

    // Takes a count of the caller's.
    void set(alv_door_handle *stack) { stack_.store(stack); }
    bool has_stack() const { return stack_.load() != nullptr; }

    // The count that `set` took, which nobody uses any more.
    alv_door_handle *remove() { return stack_.exchange(nullptr); }

    // A visit of this thread would be waited for without end.
    static void require_no_visit() {
        TORCH_CHECK(depth() == 0, "alluvion: a handler that is asked within a request cannot take the stacks away");
    }

    // Waits until no visit of before is under way.
    static void wait_for_visitors() {
        while (visitors().load() > 0) std::this_thread::yield();
    }

    void open(open_pool pool) {
        std::unique_lock<std::shared_mutex> const lock(filters_);
        open_.push_back(std::move(pool));
        open_count_.store(open_.size(), std::memory_order_relaxed);
    }

    // Whether it was open, since the installation.
    bool close(pool_id id) {
        std::unique_lock<std::shared_mutex> const lock(filters_);
        auto const found = std::find_if(open_.begin(), open_.end(), [id](open_pool const &each) { return each.id == id; });
        bool const was_open = found != open_.end();
        if (was_open) open_.erase(found);
        open_count_.store(open_.size(), std::memory_order_relaxed);
        return was_open;
    }

    // Whether a stream of an open pool captures.
    bool is_captured() {
        if (!has_open_pools()) return false;
        std::shared_lock<std::shared_mutex> const lock(filters_);
        return std::any_of(open_.begin(), open_.end(), [](open_pool const &each) { return captures(each.stream); });
    }

    bool has_open_pools() const { return open_count_.load(std::memory_order_relaxed) > 0; }

    // Whether a request on this stream is for an open pool. A filter points to the graph that is captured, and is not asked after
    // `close`: so the lock is held while it asks the driver.
    bool is_for_a_pool(cudaStream_t stream) {
        std::shared_lock<std::shared_mutex> const lock(filters_);
        return std::any_of(open_.begin(), open_.end(), [stream](open_pool const &each) { return each.accepts(stream); });
    }

    // Memory that a private pool of PyTorch's is about to have of the stack. It counts as lent from before it is there until after it is
    // gone, so that no peak has it twice.
    void will_lend(std::size_t bytes) { lent_bytes_ += bytes; }
    void has_not_lent(std::size_t bytes) { lent_bytes_ -= bytes; }

    void lend(void *address, std::size_t bytes) {
        std::lock_guard<std::mutex> const lock(mutex_);
        lent_.emplace(address, bytes);
    }

    // The bytes of what comes back; 0 for what is not lent. `has_not_lent` follows.
    std::size_t unlend(void *address) {
        std::lock_guard<std::mutex> const lock(mutex_);
        auto const found = lent_.find(address);
        if (found == lent_.end()) return 0;
        std::size_t const bytes = found->second;
        lent_.erase(found);
        return bytes;
    }

    std::map<void *, std::size_t> lent() {
        std::lock_guard<std::mutex> const lock(mutex_);
        return lent_;
    }

    std::size_t lent_bytes() const { return lent_bytes_.load(std::memory_order_relaxed); }

    // Private pools that have one use more than PyTorch counts, because they were made here.
    void made(pool_id id) {
        std::lock_guard<std::mutex> const lock(mutex_);
        made_.push_back(id);
    }

    bool has_made(pool_id id) {
        std::lock_guard<std::mutex> const lock(mutex_);
        return std::find(made_.begin(), made_.end(), id) != made_.end();
    }

    bool unmake(pool_id id) {
        std::lock_guard<std::mutex> const lock(mutex_);
        auto const found = std::find(made_.begin(), made_.end(), id);
        if (found == made_.end()) return false;
        made_.erase(found);
        return true;
    }

private:
    // The visits of this thread.
    static std::size_t &depth() {
        static thread_local std::size_t count = 0;
        return count;
    }

    static std::atomic<std::size_t> &visitors() {
        alignas(64) static std::atomic<std::size_t> count{0};
        return count;
    }

    std::atomic<alv_door_handle *> stack_{nullptr};
    std::atomic<std::size_t> open_count_{0};
    std::atomic<std::size_t> lent_bytes_{0};
    std::shared_mutex filters_;
    std::vector<open_pool> open_;
    std::mutex mutex_;
    std::set<std::pair<alv_door_handle *, cudaStream_t>> known_;
    std::map<void *, std::size_t> lent_;
    std::vector<pool_id> made_;
};

} // namespace alluvion_torch

#endif
