// Which RMM do these headers follow?
#ifndef ALLUVION_COMPAT_RMM_VERSION_CONFIG_HPP
#define ALLUVION_COMPAT_RMM_VERSION_CONFIG_HPP

#include "detail/alone.hpp"

#define RMM_VERSION_MAJOR 26
#define RMM_VERSION_MINOR 10
#define RMM_VERSION_PATCH 0

#endif
