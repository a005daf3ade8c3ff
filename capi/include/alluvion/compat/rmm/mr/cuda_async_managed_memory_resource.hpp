// What if managed memory comes from a pool of the driver?
#ifndef ALLUVION_COMPAT_RMM_MR_CUDA_ASYNC_MANAGED_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_MR_CUDA_ASYNC_MANAGED_MEMORY_RESOURCE_HPP

#include "../detail/factory.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

/// Managed memory from the pool of the driver, stream-ordered; from CUDA 13.0 on.
class cuda_async_managed_memory_resource final : public ::rmm::detail::resource {
public:
    cuda_async_managed_memory_resource() : ::rmm::detail::resource("cuda-async-managed") {}

    ALLUVION_COMPAT_RMM_HOST_ACCESSIBLE(cuda_async_managed_memory_resource)
};

ALLUVION_COMPAT_RMM_RECOGNISE(cuda_async_managed_memory_resource)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
