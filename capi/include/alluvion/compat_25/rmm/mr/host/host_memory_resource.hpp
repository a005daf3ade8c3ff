// Who allocates memory of the host?
#ifndef ALLUVION_COMPAT_25_RMM_MR_HOST_HOST_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_HOST_HOST_MEMORY_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/aligned.hpp"

#include <cstddef>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// The base of resources of the host: as `std::pmr::memory_resource`.
class host_memory_resource {
public:
    host_memory_resource() = default;
    host_memory_resource(host_memory_resource const &) = default;
    host_memory_resource(host_memory_resource &&) noexcept = default;
    host_memory_resource &operator=(host_memory_resource const &) = default;
    host_memory_resource &operator=(host_memory_resource &&) noexcept = default;
    virtual ~host_memory_resource() = default;

    [[nodiscard]] void *allocate(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
        return do_allocate(bytes, alignment);
    }
    void deallocate(void *block, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
        do_deallocate(block, bytes, alignment);
    }
    [[nodiscard]] bool is_equal(host_memory_resource const &other) const noexcept { return do_is_equal(other); }

    [[nodiscard]] bool operator==(host_memory_resource const &other) const noexcept { return do_is_equal(other); }
    [[nodiscard]] bool operator!=(host_memory_resource const &other) const noexcept { return !do_is_equal(other); }

#if ALLUVION_CCCL
    friend void get_property(host_memory_resource const &, ::cuda::mr::host_accessible) noexcept {}
#endif

protected:
    /// An alignment that is no power of two is that of `std::max_align_t`, as in RMM.
    [[nodiscard]] static constexpr std::size_t supported(std::size_t alignment) noexcept {
        return is_supported_alignment(alignment) ? alignment : alignof(std::max_align_t);
    }

private:
    virtual void *do_allocate(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) = 0;
    virtual void do_deallocate(void *block, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) = 0;
    [[nodiscard]] virtual bool do_is_equal(host_memory_resource const &other) const noexcept { return this == &other; }
};

} // namespace mr
ALLUVION_COMPAT_RMM_END

#endif
