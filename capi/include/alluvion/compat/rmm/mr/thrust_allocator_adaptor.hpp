// How do Thrust's containers use a resource?
#ifndef ALLUVION_COMPAT_RMM_MR_THRUST_ALLOCATOR_ADAPTOR_HPP
#define ALLUVION_COMPAT_RMM_MR_THRUST_ALLOCATOR_ADAPTOR_HPP

#include "../../../thrust.hpp"
#include "../detail/allocation.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Elements for Thrust, on one stream.
template <class T>
using thrust_allocator = ::alluvion::basic_thrust_allocator<T, ::rmm::detail::allocation>;

} // namespace mr
ALLUVION_COMPAT_RMM_END

#endif
