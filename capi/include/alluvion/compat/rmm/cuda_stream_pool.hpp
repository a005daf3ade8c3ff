// Which streams are given out in turn?
#ifndef ALLUVION_COMPAT_RMM_CUDA_STREAM_POOL_HPP
#define ALLUVION_COMPAT_RMM_CUDA_STREAM_POOL_HPP

#include "cuda_stream.hpp"

#include <atomic>
#include <cstddef>
#include <vector>

ALLUVION_COMPAT_RMM_BEGIN

/// Streams that are made once and given out in turn.
class cuda_stream_pool {
public:
    static constexpr std::size_t default_size{16};

    explicit cuda_stream_pool(std::size_t size = default_size, cuda_stream::flags how = cuda_stream::flags::sync_default) {
        if (size == 0) {
            throw logic_error("a pool of streams needs a stream");
        }
        streams_.reserve(size);
        for (std::size_t made = 0; made < size; ++made) {
            streams_.emplace_back(how);
        }
    }

    cuda_stream_pool(cuda_stream_pool const &) = delete;
    cuda_stream_pool &operator=(cuda_stream_pool const &) = delete;

    /// The next one. Any thread may ask.
    [[nodiscard]] cuda_stream_view get_stream() const noexcept {
        return streams_[next_.fetch_add(1, std::memory_order_relaxed) % streams_.size()].view();
    }

    /// The same one for the same number.
    [[nodiscard]] cuda_stream_view get_stream(std::size_t number) const { return streams_[number % streams_.size()].view(); }

    [[nodiscard]] std::size_t get_pool_size() const noexcept { return streams_.size(); }

private:
    std::vector<cuda_stream> streams_;
    // Only a turn is drawn from it: nothing is ordered by it.
    mutable std::atomic<std::size_t> next_{0};
};

ALLUVION_COMPAT_RMM_END

#endif
