// Which age of RMM do these headers follow? 0.20 to 25.12, where a resource is an object that others point to.
#ifndef ALLUVION_COMPAT_25_RMM_DETAIL_AGE_HPP
#define ALLUVION_COMPAT_25_RMM_DETAIL_AGE_HPP

#if defined(ALLUVION_COMPAT_RMM) && !defined(ALLUVION_COMPAT_RMM_BY_POINTER)
#error "alluvion/compat_25 stands in the place of RMM itself, which this file has included"
#elif defined(ALLUVION_COMPAT_RMM_BY_POINTER) && !ALLUVION_COMPAT_RMM_BY_POINTER
#error "this file has headers of alluvion/compat, which follow RMM 26: a program takes one folder"
#endif
#ifndef ALLUVION_COMPAT_RMM_BY_POINTER
#define ALLUVION_COMPAT_RMM_BY_POINTER 1
#endif

#include "../../../compat/rmm/detail/alone.hpp"

#endif
