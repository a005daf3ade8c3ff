// What is an array of a device whose elements are initialised?
#ifndef ALLUVION_COMPAT_25_RMM_DEVICE_VECTOR_HPP
#define ALLUVION_COMPAT_25_RMM_DEVICE_VECTOR_HPP

#include "detail/age.hpp"
#include "../../compat/rmm/device_vector.hpp"

#endif
