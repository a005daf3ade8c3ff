// Who destroys a stream?
#ifndef ALLUVION_COMPAT_25_RMM_CUDA_STREAM_HPP
#define ALLUVION_COMPAT_25_RMM_CUDA_STREAM_HPP

#include "detail/age.hpp"
#include "../../compat/rmm/cuda_stream.hpp"

#endif
