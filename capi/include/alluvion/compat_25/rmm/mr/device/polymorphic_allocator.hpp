// How does an allocator of elements ask a resource?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_POLYMORPHIC_ALLOCATOR_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_POLYMORPHIC_ALLOCATOR_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/polymorphic_allocator.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

template <class Allocator>
auto make_stream_allocator_adaptor(Allocator const &allocator, cuda_stream_view stream) {
    return stream_allocator_adaptor<Allocator>(allocator, stream);
}

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
