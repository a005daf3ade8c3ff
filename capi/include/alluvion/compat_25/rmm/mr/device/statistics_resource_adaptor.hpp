// How much is out?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_STATISTICS_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_STATISTICS_RESOURCE_ADAPTOR_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/statistics_resource_adaptor.hpp"
#include "../../detail/layer.hpp"

#include <cstddef>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Counts bytes and blocks: those that are out, the most that were, and all that ever were.
template <class Upstream>
class statistics_resource_adaptor final : public ::rmm::detail::layer<Upstream, handles::statistics_resource_adaptor> {
    using base = ::rmm::detail::layer<Upstream, handles::statistics_resource_adaptor>;

public:
    using counter = handles::statistics_resource_adaptor::counter;

    explicit statistics_resource_adaptor(Upstream *upstream) : base(upstream) {}
    explicit statistics_resource_adaptor(device_async_resource_ref upstream) : base(std::move(upstream)) {}

    [[nodiscard]] counter get_bytes_counter() const { return this->handle_.get_bytes_counter(); }
    [[nodiscard]] counter get_allocations_counter() const { return this->handle_.get_allocations_counter(); }
    /// Begins a scope that counts from zero; answers bytes and blocks of the one around it.
    std::pair<counter, counter> push_counters() { return this->handle_.push_counters(); }
    /// Ends a scope, and adds it to the one around it; answers its bytes and blocks. The outermost one does not end: a `std::out_of_range`.
    std::pair<counter, counter> pop_counters() { return this->handle_.pop_counters(); }
};

template <class Upstream, class... Rest>
statistics_resource_adaptor(Upstream *, Rest...) -> statistics_resource_adaptor<Upstream>;
template <class Upstream, class... Rest, ::rmm::detail::if_object<Upstream> = 0>
statistics_resource_adaptor(Upstream &, Rest...) -> statistics_resource_adaptor<Upstream>;
template <class... Rest>
statistics_resource_adaptor(device_async_resource_ref, Rest...) -> statistics_resource_adaptor<device_memory_resource>;

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
