// What do resources derive from?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_DEVICE_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_DEVICE_MEMORY_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/detail/resource.hpp"

#include "../../detail/usual.hpp"

#endif
