// What if ordinary memory of the host will do?
#ifndef ALLUVION_COMPAT_25_RMM_MR_HOST_NEW_DELETE_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_HOST_NEW_DELETE_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "host_memory_resource.hpp"
#include "../../../../compat/rmm/error.hpp"

#include <new>
#include <string>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Memory of the global `operator new`. Two are equal.
class new_delete_resource final : public host_memory_resource {
private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override {
        try {
            return ::operator new(bytes, std::align_val_t{supported(alignment)});
        } catch (std::bad_alloc const &) {
            throw out_of_memory("the host has no " + std::to_string(bytes) + " bytes");
        }
    }
    void do_deallocate(void *block, std::size_t bytes, std::size_t alignment) override {
        ::operator delete(block, bytes, std::align_val_t{supported(alignment)});
    }
    [[nodiscard]] bool do_is_equal(host_memory_resource const &other) const noexcept override {
        return dynamic_cast<new_delete_resource const *>(&other) != nullptr;
    }
};

} // namespace mr
ALLUVION_COMPAT_RMM_END

#endif
