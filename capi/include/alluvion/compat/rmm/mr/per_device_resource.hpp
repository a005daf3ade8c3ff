// What does a device allocate from by default?
#ifndef ALLUVION_COMPAT_RMM_MR_PER_DEVICE_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_MR_PER_DEVICE_RESOURCE_HPP

#include "../cuda_device.hpp"
#include "../resource_ref.hpp"

#include <map>
#include <mutex>
#include <optional>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {
namespace detail {

using ::rmm::detail::any_resource;
using ::rmm::detail::resource;

#if ALLUVION_COMPAT_RMM_CCCL

/// A resource as the program gave it, and the handle that the library has for it.
struct current_of_device {
    any_resource given;
    resource handle;
};

/// What `get_per_device_resource_ref` refers to. The library knows the current resources, C programs change them too, and this
/// follows. Never destroyed: a reference may be used until the process ends.
struct current_resources {
    std::mutex lock;
    std::map<int, current_of_device> by_device;

    static current_resources &get() {
        static current_resources *const all = new current_resources;
        return *all;
    }

    any_resource &of(cuda_device_id device) {
        resource now = resource::current(device.value());
        // Destroyed after the lock is given back: a pool that goes may wait for work.
        std::optional<current_of_device> before;
        std::lock_guard<std::mutex> const held(lock);
        auto const found = by_device.find(device.value());
        if (found == by_device.end()) {
            return by_device.emplace(device.value(), current_of_device{any_resource(now), now}).first->second.given;
        }
        if (found->second.handle != now) {
            before.emplace(std::exchange(found->second, current_of_device{any_resource(now), now}));
        }
        return found->second.given;
    }

    /// Remembers what was given for a device, and answers what was given for the one before.
    any_resource exchange(cuda_device_id device, std::optional<current_of_device> next, resource previous) {
        std::lock_guard<std::mutex> const held(lock);
        auto const found = by_device.find(device.value());
        any_resource given = found != by_device.end() && found->second.handle == previous
                                 ? std::move(found->second.given)
                                 : any_resource(std::move(previous));
        if (next) {
            by_device.insert_or_assign(device.value(), std::move(*next));
        } else if (found != by_device.end()) {
            resource const first = resource::current(device.value());
            found->second = current_of_device{any_resource(first), first};
        }
        return given;
    }
};

#endif

} // namespace detail

/// The resource of a device. A reference, which names the current one also after another is set.
inline device_async_resource_ref get_per_device_resource_ref(cuda_device_id device) {
#if ALLUVION_COMPAT_RMM_CCCL
    return device_async_resource_ref{detail::current_resources::get().of(device)};
#else
    return detail::resource::current(device.value());
#endif
}

/// Makes a device allocate from another resource, and answers the one before. C programs, and every header of this library, see
/// it too.
inline detail::any_resource set_per_device_resource(cuda_device_id device, detail::any_resource other) {
    detail::resource handle = ::rmm::detail::handle_of(other);
    alv_resource *previous = nullptr;
    ::rmm::detail::check(alv_set_current_resource(device.value(), handle.native_handle(), &previous));
    detail::resource before = detail::resource::adopt(previous);
#if ALLUVION_COMPAT_RMM_CCCL
    return detail::current_resources::get().exchange(
        device, detail::current_of_device{std::move(other), std::move(handle)}, std::move(before));
#else
    return before;
#endif
}

/// Puts the first resource of a device back, and answers the one before.
inline detail::any_resource reset_per_device_resource(cuda_device_id device) {
    alv_resource *previous = nullptr;
    ::rmm::detail::check(alv_reset_current_resource(device.value(), &previous));
    detail::resource before = detail::resource::adopt(previous);
#if ALLUVION_COMPAT_RMM_CCCL
    return detail::current_resources::get().exchange(device, std::nullopt, std::move(before));
#else
    return before;
#endif
}

// The same for the device that is current for the calling thread.

inline device_async_resource_ref get_current_device_resource_ref() {
    return get_per_device_resource_ref(get_current_cuda_device());
}
inline detail::any_resource set_current_device_resource(detail::any_resource other) {
    return set_per_device_resource(get_current_cuda_device(), std::move(other));
}
inline detail::any_resource reset_current_device_resource() { return reset_per_device_resource(get_current_cuda_device()); }

// The names until RMM 26.04. What they answer keeps the resource.

inline detail::any_resource set_per_device_resource_ref(cuda_device_id device, detail::any_resource other) {
    return set_per_device_resource(device, std::move(other));
}
inline detail::any_resource set_current_device_resource_ref(detail::any_resource other) {
    return set_current_device_resource(std::move(other));
}
inline detail::any_resource reset_per_device_resource_ref(cuda_device_id device) { return reset_per_device_resource(device); }
inline detail::any_resource reset_current_device_resource_ref() { return reset_current_device_resource(); }

} // namespace mr
ALLUVION_COMPAT_RMM_END

#endif
