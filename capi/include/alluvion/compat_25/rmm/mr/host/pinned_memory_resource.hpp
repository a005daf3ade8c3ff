// What if copies to the device shall be fast?
#ifndef ALLUVION_COMPAT_25_RMM_MR_HOST_PINNED_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_HOST_PINNED_MEMORY_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "host_memory_resource.hpp"
#include "../../../../compat/rmm/detail/handle.hpp"
#include "../../../../compat/rmm/cuda_stream_view.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Page-locked memory of the host. Which stream uses it is not known: a block that is freed serves nobody before all work is over.
class pinned_memory_resource final : public host_memory_resource {
public:
    pinned_memory_resource() : handle_("pinned") {}

    [[nodiscard]] ::rmm::detail::resource const &handle() const noexcept { return handle_; }

private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override { return handle_.allocate_sync(bytes, alignment); }
    void do_deallocate(void *block, std::size_t bytes, std::size_t alignment) noexcept override {
        handle_.deallocate_sync(block, bytes, alignment);
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
