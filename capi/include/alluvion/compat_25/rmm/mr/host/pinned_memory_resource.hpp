// What if copies to the device shall be fast?
#ifndef ALLUVION_COMPAT_25_RMM_MR_HOST_PINNED_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_HOST_PINNED_MEMORY_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "host_memory_resource.hpp"
#include "../../../../compat/rmm/detail/handle.hpp"
#include "../../../../compat/rmm/cuda_stream_view.hpp"

#include <cstddef>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Page-locked memory of the host. Which stream uses it is not known: a block that is freed serves nobody before all work is over.
class pinned_memory_resource final : public host_memory_resource {
public:
    pinned_memory_resource() : handle_("pinned") {}

    [[nodiscard]] ::rmm::detail::resource const &handle() const noexcept { return handle_; }

    // Below a pool. A stream tells it which work uses a block, and what this has freed serves that stream at once.

    [[nodiscard]] void *allocate_async(std::size_t bytes, std::size_t alignment, cuda_stream_view stream) {
        return handle_.allocate(stream, bytes, supported(alignment));
    }
    [[nodiscard]] void *allocate_async(std::size_t bytes, cuda_stream_view stream) {
        return allocate_async(bytes, alignof(std::max_align_t), stream);
    }
    void deallocate_async(void *block, std::size_t bytes, std::size_t alignment, cuda_stream_view stream) noexcept {
        handle_.deallocate(stream, block, bytes, supported(alignment));
    }
    void deallocate_async(void *block, std::size_t bytes, cuda_stream_view stream) noexcept {
        deallocate_async(block, bytes, alignof(std::max_align_t), stream);
    }

#if ALLUVION_CCCL
    friend void get_property(pinned_memory_resource const &, ::cuda::mr::device_accessible) noexcept {}
#endif

private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override { return handle_.allocate_sync(bytes, supported(alignment)); }
    void do_deallocate(void *block, std::size_t bytes, std::size_t alignment) noexcept override {
        handle_.deallocate_sync(block, bytes, supported(alignment));
    }
    [[nodiscard]] bool do_is_equal(host_memory_resource const &other) const noexcept override {
        auto const *const same = dynamic_cast<pinned_memory_resource const *>(&other);
        return same != nullptr && alv_resource_equal(same->handle_.native_handle(), handle_.native_handle());
    }

    ::rmm::detail::resource handle_;
};

} // namespace mr
ALLUVION_COMPAT_RMM_END

#endif
