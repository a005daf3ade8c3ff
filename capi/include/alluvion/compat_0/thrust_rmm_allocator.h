/* The same as `rmm/thrust_rmm_allocator.h`: RMM 0.4 and 0.5 have it here. */
#include "rmm/thrust_rmm_allocator.h"
