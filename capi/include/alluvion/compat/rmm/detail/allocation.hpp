// What are allocators of these headers made of?
#ifndef ALLUVION_COMPAT_RMM_DETAIL_ALLOCATION_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_ALLOCATION_HPP

#include "../../../allocators.hpp"
#include "../mr/per_device_resource.hpp"

#include <cstddef>
#include <limits>

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

struct allocation {
    using resource = any_resource;
    using stream = cuda_stream_view;
    using reference = device_async_resource_ref;
    using device = cuda_device_id;
    /// A resource of the program's may go by the current device.
    using on_device = cuda_set_device_raii;

    [[nodiscard]] static resource current() { return current_resource(); }
    [[nodiscard]] static reference refer(resource &kept) noexcept { return reference{kept}; }

    [[nodiscard]] static std::size_t bytes(std::size_t count, std::size_t size) {
        if (count > std::numeric_limits<std::size_t>::max() / size) {
            throw bad_alloc("so many elements have more bytes than a size can say");
        }
        return count * size;
    }
};

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif
