// Where is managed memory before it is used?
#ifndef ALLUVION_COMPAT_25_RMM_PREFETCH_HPP
#define ALLUVION_COMPAT_25_RMM_PREFETCH_HPP

#include "detail/age.hpp"
#include "../../compat/rmm/prefetch.hpp"

#endif
