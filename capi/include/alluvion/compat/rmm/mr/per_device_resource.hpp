// What does a device allocate from by default?
#ifndef ALLUVION_COMPAT_RMM_MR_PER_DEVICE_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_MR_PER_DEVICE_RESOURCE_HPP

#include "../cuda_device.hpp"
#include "../detail/first_resource.hpp"
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

/// What a device allocates from. A resource that is set stands beside the one that was there before the first was set, and not in its
/// place: programs set a layer over a reference to that one, and put it back by the reference.
struct resources_of_device {
    current_of_device unset;
    std::optional<current_of_device> set;
};

/// What `get_per_device_resource_ref` refers to. The library knows the current resources, C programs change them too, and this
/// follows. Never destroyed: a reference may be used until the process ends.
struct current_resources {
    std::mutex lock;
    std::map<int, resources_of_device> by_device;
    /// Those of the devices that `first_of` was asked for.
    std::map<int, any_resource> first;

    static current_resources &get() {
        static current_resources *const all = new current_resources;
        return *all;
    }

    /// What `use` makes of the resource of a device, while nobody changes it.
    template <class Use>
    auto of(cuda_device_id device, Use const &use) {
        // Destroyed after the lock is given back: a pool that goes may wait for work.
        std::optional<current_of_device> before;
        std::lock_guard<std::mutex> const held(lock);
        resource const now = resource::current(device.value());
        resources_of_device &known = those_of(device, now);
        current_of_device &latest = known.set ? *known.set : known.unset;
        if (::rmm::detail::is_same(latest.handle, now)) {
            return use(latest.given);
        }
        if (known.set && ::rmm::detail::is_same(known.unset.handle, now)) {
            before = std::exchange(known.set, std::nullopt);
            return use(known.unset.given);
        }
        // In its place, which references name.
        before = std::exchange(latest, with_handle(now));
        return use(latest.given);
    }

    /// Has the library set another resource, remembers what was given for it, and answers what was given for the one before.
    template <class Set>
    any_resource exchange(cuda_device_id device, std::optional<current_of_device> next, Set const &set) {
        // Two that may go.
        std::optional<current_of_device> before;
        std::optional<current_of_device> unset;
        std::lock_guard<std::mutex> const held(lock);
        alv_resource *previous = nullptr;
        ::rmm::detail::check(set(&previous));
        resource const gone = resource::adopt(previous);
        resources_of_device &known = those_of(device, gone);
        bool const is_known = ::rmm::detail::is_same(known.set ? known.set->handle : known.unset.handle, gone);
        // The handle that `of` compares with, which need not be the one that was set.
        resource const now = resource::current(device.value());
        if (::rmm::detail::is_same(known.unset.handle, now)) {
            next.reset();
        } else if (next) {
            next->handle = now;
        } else {
            unset = std::exchange(known.unset, with_handle(now));
        }
        before = std::exchange(known.set, std::move(next));
        if (!is_known) {
            return any_resource(gone);
        }
        if (before || unset) {
            return std::move((before ? before : unset)->given);
        }
        return known.unset.given;
    }

    /// What `first_resource` answers, in a place that references may name.
    any_resource &first_of(cuda_device_id device) {
        std::lock_guard<std::mutex> const held(lock);
        auto const found = first.find(device.value());
        return found != first.end() ? found->second
                                    : first.emplace(device.value(), any_resource(::rmm::detail::first_resource(device))).first->second;
    }

private:
    static current_of_device with_handle(resource const &handle) { return {any_resource(handle), handle}; }

    /// Those of a device, which has been allocating from `found` if it is the first time.
    resources_of_device &those_of(cuda_device_id device, resource const &found) {
        auto const at = by_device.find(device.value());
        return at != by_device.end() ? at->second : by_device.emplace(device.value(), resources_of_device{with_handle(found), {}}).first->second;
    }
};

/// The resource that the current device allocates from before anybody sets another one.
inline any_resource &initial_resource() { return current_resources::get().first_of(get_current_cuda_device()); }

#else

/// The resource that the current device allocates from before anybody sets another one.
inline any_resource initial_resource() { return ::rmm::detail::first_resource(get_current_cuda_device()); }

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
#if ALLUVION_COMPAT_RMM_CCCL
    other = ::rmm::detail::on_device(std::move(other), device);
    cuda_set_device_raii const there(device);
#endif
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
