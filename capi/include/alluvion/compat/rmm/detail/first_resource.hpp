// What does a device allocate from before anybody sets another resource?
#ifndef ALLUVION_COMPAT_RMM_DETAIL_FIRST_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_FIRST_RESOURCE_HPP

#include "../cuda_device.hpp"
#include "handle.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

/// The resource that a device allocates from before anybody sets another one. The library has no question for it: where another one is set, that is
/// taken off for a moment, which a request by another thread may see.
inline resource first_resource(cuda_device_id device) {
    alv_resource *previous = nullptr;
    check(alv_reset_current_resource(device.value(), &previous));
    resource const now = resource::adopt(previous);
    resource first = resource::current(device.value());
    check(alv_set_current_resource(device.value(), now.native_handle(), &previous));
    alv_resource_release(previous);
    return first;
}

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif
