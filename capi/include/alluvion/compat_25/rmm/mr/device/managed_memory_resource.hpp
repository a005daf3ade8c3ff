// What if memory moves between host and device?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_MANAGED_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_MANAGED_MEMORY_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/managed_memory_resource.hpp"
#include "../../detail/layer.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Managed memory, of the device that is current at the call. All are equal.
class managed_memory_resource final : public ::rmm::detail::object_of_each_device<handles::managed_memory_resource> {};

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
