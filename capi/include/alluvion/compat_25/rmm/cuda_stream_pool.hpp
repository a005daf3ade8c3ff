// Who keeps streams for others?
#ifndef ALLUVION_COMPAT_25_RMM_CUDA_STREAM_POOL_HPP
#define ALLUVION_COMPAT_25_RMM_CUDA_STREAM_POOL_HPP

#include "detail/age.hpp"
#include "../../compat/rmm/cuda_stream_pool.hpp"

#endif
