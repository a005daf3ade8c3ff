// What does a device allocate from by default?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_PER_DEVICE_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_PER_DEVICE_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/per_device_resource.hpp"

#include "../../detail/usual.hpp"

#endif
