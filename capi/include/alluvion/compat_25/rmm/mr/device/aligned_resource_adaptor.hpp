// Who aligns blocks to more?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_ALIGNED_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_ALIGNED_RESOURCE_ADAPTOR_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/aligned_resource_adaptor.hpp"
#include "../../detail/layer.hpp"

#include <cstddef>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Aligns blocks of at least `alignment_threshold` bytes to `alignment`, a power of two.
template <class Upstream>
class aligned_resource_adaptor final : public ::rmm::detail::layer<Upstream, handles::aligned_resource_adaptor> {
    using base = ::rmm::detail::layer<Upstream, handles::aligned_resource_adaptor>;

public:
    static constexpr std::size_t default_alignment_threshold = handles::aligned_resource_adaptor::default_alignment_threshold;

    explicit aligned_resource_adaptor(Upstream *upstream, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT, std::size_t alignment_threshold = default_alignment_threshold) : base(upstream, alignment, alignment_threshold) {}
    explicit aligned_resource_adaptor(device_async_resource_ref upstream, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT, std::size_t alignment_threshold = default_alignment_threshold) : base(std::move(upstream), alignment, alignment_threshold) {}
};

template <class Upstream, class... Rest>
aligned_resource_adaptor(Upstream *, Rest...) -> aligned_resource_adaptor<Upstream>;
template <class Upstream, class... Rest, ::rmm::detail::if_object<Upstream> = 0>
aligned_resource_adaptor(Upstream &, Rest...) -> aligned_resource_adaptor<Upstream>;
template <class... Rest>
aligned_resource_adaptor(device_async_resource_ref, Rest...) -> aligned_resource_adaptor<device_memory_resource>;

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
