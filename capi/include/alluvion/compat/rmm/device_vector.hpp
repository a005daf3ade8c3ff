// What is an array of a device whose elements are initialised?
#ifndef ALLUVION_COMPAT_RMM_DEVICE_VECTOR_HPP
#define ALLUVION_COMPAT_RMM_DEVICE_VECTOR_HPP

#include "mr/thrust_allocator_adaptor.hpp"

ALLUVION_COMPAT_RMM_BEGIN

/// Thrust's vector, with memory of a resource.
template <class T>
using device_vector = ::thrust::device_vector<T, mr::thrust_allocator<T>>;

ALLUVION_COMPAT_RMM_END

#endif
