// What can the current device do?
#ifndef ALLUVION_COMPAT_RMM_DETAIL_RUNTIME_CAPABILITIES_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_RUNTIME_CAPABILITIES_HPP

#include "../cuda_device.hpp"
#include "handle.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

/// The stack of a recipe on a device; an empty handle if the device has not that memory.
inline resource if_had(char const *recipe, cuda_device_id device) {
    alv_resource *made = nullptr;
    alv_status const status = alv_resource_from_recipe(recipe, device.value(), &made);
    if (status != ALV_UNSUPPORTED) {
        check(status);
    }
    return resource::adopt(made);
}

/// Whether a device has the memory of a recipe.
inline bool is_had(char const *recipe, cuda_device_id device) { return static_cast<bool>(if_had(recipe, device)); }

/// Whether `cuda_async_memory_resource` works.
struct runtime_async_alloc {
    static bool is_supported() { return is_had("cuda-async", get_current_cuda_device()); }
};

/// Whether `cuda_async_managed_memory_resource` works.
struct runtime_async_managed_alloc {
    static bool is_supported() { return is_had("cuda-async-managed", get_current_cuda_device()); }
};

/// Whether the host may use managed memory while devices are busy: every device of the machine must allow it.
struct concurrent_managed_access {
    static bool is_supported() {
        resource const managed = if_had("managed", get_current_cuda_device());
        return managed && managed.host_accessible();
    }
};

/// Whether a pool of the driver can be made whose memory is exported in such a way: only if in none, which is 0.
struct export_handle_type {
    template <class Type>
    static bool is_supported(Type type) noexcept {
        return static_cast<int>(type) == 0;
    }
};

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif
