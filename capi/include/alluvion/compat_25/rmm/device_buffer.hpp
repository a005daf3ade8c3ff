// Who frees bytes of a device?
#ifndef ALLUVION_COMPAT_25_RMM_DEVICE_BUFFER_HPP
#define ALLUVION_COMPAT_25_RMM_DEVICE_BUFFER_HPP

#include "detail/age.hpp"
#include "../../compat/rmm/device_buffer.hpp"

#include "detail/usual.hpp"

#endif
