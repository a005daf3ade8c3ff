// What if the device uses ordinary memory of the host?
#ifndef ALLUVION_COMPAT_RMM_MR_SYSTEM_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_MR_SYSTEM_MEMORY_RESOURCE_HPP

#include "../detail/factory.hpp"
#include "../detail/runtime_capabilities.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

namespace detail {

/// Whether a device reaches ordinary memory of the host.
inline bool is_system_memory_supported(cuda_device_id device) { return ::rmm::detail::is_had("system", device); }

} // namespace detail

/// Ordinary memory of the host, on a machine whose device reaches it: another one is a `logic_error`.
class system_memory_resource final : public ::rmm::detail::resource {
public:
    system_memory_resource() : ::rmm::detail::resource("system") {}

    ALLUVION_COMPAT_RMM_HOST_ACCESSIBLE(system_memory_resource)
};

ALLUVION_COMPAT_RMM_RECOGNISE_SOURCE(system_memory_resource)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
