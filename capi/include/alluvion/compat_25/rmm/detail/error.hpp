// How does a program check what it asks for, and what CUDA answers? The macros of RMM, under their names.
#ifndef ALLUVION_COMPAT_25_RMM_DETAIL_ERROR_HPP
#define ALLUVION_COMPAT_25_RMM_DETAIL_ERROR_HPP

#include "age.hpp"
#include "../../../compat/rmm/detail/error.hpp"

#endif
