/* The first RMM by its main header. */
#ifndef ALLUVION_COMPAT_0_RMM_RMM_H
#define ALLUVION_COMPAT_0_RMM_RMM_H

#include "rmm_api.h"

#endif
