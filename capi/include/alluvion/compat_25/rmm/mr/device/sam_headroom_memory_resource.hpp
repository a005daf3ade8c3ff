// What if ordinary memory of the host is used, and the device keeps some of its own free?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_SAM_HEADROOM_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_SAM_HEADROOM_MEMORY_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/sam_headroom_memory_resource.hpp"
#include "../../detail/layer.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Ordinary memory of the host, which leaves `headroom` bytes of the device free.
class sam_headroom_memory_resource final : public ::rmm::detail::object_of<handles::sam_headroom_memory_resource> {
public:
    sam_headroom_memory_resource(std::size_t headroom) : object_of(of{}, headroom) {}
};

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
