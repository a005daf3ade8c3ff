/* The same as `rmm/rmm.h`: RMM 0.4 and 0.5 have it here. */
#include "rmm/rmm.h"
