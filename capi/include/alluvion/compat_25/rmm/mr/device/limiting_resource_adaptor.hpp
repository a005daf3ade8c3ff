// Who refuses to give more than so much?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_LIMITING_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_LIMITING_RESOURCE_ADAPTOR_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/limiting_resource_adaptor.hpp"
#include "../../detail/layer.hpp"

#include <cstddef>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Refuses requests that would make more bytes live than its limit. A block counts in units of 256 bytes, whatever `alignment` is.
template <class Upstream>
class limiting_resource_adaptor final : public ::rmm::detail::layer<Upstream, handles::limiting_resource_adaptor> {
    using base = ::rmm::detail::layer<Upstream, handles::limiting_resource_adaptor>;

public:
    explicit limiting_resource_adaptor(Upstream *upstream, std::size_t allocation_limit, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) : base(upstream, allocation_limit, alignment) {}
    explicit limiting_resource_adaptor(device_async_resource_ref upstream, std::size_t allocation_limit, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) : base(std::move(upstream), allocation_limit, alignment) {}

    [[nodiscard]] std::size_t get_allocation_limit() const { return this->handle_.get_allocation_limit(); }
    /// The bytes that are out.
    [[nodiscard]] std::size_t get_allocated_bytes() const { return this->handle_.get_allocated_bytes(); }
};

template <class Upstream, class... Rest>
limiting_resource_adaptor(Upstream *, Rest...) -> limiting_resource_adaptor<Upstream>;
template <class Upstream, class... Rest, ::rmm::detail::if_object<Upstream> = 0>
limiting_resource_adaptor(Upstream &, Rest...) -> limiting_resource_adaptor<Upstream>;
template <class... Rest>
limiting_resource_adaptor(device_async_resource_ref, Rest...) -> limiting_resource_adaptor<device_memory_resource>;

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
