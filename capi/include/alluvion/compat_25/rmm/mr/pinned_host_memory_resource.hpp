// What if the device reaches memory of the host?
#ifndef ALLUVION_COMPAT_25_RMM_MR_PINNED_HOST_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_PINNED_HOST_MEMORY_RESOURCE_HPP

#include "../detail/age.hpp"
#include "../../../compat/rmm/mr/pinned_host_memory_resource.hpp"
#include "../detail/layer.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Page-locked memory of the host that the device reaches.
class pinned_host_memory_resource final : public ::rmm::detail::object_of_each_device<handles::pinned_host_memory_resource> {
#if ALLUVION_CCCL
    friend void get_property(pinned_host_memory_resource const &, ::cuda::mr::host_accessible) noexcept {}
#endif
};

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../detail/usual.hpp"

#endif
