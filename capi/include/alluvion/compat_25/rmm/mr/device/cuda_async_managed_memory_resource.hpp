// What if the driver keeps a pool of managed memory?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_CUDA_ASYNC_MANAGED_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_CUDA_ASYNC_MANAGED_MEMORY_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/cuda_async_managed_memory_resource.hpp"
#include "../../detail/layer.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// A pool of the driver's own, of managed memory.
class cuda_async_managed_memory_resource final : public ::rmm::detail::object_of<handles::cuda_async_managed_memory_resource> {
public:
    cuda_async_managed_memory_resource() : object_of(of{}) {}
};

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
