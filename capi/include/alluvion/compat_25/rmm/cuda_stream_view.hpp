// Which stream? One that somebody else keeps.
#ifndef ALLUVION_COMPAT_25_RMM_CUDA_STREAM_VIEW_HPP
#define ALLUVION_COMPAT_25_RMM_CUDA_STREAM_VIEW_HPP

#include "detail/age.hpp"
#include "../../compat/rmm/cuda_stream_view.hpp"

#endif
