// What does a function take that allocates?
#ifndef ALLUVION_COMPAT_RMM_RESOURCE_REF_HPP
#define ALLUVION_COMPAT_RMM_RESOURCE_REF_HPP

#include "detail/resource.hpp"

ALLUVION_COMPAT_RMM_BEGIN

#if ALLUVION_COMPAT_RMM_CCCL

using device_resource_ref = ::cuda::mr::synchronous_resource_ref<::cuda::mr::device_accessible>;
using device_async_resource_ref = ::cuda::mr::resource_ref<::cuda::mr::device_accessible>;
using host_resource_ref = ::cuda::mr::synchronous_resource_ref<::cuda::mr::host_accessible>;
using host_async_resource_ref = ::cuda::mr::resource_ref<::cuda::mr::host_accessible>;
using host_device_resource_ref =
    ::cuda::mr::synchronous_resource_ref<::cuda::mr::host_accessible, ::cuda::mr::device_accessible>;
using host_device_async_resource_ref =
    ::cuda::mr::resource_ref<::cuda::mr::host_accessible, ::cuda::mr::device_accessible>;

#elif ALLUVION_COMPAT_RMM_BY_POINTER

using device_resource_ref = detail::by_pointer;
using device_async_resource_ref = detail::by_pointer;
using host_resource_ref = detail::by_pointer;
using host_async_resource_ref = detail::by_pointer;
using host_device_resource_ref = detail::by_pointer;
using host_device_async_resource_ref = detail::by_pointer;

#else

// Without these types of CCCL: a counted handle, which keeps what a reference would only borrow.
using device_resource_ref = detail::resource;
using device_async_resource_ref = detail::resource;

#endif

/// A reference to what a pointer points to.
template <class Resource>
device_async_resource_ref to_device_async_resource_ref_checked(Resource *resource) {
    if (resource == nullptr) {
        throw logic_error("the pointer to a resource is null");
    }
    return device_async_resource_ref{*resource};
}

ALLUVION_COMPAT_RMM_END

#if ALLUVION_COMPAT_RMM_BY_POINTER
#include "detail/current_by_pointer.hpp"
#endif

#endif
