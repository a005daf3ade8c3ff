// How much memory is there, by the name of RMM 24.02 and before?
#ifndef ALLUVION_COMPAT_25_RMM_DETAIL_CUDA_UTIL_HPP
#define ALLUVION_COMPAT_25_RMM_DETAIL_CUDA_UTIL_HPP

#include "age.hpp"
#include "../cuda_device.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

using ::rmm::available_device_memory;

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif
