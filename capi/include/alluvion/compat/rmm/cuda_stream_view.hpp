// Which stream? One that somebody else keeps.
#ifndef ALLUVION_COMPAT_RMM_CUDA_STREAM_VIEW_HPP
#define ALLUVION_COMPAT_RMM_CUDA_STREAM_VIEW_HPP

#include "detail/errors.hpp"

#include <cassert>
#include <ostream>
#include <type_traits>

ALLUVION_COMPAT_RMM_BEGIN

/// A stream that somebody else keeps. It comes from a `cudaStream_t`, from `cuda::stream_ref` and from what converts to those,
/// and becomes both; never from a literal.
class cuda_stream_view : public ::alluvion::stream_view {
public:
    using ::alluvion::stream_view::stream_view;

    constexpr cuda_stream_view() noexcept = default;
    constexpr cuda_stream_view(::alluvion::stream_view stream) noexcept : ::alluvion::stream_view(stream) {}

    /// Waits for the work on the stream.
    void synchronize() const {
        detail::ensure_context();
        try {
            ::alluvion::stream_view::synchronize();
        } catch (::alluvion::error const &failure) {
            throw cuda_error(failure.what());
        }
    }
    void sync() const { synchronize(); }

    /// Waits. A failure ends the process where asserts are on, as in RMM, and else nothing is said of it.
    void synchronize_no_throw() const noexcept {
        detail::ensure_context();
        bool const is_done = ::alluvion::stream_view::synchronize_no_throw();
        assert(is_done);
        static_cast<void>(is_done);
    }
};

/// The default stream, as the file is compiled.
static constexpr cuda_stream_view cuda_stream_default{};

/// The legacy default stream.
static const cuda_stream_view cuda_stream_legacy{::alluvion::stream_view::legacy()};

/// The default stream of the calling thread.
static const cuda_stream_view cuda_stream_per_thread{::alluvion::stream_view::per_thread()};

inline std::ostream &operator<<(std::ostream &out, cuda_stream_view stream) {
    return out << static_cast<void const *>(stream.value());
}

ALLUVION_COMPAT_RMM_END

#endif
