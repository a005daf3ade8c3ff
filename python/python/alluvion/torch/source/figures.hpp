// The figures of the blocks of a device that are ours, as `torch.cuda.memory_stats` names them.
#ifndef ALLUVION_TORCH_FIGURES_HPP
#define ALLUVION_TORCH_FIGURES_HPP

#include <c10/cuda/CUDACachingAllocator.h>

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace alluvion_torch {

using c10::cuda::CUDACachingAllocator::DeviceStats;

// PyTorch tells small segments from large ones. A stack does not, so all of ours are large.
template <typename Change> void change(c10::CachingAllocator::StatArray &figure, Change change) {
    change(figure[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)]);
    change(figure[static_cast<std::size_t>(c10::CachingAllocator::StatType::LARGE_POOL)]);
}

class figures {
public:
    // A block that goes out, while the stack has so many bytes of the driver.
    void allocated(std::size_t bytes, std::size_t requested, std::size_t reserved) {
        std::lock_guard<std::mutex> const lock(mutex_);
        up(stats_.allocation, 1);
        up(stats_.active, 1);
        up(stats_.allocated_bytes, bytes);
        up(stats_.active_bytes, bytes);
        up(stats_.requested_bytes, requested);
        see(reserved);
    }

    // A block that PyTorch has freed, while streams may use it still.
    void freed(std::size_t bytes) {
        std::lock_guard<std::mutex> const lock(mutex_);
        down_freed(bytes);
    }

    // A freed block that no stream uses any more.
    void completed(std::size_t bytes, std::size_t requested) {
        std::lock_guard<std::mutex> const lock(mutex_);
        down_completed(bytes, requested);
    }

    // Both at once.
    void freed_and_completed(std::size_t bytes, std::size_t requested) {
        std::lock_guard<std::mutex> const lock(mutex_);
        down_freed(bytes);
        down_completed(bytes, requested);
    }

    void retried() {
        std::lock_guard<std::mutex> const lock(mutex_);
        ++stats_.num_alloc_retries;
    }

    void refused() {
        std::lock_guard<std::mutex> const lock(mutex_);
        ++stats_.num_ooms;
    }

    void waited_for_all() {
        std::lock_guard<std::mutex> const lock(mutex_);
        ++stats_.num_sync_all_streams;
    }

    std::int64_t active_bytes() {
        std::lock_guard<std::mutex> const lock(mutex_);
        return stats_.active_bytes[0].current;
    }

    void reset_accumulated() {
        std::lock_guard<std::mutex> const lock(mutex_);
        each(stats_, [](c10::CachingAllocator::Stat &figure) { figure.reset_accumulated(); });
        stats_.num_alloc_retries = stats_.num_ooms = stats_.num_sync_all_streams = 0;
    }

    void reset_peak(std::size_t reserved) {
        std::lock_guard<std::mutex> const lock(mutex_);
        see(reserved);
        each(stats_, [](c10::CachingAllocator::Stat &figure) { figure.reset_peak(); });
    }

    // Adds ours to those of PyTorch's own memory. Both peaks add up, as if they had been at one moment. PyTorch counts no segments that
    // grow, as ours do.
    void add_to(DeviceStats &sum, std::size_t reserved) {
        std::lock_guard<std::mutex> const lock(mutex_);
        see(reserved);
        add(sum.allocation, stats_.allocation);
        add(sum.active, stats_.active);
        add(sum.allocated_bytes, stats_.allocated_bytes);
        add(sum.reserved_bytes, stats_.reserved_bytes);
        add(sum.active_bytes, stats_.active_bytes);
        add(sum.requested_bytes, stats_.requested_bytes);
        sum.num_alloc_retries += stats_.num_alloc_retries;
        sum.num_ooms += stats_.num_ooms;
        sum.num_sync_all_streams += stats_.num_sync_all_streams;
    }

private:
    static void up(c10::CachingAllocator::StatArray &figure, std::size_t by) {
        change(figure, [by](c10::CachingAllocator::Stat &one) { one.increase(by); });
    }

    static void down(c10::CachingAllocator::StatArray &figure, std::size_t by) {
        change(figure, [by](c10::CachingAllocator::Stat &one) { one.decrease(by); });
    }

    void down_freed(std::size_t bytes) {
        down(stats_.allocation, 1);
        down(stats_.allocated_bytes, bytes);
    }

    void down_completed(std::size_t bytes, std::size_t requested) {
        down(stats_.active, 1);
        down(stats_.active_bytes, bytes);
        down(stats_.requested_bytes, requested);
    }

    static void add(c10::CachingAllocator::StatArray &sum, c10::CachingAllocator::StatArray const &ours) {
        for (std::size_t kind = 0; kind < sum.size(); ++kind) {
            sum[kind].current += ours[kind].current;
            sum[kind].peak += ours[kind].peak;
            sum[kind].allocated += ours[kind].allocated;
            sum[kind].freed += ours[kind].freed;
        }
    }

    template <typename Change> static void each(DeviceStats &stats, Change body) {
        for (auto *figure : {&stats.allocation, &stats.active, &stats.allocated_bytes, &stats.reserved_bytes,
                             &stats.active_bytes, &stats.requested_bytes})
            for (auto &one : *figure) body(one);
    }

    // A stack grows within a request alone, so that whoever looks after each request has seen the most of it.
    void see(std::size_t reserved) {
        auto const now = static_cast<std::int64_t>(reserved);
        change(stats_.reserved_bytes, [now](c10::CachingAllocator::Stat &figure) {
            if (now > figure.current) figure.increase(static_cast<std::size_t>(now - figure.current));
            if (now < figure.current) figure.decrease(static_cast<std::size_t>(figure.current - now));
        });
    }

    std::mutex mutex_;
    DeviceStats stats_;
};

} // namespace alluvion_torch

#endif
