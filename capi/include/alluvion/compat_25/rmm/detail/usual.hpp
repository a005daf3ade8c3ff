// What do programs use that include any header about resources? RMM's brought it along.
#ifndef ALLUVION_COMPAT_25_RMM_DETAIL_USUAL_HPP
#define ALLUVION_COMPAT_25_RMM_DETAIL_USUAL_HPP

#include "age.hpp"
#include "../cuda_device.hpp"
#include "../cuda_stream.hpp"
#include "../device_buffer.hpp"
#include "../logger.hpp"
#include "../mr/device/cuda_async_memory_resource.hpp"
#include "../mr/device/cuda_memory_resource.hpp"
#include "../mr/device/per_device_resource.hpp"

#endif
