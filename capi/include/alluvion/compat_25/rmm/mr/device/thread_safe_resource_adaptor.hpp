// Who lets one thread in at a time?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_THREAD_SAFE_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_THREAD_SAFE_RESOURCE_ADAPTOR_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/thread_safe_resource_adaptor.hpp"
#include "../../detail/layer.hpp"

#include <cstddef>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Lets one thread at a time into a resource of the program's that needs that. Resources of this library never do.
template <class Upstream>
class thread_safe_resource_adaptor final : public ::rmm::detail::layer<Upstream, handles::thread_safe_resource_adaptor> {
    using base = ::rmm::detail::layer<Upstream, handles::thread_safe_resource_adaptor>;

public:
    using lock_t = handles::thread_safe_resource_adaptor::lock_t;

    explicit thread_safe_resource_adaptor(Upstream *upstream) : base(upstream) {}
    explicit thread_safe_resource_adaptor(device_async_resource_ref upstream) : base(std::move(upstream)) {}
};

template <class Upstream, class... Rest>
thread_safe_resource_adaptor(Upstream *, Rest...) -> thread_safe_resource_adaptor<Upstream>;
template <class Upstream, class... Rest, ::rmm::detail::if_object<Upstream> = 0>
thread_safe_resource_adaptor(Upstream &, Rest...) -> thread_safe_resource_adaptor<Upstream>;
template <class... Rest>
thread_safe_resource_adaptor(device_async_resource_ref, Rest...) -> thread_safe_resource_adaptor<device_memory_resource>;

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
