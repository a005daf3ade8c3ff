// The history that `torch.cuda.memory._record_memory_history` asks for, of the blocks of a device that are ours.
#ifndef ALLUVION_TORCH_HISTORY_HPP
#define ALLUVION_TORCH_HISTORY_HPP

#include "version.hpp"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace alluvion_torch {

using c10::cuda::CUDACachingAllocator::CreateContextFn;
using c10::cuda::CUDACachingAllocator::RecordContext;
using c10::cuda::CUDACachingAllocator::TraceEntry;

// What PyTorch's compiler says it is running, for the entries of this thread.
inline std::vector<std::string> &compile_contexts() {
    static thread_local std::vector<std::string> names;
    return names;
}

// How much is recorded, on all devices.
class recording {
public:
    void set(bool enabled, CreateContextFn recorder, std::size_t most, RecordContext when) {
        recorder_.store(enabled ? recorder : nullptr);
        level_.store(enabled ? when : RecordContext::NEVER);
        most_.store(std::max<std::size_t>(most, 1));
        enabled_.store(enabled);
    }

    bool enabled() const { return enabled_.load(std::memory_order_relaxed); }
    std::size_t most() const { return most_.load(std::memory_order_relaxed); }

    // The stack of calls, if that much is wanted. No lock of ours is held: it runs code of Python's.
    std::shared_ptr<c10::GatheredContext> gather(RecordContext level) const {
        if (level_.load(std::memory_order_relaxed) < level) return nullptr;
        CreateContextFn const recorder = recorder_.load();
        return recorder != nullptr ? recorder() : nullptr;
    }

    // The same for an entry of a trace, which keeps fewer of them.
    std::shared_ptr<c10::GatheredContext> for_trace(std::shared_ptr<c10::GatheredContext> context) const {
        return level_.load(std::memory_order_relaxed) >= RecordContext::ALLOC ? std::move(context) : nullptr;
    }

private:
    std::atomic<bool> enabled_{false};
    std::atomic<RecordContext> level_{RecordContext::NEVER};
    std::atomic<CreateContextFn> recorder_{nullptr};
    std::atomic<std::size_t> most_{1};
};

// The last entries of a device.
class history {
public:
    void skip(std::vector<TraceEntry::Action> actions) {
        std::lock_guard<std::mutex> const lock(mutex_);
        skipped_ = std::move(actions);
    }

    void clear() {
        std::vector<TraceEntry> gone;
        std::lock_guard<std::mutex> const lock(mutex_);
        gone.swap(entries_);
        next_ = 0;
    }

    void add(recording const &how, CUDAAllocator &native, c10::DeviceIndex device, TraceEntry::Action action, void *address,
             std::size_t bytes, cudaStream_t stream, std::shared_ptr<c10::GatheredContext> const &context) {
        if (!how.enabled()) return;
        // PyTorch's word for no context, which its readers leave out.
        std::string const compiled = compile_contexts().empty() ? std::string("N/A") : compile_contexts().back();
        TraceEntry entry = traced(device, action, reinterpret_cast<std::size_t>(address), bytes, stream, c10::getApproximateTime(),
                                  how.for_trace(context), compiled, native);
        std::lock_guard<std::mutex> const lock(mutex_);
        if (std::find(skipped_.begin(), skipped_.end(), action) != skipped_.end()) return;
        if (entries_.size() < how.most()) {
            entries_.push_back(std::move(entry));
        } else {
            next_ %= entries_.size();
            std::swap(entries_[next_++], entry);
        }
    }

    // The entries, in the order of time.
    std::vector<TraceEntry> entries() {
        std::lock_guard<std::mutex> const lock(mutex_);
        std::vector<TraceEntry> all(entries_);
        auto const oldest = all.begin() + static_cast<std::ptrdiff_t>(all.empty() ? 0 : next_ % all.size());
        std::rotate(all.begin(), oldest, all.end());
        return all;
    }

private:
    std::mutex mutex_;
    std::vector<TraceEntry> entries_;
    std::size_t next_ = 0;
    std::vector<TraceEntry::Action> skipped_;
};

} // namespace alluvion_torch

#endif
