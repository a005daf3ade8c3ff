// Who serves blocks of one size?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_FIXED_SIZE_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_FIXED_SIZE_MEMORY_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/fixed_size_memory_resource.hpp"
#include "../../detail/layer.hpp"

#include <cstddef>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Serves every request with a block of one size. A larger request is `out_of_memory`.
template <class Upstream>
class fixed_size_memory_resource final : public ::rmm::detail::suballocator<Upstream, handles::fixed_size_memory_resource> {
    using base = ::rmm::detail::suballocator<Upstream, handles::fixed_size_memory_resource>;

public:
    static constexpr std::size_t default_block_size = handles::fixed_size_memory_resource::default_block_size;
    static constexpr std::size_t default_blocks_to_preallocate = handles::fixed_size_memory_resource::default_blocks_to_preallocate;

    explicit fixed_size_memory_resource(Upstream *upstream, std::size_t block_size = default_block_size, std::size_t blocks_to_preallocate = default_blocks_to_preallocate) : base(upstream, block_size, blocks_to_preallocate) {}
    explicit fixed_size_memory_resource(device_async_resource_ref upstream, std::size_t block_size = default_block_size, std::size_t blocks_to_preallocate = default_blocks_to_preallocate) : base(std::move(upstream), block_size, blocks_to_preallocate) {}

    [[nodiscard]] std::size_t get_block_size() const noexcept { return this->handle_.get_block_size(); }
};

template <class Upstream, class... Rest>
fixed_size_memory_resource(Upstream *, Rest...) -> fixed_size_memory_resource<Upstream>;
template <class Upstream, class... Rest, ::rmm::detail::if_object<Upstream> = 0>
fixed_size_memory_resource(Upstream &, Rest...) -> fixed_size_memory_resource<Upstream>;
template <class... Rest>
fixed_size_memory_resource(device_async_resource_ref, Rest...) -> fixed_size_memory_resource<device_memory_resource>;

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
