// Where is managed memory before it is used?
#ifndef ALLUVION_COMPAT_RMM_PREFETCH_HPP
#define ALLUVION_COMPAT_RMM_PREFETCH_HPP

#include "cuda_device.hpp"
#include "cuda_stream_view.hpp"

#include <cstddef>

#if ALLUVION_CCCL
#include <cuda/std/span>
#endif

ALLUVION_COMPAT_RMM_BEGIN

/// Queues the migration of managed memory to a device, or to the host for the number -1, on a stream of the current device. Other memory
/// stays where it is.
inline void prefetch(void const *address, std::size_t bytes, cuda_device_id to, cuda_stream_view stream) {
    detail::ensure_context();
    alv_resource *source = nullptr;
    detail::check(alv_resource_from_recipe("cuda", detail::current_device(), &source));
    alv_status const status = alv_prefetch_raw(source, address, bytes, to.value(), stream.resolved());
    alv_resource_release(source);
    detail::check(status);
}

#if ALLUVION_CCCL
/// The same for elements.
template <class T>
void prefetch(::cuda::std::span<T const> elements, cuda_device_id to, cuda_stream_view stream) {
    prefetch(elements.data(), elements.size_bytes(), to, stream);
}
#endif

ALLUVION_COMPAT_RMM_END

#endif
