/* The functions of the first RMM, versions 0.4 to 0.12, and their macros. */
#ifndef ALLUVION_COMPAT_0_RMM_RMM_API_H
#define ALLUVION_COMPAT_0_RMM_RMM_API_H

#if defined(ALLUVION_COMPAT_RMM) || defined(RMM_VERSION_MAJOR)
#error "alluvion/compat_0 stands in the place of the first RMM, and this file has headers of a later one"
#endif
#define ALLUVION_COMPAT_0 1

#include "../../rmm_legacy.h"

#endif
