// Does the driver keep pools?
#ifndef ALLUVION_COMPAT_25_RMM_DETAIL_RUNTIME_ASYNC_ALLOC_HPP
#define ALLUVION_COMPAT_25_RMM_DETAIL_RUNTIME_ASYNC_ALLOC_HPP

#include "layer.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

/// The name from RMM 24.12 to 25.04.
struct runtime_async_alloc {
    /// Whether `cuda_async_memory_resource` works on the current device.
    static bool is_supported() { return is_had("cuda-async", get_current_cuda_device()); }
};

/// The name until 24.10.
using async_alloc = runtime_async_alloc;

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif
