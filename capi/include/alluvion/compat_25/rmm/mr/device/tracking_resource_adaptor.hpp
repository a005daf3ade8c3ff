// Which blocks are out?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_TRACKING_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_TRACKING_RESOURCE_ADAPTOR_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/tracking_resource_adaptor.hpp"
#include "../../detail/layer.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Records every block that is out, and refuses to free a block that is not.
template <class Upstream>
class tracking_resource_adaptor final : public ::rmm::detail::layer<Upstream, handles::tracking_resource_adaptor> {
    using base = ::rmm::detail::layer<Upstream, handles::tracking_resource_adaptor>;

public:
    using allocation_info = typename handles::tracking_resource_adaptor::allocation_info;

    explicit tracking_resource_adaptor(Upstream *upstream, bool capture_stacks = false) : base(upstream, capture_stacks) {}
    explicit tracking_resource_adaptor(device_async_resource_ref upstream, bool capture_stacks = false) : base(std::move(upstream), capture_stacks) {}

    /// The blocks that are out now, by their addresses.
    [[nodiscard]] std::map<void *, allocation_info> get_outstanding_allocations() const { return this->handle_.get_outstanding_allocations(); }
    /// The bytes of the blocks that are out.
    [[nodiscard]] std::size_t get_allocated_bytes() const { return this->handle_.get_allocated_bytes(); }
    /// A line for each block that is out, oldest first; empty without one.
    [[nodiscard]] std::string get_outstanding_allocations_str() const { return this->handle_.get_outstanding_allocations_str(); }
    /// Writes these lines to the standard error stream.
    void log_outstanding_allocations() const { this->handle_.log_outstanding_allocations(); }
};

template <class Upstream, class... Rest>
tracking_resource_adaptor(Upstream *, Rest...) -> tracking_resource_adaptor<Upstream>;
template <class Upstream, class... Rest, ::rmm::detail::if_object<Upstream> = 0>
tracking_resource_adaptor(Upstream &, Rest...) -> tracking_resource_adaptor<Upstream>;
template <class... Rest>
tracking_resource_adaptor(device_async_resource_ref, Rest...) -> tracking_resource_adaptor<device_memory_resource>;

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
