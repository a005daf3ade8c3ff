// Does a resource have an upstream?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_IS_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_IS_RESOURCE_ADAPTOR_HPP

#include "../../detail/age.hpp"

#include <type_traits>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Whether a class of resources is a layer over another resource.
template <class Resource, class = void>
inline constexpr bool is_resource_adaptor = false;
template <class Resource>
inline constexpr bool
    is_resource_adaptor<Resource, std::void_t<decltype(std::declval<Resource const &>().get_upstream_resource())>> = true;

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
