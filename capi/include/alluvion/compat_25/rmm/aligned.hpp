// How are sizes and addresses rounded?
#ifndef ALLUVION_COMPAT_25_RMM_ALIGNED_HPP
#define ALLUVION_COMPAT_25_RMM_ALIGNED_HPP

#include "detail/age.hpp"
#include "../../compat/rmm/aligned.hpp"

#endif
