// What can the current device do?
#ifndef ALLUVION_COMPAT_25_RMM_DETAIL_RUNTIME_CAPABILITIES_HPP
#define ALLUVION_COMPAT_25_RMM_DETAIL_RUNTIME_CAPABILITIES_HPP

#include "age.hpp"
#include "../../../compat/rmm/detail/runtime_capabilities.hpp"

#endif
