// Does the driver keep pools?
#ifndef ALLUVION_COMPAT_25_RMM_DETAIL_RUNTIME_ASYNC_ALLOC_HPP
#define ALLUVION_COMPAT_25_RMM_DETAIL_RUNTIME_ASYNC_ALLOC_HPP

#include "age.hpp"
#include "../../../compat/rmm/detail/runtime_capabilities.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

/// The name until 24.10.
using async_alloc = runtime_async_alloc;

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif
