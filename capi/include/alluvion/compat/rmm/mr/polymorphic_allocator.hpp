// How does an allocator of elements ask a resource?
#ifndef ALLUVION_COMPAT_RMM_MR_POLYMORPHIC_ALLOCATOR_HPP
#define ALLUVION_COMPAT_RMM_MR_POLYMORPHIC_ALLOCATOR_HPP

#include "../detail/allocation.hpp"

#include <memory>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Elements of a device, on a stream that each call names.
template <class T>
using polymorphic_allocator = ::alluvion::basic_polymorphic_allocator<T, ::rmm::detail::allocation>;

/// A polymorphic allocator on one stream, as an allocator of the standard library. The class is no alias, so that a program may leave the type out.
template <class Allocator>
class stream_allocator_adaptor : public ::alluvion::basic_stream_allocator_adaptor<Allocator, cuda_stream_view> {
    using base = ::alluvion::basic_stream_allocator_adaptor<Allocator, cuda_stream_view>;

public:
    using base::base;

    template <class Other>
    struct rebind {
        using other = stream_allocator_adaptor<typename std::allocator_traits<Allocator>::template rebind_alloc<Other>>;
    };
};

template <class Allocator>
stream_allocator_adaptor(Allocator const &, cuda_stream_view) -> stream_allocator_adaptor<Allocator>;

} // namespace mr
ALLUVION_COMPAT_RMM_END

#endif
