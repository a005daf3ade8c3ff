// What does a function take that allocates?
#ifndef ALLUVION_COMPAT_25_RMM_RESOURCE_REF_HPP
#define ALLUVION_COMPAT_25_RMM_RESOURCE_REF_HPP

#include "detail/age.hpp"
#include "../../compat/rmm/resource_ref.hpp"

#endif
