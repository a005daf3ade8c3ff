// What if memory moves between host and device?
#ifndef ALLUVION_COMPAT_RMM_MR_MANAGED_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_MR_MANAGED_MEMORY_RESOURCE_HPP

#include "../detail/factory.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

/// Memory of `cudaMallocManaged`, which moves between host and device.
class managed_memory_resource final : public ::rmm::detail::resource {
public:
    managed_memory_resource() : ::rmm::detail::resource("managed") {}

    ALLUVION_COMPAT_RMM_HOST_ACCESSIBLE(managed_memory_resource)
};

ALLUVION_COMPAT_RMM_RECOGNISE_SOURCE(managed_memory_resource)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
