// What is a resource here, and how does a layer get at the handle of the one below?
#ifndef ALLUVION_COMPAT_RMM_DETAIL_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_RESOURCE_HPP

#include "../cuda_device.hpp"
#include "../cuda_stream_view.hpp"
#include "errors.hpp"

#include <cstddef>
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

/// A counted handle, with the exceptions of RMM.
using resource = ::alluvion::basic_resource<errors>;

#if ALLUVION_COMPAT_RMM_CCCL

/// What containers keep: any resource of CCCL's, also one that is not ours.
using any_resource = ::cuda::mr::any_resource<::cuda::mr::device_accessible>;

/// The recipe's handle in an erased resource, if one of these types is in it; else null.
using recognise = alv_resource *(*)(any_resource const &);

/// The types that have registered themselves. It is never destroyed: resources are layered until a process ends.
struct recognised_types {
    std::mutex lock;
    std::vector<recognise> each;

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
bool recognise_type() {
    if constexpr (can_be_taken_out<Resource>) {
        auto &types = recognised_types::get();
        std::lock_guard<std::mutex> const held(types.lock);
        types.each.push_back([](any_resource const &erased) -> alv_resource * {
            auto const *found = ::cuda::__any_cast<Resource>(&erased);
            return found == nullptr ? nullptr : found->native_handle();
        });
    }
    return true;
}

inline bool const handles_are_recognised = recognise_type<resource>() && recognise_type<::alluvion::resource>();

#else

using any_resource = resource;

#endif

/// A resource of the program's as memory below our layers. What it throws becomes the error of the request.
template <class Resource>
class foreign {
public:
    explicit foreign(Resource resource) : resource_(std::move(resource)) {}

    void *allocate(::alluvion::stream_view stream, std::size_t bytes, std::size_t align) {
        try {
            return resource_.allocate(stream, bytes, align);
        } catch (out_of_memory const &) {
            throw;
        } catch (bad_alloc const &failure) {
            // Freeing memory would not help: no handler is asked, and no layer tries again.
            throw ::alluvion::error(ALV_FOREIGN, 0, failure.what());
        }
    }

    void deallocate(::alluvion::stream_view stream, void *block, std::size_t bytes, std::size_t align) noexcept {
        resource_.deallocate(stream, block, bytes, align);
    }

private:
    Resource resource_;
};

/// The handle in a resource, which keeps it; null if that is not ours.
inline alv_resource *recognised(any_resource const &resource) {
#if ALLUVION_COMPAT_RMM_CCCL
    auto &types = recognised_types::get();
    std::lock_guard<std::mutex> const held(types.lock);
    for (recognise const find : types.each) {
        if (alv_resource *found = find(resource)) {
            return found;
        }
    }
    return nullptr;
#else
    return resource.native_handle();
#endif
}

/// A handle for whatever a layer is put over.
inline resource handle_of(any_resource const &upstream) {
#if ALLUVION_COMPAT_RMM_CCCL
    if (alv_resource *ours = recognised(upstream)) {
        return resource::retain(ours);
    }
    return resource::from_source(foreign<any_resource>(upstream));
#else
    return upstream;
#endif
}

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif
