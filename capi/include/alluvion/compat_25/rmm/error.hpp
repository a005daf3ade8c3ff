// What is thrown? The exceptions of RMM, under their names.
#ifndef ALLUVION_COMPAT_25_RMM_ERROR_HPP
#define ALLUVION_COMPAT_25_RMM_ERROR_HPP

#include "detail/age.hpp"
#include "../../compat/rmm/error.hpp"

#endif
