// Containers of memory of a device: bytes, elements and one value, with the names that RMM's have. A program that changes the
// namespace keeps the rest.
//
// They copy by the library alone: no header of CUDA is needed, and they run on a simulated machine.
#ifndef ALLUVION_CONTAINERS_HPP
#define ALLUVION_CONTAINERS_HPP

#include "../alluvion.hpp"
#include "cpp/device_buffer.hpp"
#include "cpp/device_scalar.hpp"
#include "cpp/device_uvector.hpp"

#endif
