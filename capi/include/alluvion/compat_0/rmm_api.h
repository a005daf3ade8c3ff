/* The same as `rmm/rmm_api.h`: RMM 0.4 and 0.5 have it here. */
#include "rmm/rmm_api.h"
