// What if ordinary memory of the host is used, and the device keeps some of its own free?
#ifndef ALLUVION_COMPAT_RMM_MR_SAM_HEADROOM_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_MR_SAM_HEADROOM_MEMORY_RESOURCE_HPP

#include "../detail/factory.hpp"

#include <cstddef>

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

/// Ordinary memory of the host, which leaves `headroom` bytes of the device free.
class sam_headroom_memory_resource final : public ::rmm::detail::resource {
public:
    explicit sam_headroom_memory_resource(std::size_t headroom)
        : ::rmm::detail::resource("system(headroom=" + ::rmm::detail::number(headroom) + ")"), headroom_(headroom) {}

    /// Two with the same headroom are one resource.
    friend bool operator==(sam_headroom_memory_resource const &first, sam_headroom_memory_resource const &second) noexcept {
        return first.headroom_ == second.headroom_ &&
               static_cast<::rmm::detail::resource const &>(first) == static_cast<::rmm::detail::resource const &>(second);
    }
    friend bool operator!=(sam_headroom_memory_resource const &first, sam_headroom_memory_resource const &second) noexcept {
        return !(first == second);
    }

    ALLUVION_COMPAT_RMM_HOST_ACCESSIBLE(sam_headroom_memory_resource)

private:
    std::size_t headroom_;
};

ALLUVION_COMPAT_RMM_RECOGNISE(sam_headroom_memory_resource)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
