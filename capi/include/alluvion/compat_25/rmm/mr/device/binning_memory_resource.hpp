// Who serves which size?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_BINNING_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_BINNING_MEMORY_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/binning_memory_resource.hpp"
#include "../../detail/layer.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Serves requests from bins of one size each, and passes those on to its upstream that are larger than every bin.
template <class Upstream>
class binning_memory_resource final : public ::rmm::detail::suballocator<Upstream, handles::binning_memory_resource> {
    using base = ::rmm::detail::suballocator<Upstream, handles::binning_memory_resource>;

public:
    /// Without bins: add some before the first request.
    explicit binning_memory_resource(Upstream *upstream) : base(upstream) {}
    explicit binning_memory_resource(device_async_resource_ref upstream) : base(std::move(upstream)) {}

    /// A bin for each power of two between.
    binning_memory_resource(Upstream *upstream, std::int8_t min_size_exponent, std::int8_t max_size_exponent)
        : base(upstream, min_size_exponent, max_size_exponent) {}
    binning_memory_resource(device_async_resource_ref upstream, std::int8_t min_size_exponent, std::int8_t max_size_exponent)
        : base(std::move(upstream), min_size_exponent, max_size_exponent) {}

    /// Has a bin serve requests of up to that size: a resource, or one of fixed size over the upstream. A `logic_error` after the
    /// first request. Where there is a bin of that size, it goes on to serve.
    void add_bin(std::size_t allocation_size, std::optional<device_async_resource_ref> bin_resource = std::nullopt) {
        this->handle_.add_bin(allocation_size, std::move(bin_resource));
    }
    /// The same by a reference: which converts to both of the others.
    template <class Ref, std::enable_if_t<std::is_same_v<Ref, device_async_resource_ref>, int> = 0>
    void add_bin(std::size_t allocation_size, Ref bin_resource) {
        add_bin(allocation_size, std::optional<device_async_resource_ref>(std::move(bin_resource)));
    }
    /// The same by a pointer; null is a bin of fixed size.
    void add_bin(std::size_t allocation_size, device_memory_resource *bin_resource) {
        add_bin(allocation_size, bin_resource == nullptr ? std::nullopt : std::optional<device_async_resource_ref>(bin_resource));
    }
};

template <class Upstream, class... Rest>
binning_memory_resource(Upstream *, Rest...) -> binning_memory_resource<Upstream>;
template <class Upstream, class... Rest, ::rmm::detail::if_object<Upstream> = 0>
binning_memory_resource(Upstream &, Rest...) -> binning_memory_resource<Upstream>;
template <class... Rest>
binning_memory_resource(device_async_resource_ref, Rest...) -> binning_memory_resource<device_memory_resource>;

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
