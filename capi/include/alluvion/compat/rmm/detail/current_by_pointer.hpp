// What does a device allocate from by default, where resources are pointed to?
#ifndef ALLUVION_COMPAT_RMM_DETAIL_CURRENT_BY_POINTER_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_CURRENT_BY_POINTER_HPP

#include "../cuda_device.hpp"
#include "../resource_ref.hpp"
#include "first_resource.hpp"
#include "resource.hpp"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#if ALLUVION_COMPAT_RMM_BY_POINTER

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

/// The current resource of a device: what a pointer to it points to, and the handle that the library has for it.
struct current_object {
    by_pointer object;
    resource handle;
};

/// The objects of the current resources. The library knows the resources, C programs change them too, and this follows. Never destroyed: a
/// pointer may be used until the process ends.
struct ALLUVION_VISIBLE current_objects {
    std::mutex lock;
    std::map<int, current_object> by_device;
    /// Those that nobody else has: of handles that came from elsewhere, and of what is no object. They stay, for somebody may have a pointer,
    /// and set it again.
    std::vector<by_pointer> kept;
    /// Those of the devices that `first_of` was asked for.
    std::map<int, by_pointer> first;

    static current_objects &get() {
        static current_objects *const all = new current_objects;
        return *all;
    }

    /// The resource that a device allocates from, while nobody changes it.
    by_pointer of(cuda_device_id device) {
        std::vector<current_object> before;
        std::lock_guard<std::mutex> const held(lock);
        return slot(device, before).object;
    }

    /// Has the library set another resource, and answers what a pointer to the one before points to.
    template <class Set>
    by_pointer exchange(cuda_device_id device, std::vector<current_object> next, Set const &set) {
        // Destroyed after the lock is given back: a pool that goes may wait for work.
        std::vector<current_object> before;
        std::lock_guard<std::mutex> const held(lock);
        current_object &now = slot(device, before);
        by_pointer const object = now.object;
        if (!next.empty() && next.front().object.keeps_object()) {
            kept.push_back(next.front().object);
        }
        alv_resource *previous = nullptr;
        check(set(&previous));
        before.push_back({object, resource::adopt(previous)});
        if (next.empty()) {
            static_cast<void>(slot(device, before));
        } else {
            next.front().handle = resource::current(device.value());
            std::swap(now, next.front());
            before.push_back(std::move(next.front()));
        }
        return object;
    }

    /// The object of `first_resource`.
    by_pointer first_of(cuda_device_id device) {
        std::lock_guard<std::mutex> const held(lock);
        auto const found = first.find(device.value());
        if (found != first.end()) {
            return found->second;
        }
        return first.emplace(device.value(), object_for(first_resource(device))).first->second;
    }

    /// Has the devices that allocate from an object which goes now allocate from their first resource.
    void forget(mr::device_memory_resource const &object) noexcept {
        std::vector<current_object> before;
        std::vector<resource> handles;
        std::lock_guard<std::mutex> const held(lock);
        for (auto found = by_device.begin(); found != by_device.end();) {
            if (found->second.object != &object) {
                ++found;
                continue;
            }
            try {
                alv_resource *previous = nullptr;
                if (is_same(resource::current(found->first), found->second.handle) &&
                    alv_reset_current_resource(found->first, &previous) == ALV_OK) {
                    handles.push_back(resource::adopt(previous));
                }
                before.push_back(found->second);
            } catch (...) {
                // Without memory for the lists what is kept goes here, under the lock.
            }
            found = by_device.erase(found);
        }
    }

private:
    current_object &slot(cuda_device_id device, std::vector<current_object> &before) {
        resource now = resource::current(device.value());
        auto const found = by_device.find(device.value());
        if (found != by_device.end() && is_same(found->second.handle, now)) {
            return found->second;
        }
        current_object next{object_for(now), now};
        if (found == by_device.end()) {
            return by_device.emplace(device.value(), std::move(next)).first->second;
        }
        before.push_back(std::exchange(found->second, std::move(next)));
        return found->second;
    }

    by_pointer object_for(resource const &handle) {
        for (by_pointer const &known : kept) {
            if (known.native_handle() != nullptr && is_same(resource::retain(known.native_handle()), handle)) {
                return known;
            }
        }
        return kept.emplace_back(handle);
    }
};

inline void forget_object(mr::device_memory_resource const &object) noexcept { current_objects::get().forget(object); }

} // namespace detail
namespace mr {

/// The resource of a device. One that C or `alluvion.hpp` has set, and that this was asked for, lives until the process ends.
[[nodiscard]] inline device_memory_resource *get_per_device_resource(cuda_device_id device) {
    return ::rmm::detail::current_objects::get().of(device);
}
[[nodiscard]] inline device_async_resource_ref get_per_device_resource_ref(cuda_device_id device) {
    return ::rmm::detail::current_objects::get().of(device);
}

/// Puts the first resource of a device back, and answers the one before.
inline device_async_resource_ref reset_per_device_resource_ref(cuda_device_id device) {
    return ::rmm::detail::current_objects::get().exchange(device, {}, [device](alv_resource **previous) {
        return alv_reset_current_resource(device.value(), previous);
    });
}
inline device_memory_resource *reset_per_device_resource(cuda_device_id device) { return reset_per_device_resource_ref(device); }

/// Makes a device allocate from another resource, which outlives that, and answers the one before. C programs, and every header of this
/// library, see it too.
inline device_async_resource_ref set_per_device_resource_ref(cuda_device_id device, device_async_resource_ref other) {
    cuda_set_device_raii const there(device);
    ::rmm::detail::by_pointer const object = other.on_current_device();
    ::rmm::detail::resource const handle = ::rmm::detail::handle_of(object);
    return ::rmm::detail::current_objects::get().exchange(
        device, {{object, handle}}, [device, to = handle.native_handle()](alv_resource **previous) {
            return alv_set_current_resource(device.value(), to, previous);
        });
}
/// The same by a pointer; null puts the first resource back.
inline device_memory_resource *set_per_device_resource(cuda_device_id device, device_memory_resource *other) {
    return other == nullptr ? reset_per_device_resource(device)
                            : static_cast<device_memory_resource *>(set_per_device_resource_ref(device, other));
}

// The same for the device that is current for the calling thread.

[[nodiscard]] inline device_memory_resource *get_current_device_resource() { return get_per_device_resource(get_current_cuda_device()); }
[[nodiscard]] inline device_async_resource_ref get_current_device_resource_ref() {
    return get_per_device_resource_ref(get_current_cuda_device());
}
inline device_memory_resource *set_current_device_resource(device_memory_resource *other) {
    return set_per_device_resource(get_current_cuda_device(), other);
}
inline device_async_resource_ref set_current_device_resource_ref(device_async_resource_ref other) {
    return set_per_device_resource_ref(get_current_cuda_device(), std::move(other));
}
inline device_memory_resource *reset_current_device_resource() { return reset_per_device_resource(get_current_cuda_device()); }
inline device_async_resource_ref reset_current_device_resource_ref() { return reset_per_device_resource_ref(get_current_cuda_device()); }

} // namespace mr
namespace detail {

/// The current resource of the current device.
inline any_resource current_resource() { return current_objects::get().of(get_current_cuda_device()); }

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif

#endif
