// What if the driver keeps a pool?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_CUDA_ASYNC_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_CUDA_ASYNC_MEMORY_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/cuda_async_memory_resource.hpp"
#include "../../detail/layer.hpp"
#include "../../detail/runtime_async_alloc.hpp"

#include <cstddef>
#include <optional>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// A pool of the driver's own, stream-ordered, on the device that is current when it is made.
class cuda_async_memory_resource final : public ::rmm::detail::object_of<handles::cuda_async_memory_resource> {
public:
    using allocation_handle_type = handles::cuda_async_memory_resource::allocation_handle_type;

    /// Memory that is exported is not offered: another handle type than `none` is a `logic_error`.
    cuda_async_memory_resource(std::optional<std::size_t> initial_pool_size = {}, std::optional<std::size_t> release_threshold = {},
                               std::optional<allocation_handle_type> export_handle_type = {})
        : object_of(of{}, initial_pool_size, release_threshold, export_handle_type) {}
};

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
