// Who brings managed memory to the device?
#ifndef ALLUVION_COMPAT_RMM_MR_PREFETCH_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_RMM_MR_PREFETCH_RESOURCE_ADAPTOR_HPP

#include "../detail/factory.hpp"

#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

/// Migrates blocks of managed memory to the device before they are used.
class prefetch_resource_adaptor : public ::rmm::detail::adaptor {
public:
    explicit prefetch_resource_adaptor(::rmm::detail::any_resource upstream) : adaptor("prefetch", std::move(upstream), ::rmm::detail::blocks::handed_on) {}
};

ALLUVION_COMPAT_RMM_RECOGNISE(prefetch_resource_adaptor)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
