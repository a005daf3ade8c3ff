// What if the device uses ordinary memory of the host?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_SYSTEM_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_SYSTEM_MEMORY_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/system_memory_resource.hpp"
#include "../../detail/layer.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {
namespace detail {

using handles::detail::is_system_memory_supported;

} // namespace detail

/// Ordinary memory of the host, on a machine whose device reaches it: another one is a `logic_error`.
class system_memory_resource final : public ::rmm::detail::object_of_each_device<handles::system_memory_resource> {};

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
