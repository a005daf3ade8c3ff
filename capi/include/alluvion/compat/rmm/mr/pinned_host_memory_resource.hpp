// What if the device reaches memory of the host?
#ifndef ALLUVION_COMPAT_RMM_MR_PINNED_HOST_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_MR_PINNED_HOST_MEMORY_RESOURCE_HPP

#include "../detail/factory.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

/// Page-locked memory of the host that the device reaches.
class pinned_host_memory_resource final : public ::rmm::detail::resource {
public:
    pinned_host_memory_resource() : ::rmm::detail::resource("pinned") {}

    ALLUVION_COMPAT_RMM_HOST_ACCESSIBLE(pinned_host_memory_resource)
};

ALLUVION_COMPAT_RMM_RECOGNISE_SOURCE(pinned_host_memory_resource)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
