// Which device?
#ifndef ALLUVION_COMPAT_25_RMM_CUDA_DEVICE_HPP
#define ALLUVION_COMPAT_25_RMM_CUDA_DEVICE_HPP

#include "detail/age.hpp"
#include "../../compat/rmm/cuda_device.hpp"

#endif
