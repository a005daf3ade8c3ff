// How does an allocator of elements ask a resource?
#ifndef ALLUVION_COMPAT_RMM_MR_POLYMORPHIC_ALLOCATOR_HPP
#define ALLUVION_COMPAT_RMM_MR_POLYMORPHIC_ALLOCATOR_HPP

#include "../detail/allocation.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Elements of a device, on a stream that each call names.
template <class T>
using polymorphic_allocator = ::alluvion::basic_polymorphic_allocator<T, ::rmm::detail::allocation>;

/// Such an allocator on one stream, as one of the standard library.
template <class Allocator>
using stream_allocator_adaptor = ::alluvion::basic_stream_allocator_adaptor<Allocator, cuda_stream_view>;

} // namespace mr
ALLUVION_COMPAT_RMM_END

#endif
