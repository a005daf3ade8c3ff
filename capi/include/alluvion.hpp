// Alluvion for C++: stream-ordered memory of GPUs, in composable layers.
//
//     alluvion::resource pool("stats | pool | cuda-async");
//     alluvion::stream stream;
//     alluvion::buffer bytes(1 << 20, stream, pool);
//
// C++17 and later; headers alone, over the C interface (alluvion.h). No header of CUDA is needed. Where CCCL is on the path and has
// the concept of memory resources, `resource` is one; ALLUVION_NO_CCCL leaves that out.
#ifndef ALLUVION_HPP
#define ALLUVION_HPP

#include "alluvion/cpp/buffer.hpp"
#include "alluvion/cpp/callback.hpp"
#include "alluvion/cpp/configuration.hpp"
#include "alluvion/cpp/error.hpp"
#include "alluvion/cpp/graph_memory.hpp"
#include "alluvion/cpp/per_device.hpp"
#include "alluvion/cpp/reservation.hpp"
#include "alluvion/cpp/resource.hpp"
#include "alluvion/cpp/saved.hpp"
#include "alluvion/cpp/scope.hpp"
#include "alluvion/cpp/segments.hpp"
#include "alluvion/cpp/shared.hpp"
#include "alluvion/cpp/sleeper.hpp"
#include "alluvion/cpp/stream.hpp"

#endif
