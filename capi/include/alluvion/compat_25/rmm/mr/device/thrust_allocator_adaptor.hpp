// How does an allocator of Thrust ask a resource?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_THRUST_ALLOCATOR_ADAPTOR_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_THRUST_ALLOCATOR_ADAPTOR_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/thrust_allocator_adaptor.hpp"

#include "../../detail/usual.hpp"

#endif
