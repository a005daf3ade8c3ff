// What does a device allocate from by default?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_PER_DEVICE_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_PER_DEVICE_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/per_device_resource.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {
namespace detail {

/// The resource that the current device allocates from before anybody sets another one.
inline device_memory_resource *initial_resource() {
    return ::rmm::detail::current_objects::get().first_of(get_current_cuda_device());
}

} // namespace detail
} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
