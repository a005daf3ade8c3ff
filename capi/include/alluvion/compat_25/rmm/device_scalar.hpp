// Who frees one value of a device?
#ifndef ALLUVION_COMPAT_25_RMM_DEVICE_SCALAR_HPP
#define ALLUVION_COMPAT_25_RMM_DEVICE_SCALAR_HPP

#include "detail/age.hpp"
#include "../../compat/rmm/device_scalar.hpp"

#include "detail/usual.hpp"

#endif
