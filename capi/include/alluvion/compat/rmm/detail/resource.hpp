// What is a resource here, and how does a layer get at the handle of the one below?
#ifndef ALLUVION_COMPAT_RMM_DETAIL_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_RESOURCE_HPP

#include "../cuda_device.hpp"
#include "../cuda_stream_view.hpp"
#include "by_pointer.hpp"
#include "handle.hpp"

#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#if ALLUVION_COMPAT_RMM_CCCL
#include <cuda/stream_ref>
#endif

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

#if ALLUVION_COMPAT_RMM_BY_POINTER

using any_resource = by_pointer;

#elif ALLUVION_COMPAT_RMM_CCCL

/// What containers keep: any resource of CCCL's, also one that is not ours.
using any_resource = ::cuda::mr::any_resource<::cuda::mr::device_accessible>;

/// A type whose handle is found in an erased resource.
struct recognised_type {
    /// The handle, if the resource is of this type; else null.
    alv_resource *(*find)(any_resource const &);
    /// Makes another one on the current device, of a type that has no state but its device; else null.
    any_resource (*another)();
};

/// The types that have registered themselves. It is never destroyed: resources are layered until a process ends.
struct recognised_types {
    std::mutex lock;
    std::vector<recognised_type> each;

    static recognised_types &get() {
        static recognised_types *const types = new recognised_types;
        return *types;
    }
};

template <class Resource, class = void>
inline constexpr bool can_be_taken_out = false;
template <class Resource>
inline constexpr bool
    can_be_taken_out<Resource, std::void_t<decltype(::cuda::__any_cast<Resource>(std::declval<any_resource const *>()))>> = true;

/// Lets the handle of a type be found in an erased resource. Where CCCL has no way to look, it is a resource like any other.
template <class Resource>
bool recognise_type(any_resource (*another)() = nullptr) {
    if constexpr (can_be_taken_out<Resource>) {
        auto &types = recognised_types::get();
        std::lock_guard<std::mutex> const held(types.lock);
        auto const find = [](any_resource const &erased) -> alv_resource * {
            auto const *found = ::cuda::__any_cast<Resource>(&erased);
            return found == nullptr ? nullptr : found->native_handle();
        };
        types.each.push_back(recognised_type{find, another});
    }
    return true;
}

/// The same for a source as RMM has it, without a state.
template <class Source>
bool recognise_source() {
    return recognise_type<Source>([] { return any_resource(Source()); });
}

inline bool const handles_are_recognised = recognise_type<resource>() && recognise_type<::alluvion::resource>();

#else

using any_resource = resource;

#endif

/// What a function of the program's answers. An exception that is no lack of memory comes out of the request as it is.
template <class Allocate>
void *as_the_program_says(Allocate const &allocate) {
    try {
        return allocate();
    } catch (out_of_memory const &) {
        throw;
    } catch (bad_alloc const &) {
        // Freeing memory would not help: no handler is asked, and no layer tries again.
        throw ::alluvion::detail::not_for_want_of_memory{std::current_exception()};
    }
}

/// A resource of the program's as memory below our layers.
template <class Resource>
class foreign {
public:
    explicit foreign(Resource resource) : resource_(std::move(resource)) {}

    void *allocate(::alluvion::stream_view stream, std::size_t bytes, std::size_t align) {
        return as_the_program_says([&] { return resource_.allocate(stream, bytes, align); });
    }

    void deallocate(::alluvion::stream_view stream, void *block, std::size_t bytes, std::size_t align) noexcept {
        resource_.deallocate(stream, block, bytes, align);
    }

private:
    Resource resource_;
};

#if ALLUVION_COMPAT_RMM_CCCL

/// The handle in a resource, which keeps it, and how another one is made; nulls if it is not ours.
inline std::pair<alv_resource *, any_resource (*)()> looked_up(any_resource const &given) {
    auto &types = recognised_types::get();
    std::lock_guard<std::mutex> const held(types.lock);
    for (recognised_type const &type : types.each) {
        if (alv_resource *found = type.find(given)) {
            return {found, type.another};
        }
    }
    return {nullptr, nullptr};
}

/// What a resource is on a device: a source without a state is one of that device, and another resource is what it was.
inline any_resource on_device(any_resource given, cuda_device_id device) {
    auto const found = looked_up(given);
    int32_t number = device.value();
    if (found.second == nullptr || alv_resource_device(found.first, &number) != ALV_OK || number == device.value()) {
        return given;
    }
    cuda_set_device_raii const there(device);
    return found.second();
}

#endif

/// The handle in a resource, on the current device; an empty one if that is not ours.
inline resource recognised(any_resource const &given) {
#if ALLUVION_COMPAT_RMM_CCCL
    return resource::retain(looked_up(on_device(given, get_current_cuda_device())).first);
#else
    // By pointer: null if the object is the program's.
    return resource::retain(given.native_handle());
#endif
}

/// What a layer does with the blocks of a resource of the program's.
enum class blocks {
    /// Carves them up: they are aligned to 256, and it asks for no more.
    carved,
    /// Hands them on, wherever they are, and leaves every alignment to the resource.
    handed_on,
    /// The same, but asks for no more than 256.
    up_to_256,
};

/// A resource of the program's, or what stands for it, for such a layer.
template <class Source>
resource from_program(Source source, blocks use) {
    // More than any resource has, so that it is asked, and may refuse.
    constexpr std::size_t any_alignment = std::size_t{1} << (8 * sizeof(std::size_t) - 2);
    std::size_t const most = use == blocks::handed_on ? any_alignment : resource::default_alignment;
    return resource::from_source(std::move(source), ::alluvion::current_device, most,
                                 use == blocks::carved ? 0 : ALV_SOURCE_AT_ANY_ADDRESS);
}

/// A handle for whatever a layer is put over.
inline resource handle_of(any_resource const &upstream, [[maybe_unused]] blocks use = blocks::carved) {
#if ALLUVION_COMPAT_RMM_CCCL || ALLUVION_COMPAT_RMM_BY_POINTER
    if (resource ours = recognised(upstream)) {
        return ours;
    }
    return from_program(foreign<any_resource>(upstream), use);
#else
    return upstream;
#endif
}

/// What a container keeps of a resource that it was given, on the device that is current.
#if ALLUVION_COMPAT_RMM_BY_POINTER
inline any_resource here(any_resource const &given) { return given.on_current_device(); }
#else
inline any_resource here(any_resource &&given) { return std::move(given); }
#endif

} // namespace detail
ALLUVION_COMPAT_RMM_END

#if ALLUVION_COMPAT_RMM_BY_POINTER
// Every object tells the list of current ones when it goes.
#include "../resource_ref.hpp"
#endif

#endif
