// What does a device allocate from by default?
#ifndef ALLUVION_COMPAT_RMM_MR_PER_DEVICE_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_MR_PER_DEVICE_RESOURCE_HPP

#include "../cuda_device.hpp"
#include "../resource_ref.hpp"

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#if ALLUVION_COMPAT_RMM_BY_POINTER
#include "../detail/current_by_pointer.hpp"
#else

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

    /// What `use` makes of the slot of a device, while nobody changes it.
    template <class Use>
    auto of(cuda_device_id device, Use const &use) {
        // Destroyed after the lock is given back: a pool that goes may wait for work.
        std::optional<current_of_device> before;
        std::lock_guard<std::mutex> const held(lock);
        resource now = resource::current(device.value());
        auto const found = by_device.find(device.value());
        if (found == by_device.end()) {
            return use(by_device.emplace(device.value(), current_of_device{any_resource(now), now}).first->second.given);
        }
        if (found->second.handle != now) {
            before.emplace(std::exchange(found->second, current_of_device{any_resource(now), now}));
        }
        return use(found->second.given);
    }

    /// Has the library set another resource, remembers what was given for it, and answers what was given for the one before.
    template <class Set>
    any_resource exchange(cuda_device_id device, std::optional<current_of_device> next, Set const &set) {
        std::optional<current_of_device> before;
        std::lock_guard<std::mutex> const held(lock);
        alv_resource *previous = nullptr;
        ::rmm::detail::check(set(&previous));
        resource gone = resource::adopt(previous);
        auto const found = by_device.find(device.value());
        if (found == by_device.end()) {
            if (next) {
                by_device.emplace(device.value(), std::move(*next));
            }
            return any_resource(std::move(gone));
        }
        if (!next) {
            resource const first = resource::current(device.value());
            next = current_of_device{any_resource(first), first};
        }
        // In its place, which references name.
        before.emplace(std::exchange(found->second, std::move(*next)));
        return before->handle == gone ? std::move(before->given) : any_resource(std::move(gone));
    }
};

#endif

} // namespace detail

/// The resource of a device. A reference, which names the current one also after another is set: as in RMM, who sets one lets no
/// other thread use a reference meanwhile. What names no resource at all, as `device_buffer(size, stream)`, needs no such order.
inline device_async_resource_ref get_per_device_resource_ref(cuda_device_id device) {
#if ALLUVION_COMPAT_RMM_CCCL
    return detail::current_resources::get().of(device,
                                               [](detail::any_resource &slot) { return device_async_resource_ref{slot}; });
#else
    return detail::resource::current(device.value());
#endif
}

/// Makes a device allocate from another resource, and answers the one before. C programs, and every header of this library,
/// see it too.
inline detail::any_resource set_per_device_resource(cuda_device_id device, detail::any_resource other) {
    detail::resource handle = ::rmm::detail::handle_of(other);
    auto const set = [device, to = handle.native_handle()](alv_resource **previous) {
        return alv_set_current_resource(device.value(), to, previous);
    };
#if ALLUVION_COMPAT_RMM_CCCL
    return detail::current_resources::get().exchange(device, detail::current_of_device{std::move(other), handle}, set);
#else
    alv_resource *previous = nullptr;
    ::rmm::detail::check(set(&previous));
    return detail::resource::adopt(previous);
#endif
}

/// Puts the first resource of a device back, and answers the one before.
inline detail::any_resource reset_per_device_resource(cuda_device_id device) {
    auto const reset = [device](alv_resource **previous) { return alv_reset_current_resource(device.value(), previous); };
#if ALLUVION_COMPAT_RMM_CCCL
    return detail::current_resources::get().exchange(device, std::nullopt, reset);
#else
    alv_resource *previous = nullptr;
    ::rmm::detail::check(reset(&previous));
    return detail::resource::adopt(previous);
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
namespace detail {

/// The current resource of the current device, kept, while other threads may set another.
inline any_resource current_resource() {
    cuda_device_id const device;
#if ALLUVION_COMPAT_RMM_CCCL
    return mr::detail::current_resources::get().of(device, [](any_resource &slot) { return any_resource(slot); });
#else
    return resource::current(device.value());
#endif
}

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif

#endif
