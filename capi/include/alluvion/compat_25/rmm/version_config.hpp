// Which RMM do these headers follow?
#ifndef ALLUVION_COMPAT_25_RMM_VERSION_CONFIG_HPP
#define ALLUVION_COMPAT_25_RMM_VERSION_CONFIG_HPP

#include "detail/age.hpp"

#define RMM_VERSION_MAJOR 25
#define RMM_VERSION_MINOR 12
#define RMM_VERSION_PATCH 0

#endif
