// What if every block is a call of the driver?
#ifndef ALLUVION_COMPAT_RMM_MR_CUDA_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_MR_CUDA_MEMORY_RESOURCE_HPP

#include "../detail/factory.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

/// Memory of `cudaMalloc`, on the device that is current when it is made. Two of one device are equal.
class cuda_memory_resource final : public ::rmm::detail::resource {
public:
    cuda_memory_resource() : ::rmm::detail::resource("cuda") {}
};

ALLUVION_COMPAT_RMM_RECOGNISE_SOURCE(cuda_memory_resource)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
