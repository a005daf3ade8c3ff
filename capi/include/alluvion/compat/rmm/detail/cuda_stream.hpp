// Is a stream the default one?
#ifndef ALLUVION_COMPAT_RMM_DETAIL_CUDA_STREAM_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_CUDA_STREAM_HPP

#include "../cuda_stream_view.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

/// Whether a stream is the default one, as the file is compiled.
[[nodiscard]] inline bool is_default_stream(cuda_stream_view stream) noexcept { return stream.is_default(); }

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif
