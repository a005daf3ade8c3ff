// What if every block is a call of the driver?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_CUDA_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_CUDA_MEMORY_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/cuda_memory_resource.hpp"
#include "../../detail/layer.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Memory of `cudaMalloc`, on the device that is current at the call. All are equal.
class cuda_memory_resource final : public ::rmm::detail::object_of_each_device<handles::cuda_memory_resource> {};

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
