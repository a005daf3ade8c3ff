// Who frees an array of a device?
#ifndef ALLUVION_COMPAT_25_RMM_DEVICE_UVECTOR_HPP
#define ALLUVION_COMPAT_25_RMM_DEVICE_UVECTOR_HPP

#include "detail/age.hpp"
#include "../../compat/rmm/device_uvector.hpp"

#include "detail/usual.hpp"

#endif
