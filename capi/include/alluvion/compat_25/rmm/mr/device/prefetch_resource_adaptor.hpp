// Who brings managed memory to the device?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_PREFETCH_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_PREFETCH_RESOURCE_ADAPTOR_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/prefetch_resource_adaptor.hpp"
#include "../../detail/layer.hpp"

#include <cstddef>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Migrates blocks of managed memory to the device before they are used.
template <class Upstream>
class prefetch_resource_adaptor final : public ::rmm::detail::layer<Upstream, handles::prefetch_resource_adaptor> {
    using base = ::rmm::detail::layer<Upstream, handles::prefetch_resource_adaptor>;

public:
    explicit prefetch_resource_adaptor(Upstream *upstream) : base(upstream) {}
    explicit prefetch_resource_adaptor(device_async_resource_ref upstream) : base(std::move(upstream)) {}
};

template <class Upstream, class... Rest>
prefetch_resource_adaptor(Upstream *, Rest...) -> prefetch_resource_adaptor<Upstream>;
template <class Upstream, class... Rest, ::rmm::detail::if_object<Upstream> = 0>
prefetch_resource_adaptor(Upstream &, Rest...) -> prefetch_resource_adaptor<Upstream>;
template <class... Rest>
prefetch_resource_adaptor(device_async_resource_ref, Rest...) -> prefetch_resource_adaptor<device_memory_resource>;

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
