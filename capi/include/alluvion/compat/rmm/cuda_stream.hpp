// Who destroys a stream?
#ifndef ALLUVION_COMPAT_RMM_CUDA_STREAM_HPP
#define ALLUVION_COMPAT_RMM_CUDA_STREAM_HPP

#include "cuda_stream_view.hpp"

#include <cassert>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN

/// A stream that is destroyed with its owner, when the work on it is done.
class cuda_stream {
public:
    /// As the flags of `cudaStreamCreateWithFlags`.
    enum class flags : unsigned int {
        sync_default = 0, ///< Waits for the legacy default stream, and that one for it.
        non_blocking = 1, ///< Does not.
    };

    cuda_stream(flags how = flags::sync_default) {
        detail::ensure_context();
        uint32_t const waits = how == flags::non_blocking ? 0 : ALV_STREAM_WAITS_FOR_LEGACY;
        detail::check(alv_stream_create_with(-1, waits, &stream_));
    }

    cuda_stream(cuda_stream &&other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
    cuda_stream &operator=(cuda_stream &&other) noexcept {
        cuda_stream taken(std::move(other));
        std::swap(stream_, taken.stream_);
        return *this;
    }
    cuda_stream(cuda_stream const &) = delete;
    cuda_stream &operator=(cuda_stream const &) = delete;
    ~cuda_stream() { alv_stream_release(stream_); }

    /// Whether it was not moved from.
    [[nodiscard]] bool is_valid() const { return stream_ != nullptr; }

    [[nodiscard]] alv_cuda_stream value() const { return alv_stream_handle(stream_); }
    explicit operator alv_cuda_stream() const noexcept { return alv_stream_handle(stream_); }

    [[nodiscard]] cuda_stream_view view() const { return cuda_stream_view(value()); }
    operator cuda_stream_view() const { return view(); }
#if ALLUVION_CCCL
    operator ::cuda::stream_ref() const noexcept { return ::cuda::stream_ref(alv_stream_handle(stream_)); }
#endif

    void synchronize() const {
        detail::ensure_context();
        detail::check(alv_stream_synchronize(stream_));
    }
    /// Waits. A failure ends the process where asserts are on, as in RMM, and else nothing is said of it.
    void synchronize_no_throw() const noexcept {
        detail::ensure_context();
        alv_status const status = alv_stream_synchronize(stream_);
        assert(status == ALV_OK);
        static_cast<void>(status);
    }

    friend bool operator==(cuda_stream const &first, cuda_stream const &second) noexcept { return first.view() == second.view(); }
    friend bool operator!=(cuda_stream const &first, cuda_stream const &second) noexcept { return !(first == second); }
    friend bool operator==(cuda_stream const &first, cuda_stream_view second) noexcept { return first.view() == second; }
    friend bool operator!=(cuda_stream const &first, cuda_stream_view second) noexcept { return !(first == second); }
    friend bool operator==(cuda_stream_view first, cuda_stream const &second) noexcept { return second == first; }
    friend bool operator!=(cuda_stream_view first, cuda_stream const &second) noexcept { return !(second == first); }
#if ALLUVION_CCCL
    friend bool operator==(cuda_stream const &first, ::cuda::stream_ref second) noexcept { return first.view() == second; }
    friend bool operator!=(cuda_stream const &first, ::cuda::stream_ref second) noexcept { return !(first == second); }
    friend bool operator==(::cuda::stream_ref first, cuda_stream const &second) noexcept { return second == first; }
    friend bool operator!=(::cuda::stream_ref first, cuda_stream const &second) noexcept { return !(second == first); }
#endif

private:
    alv_stream *stream_ = nullptr;
};

ALLUVION_COMPAT_RMM_END

#endif
