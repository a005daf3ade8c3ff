// How do Alluvion and the program's RMM use each other?
//
//     #include <alluvion/rmm.hpp>
//
//     alluvion::rmm::resource pool("stats | pool | cuda-async");
//     rmm::mr::set_current_device_resource(pool);
//     rmm::device_uvector<int> numbers(1000, stream, pool);
//
// A handle goes into every parameter of RMM that takes a resource, and throws RMM's exceptions, with the version in their names
// that the program is compiled with. For RMM 24.12 to 26.10. Before 26.06 RMM's containers borrow the handle: keep it as long as
// they live.
#ifndef ALLUVION_RMM_HPP
#define ALLUVION_RMM_HPP

#if defined(ALLUVION_COMPAT_RMM)
#error "alluvion/compat/rmm stands in the place of RMM in this file: there is no RMM to work with"
#endif

#include <rmm/error.hpp>
#include <rmm/resource_ref.hpp>
#include <rmm/version_config.hpp>

#include "cpp/rmm_errors.hpp"

#include "../alluvion.hpp"

#if !ALLUVION_CCCL
#error "RMM's CCCL has no memory resources here: define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE, as RMM's own build files do"
#endif

#if __has_include(<rmm/mr/device_memory_resource.hpp>)
#include <rmm/mr/device_memory_resource.hpp>
#define ALLUVION_RMM_HAS_BASE_CLASS 1
#elif __has_include(<rmm/mr/device/device_memory_resource.hpp>)
#include <rmm/mr/device/device_memory_resource.hpp>
#define ALLUVION_RMM_HAS_BASE_CLASS 1
#else
#define ALLUVION_RMM_HAS_BASE_CLASS 0
#endif

#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

ALLUVION_BEGIN
namespace rmm {

struct error_types {
    using bad_alloc = ::rmm::bad_alloc;
    using out_of_memory = ::rmm::out_of_memory;
    using out_of_range = ::rmm::out_of_range;
#if RMM_VERSION_MAJOR > 26 || (RMM_VERSION_MAJOR == 26 && RMM_VERSION_MINOR >= 6)
    using invalid_argument = ::rmm::invalid_argument;
#else
    using invalid_argument = ::rmm::logic_error;
#endif
    using logic_error = ::rmm::logic_error;
    using cuda_error = ::rmm::cuda_error;
};

/// Throws the exceptions of the program's RMM.
struct errors : public ::alluvion::detail::errors_of_rmm<error_types> {};

/// A handle with the exceptions of RMM. It becomes an `alluvion::resource` and comes from one: the same handle, but not equal in
/// the eyes of `cuda::mr::any_resource`, for which two types are two resources.
using resource = basic_resource<errors>;

static_assert(std::is_constructible_v<::rmm::device_async_resource_ref, resource &>, "a handle is a resource for this RMM");

/// A resource of RMM's as a source of ours: called as its RMM calls resources, with what it throws as the error of the request.
template <class Resource>
class source {
public:
    explicit source(Resource resource) : resource_(std::move(resource)) {}

    void *allocate(stream_view stream, std::size_t bytes, std::size_t align) {
        try {
            if constexpr (takes_stream_first<Resource>::value) {
                return resource_.allocate(::cuda::stream_ref(stream.value()), bytes, align);
            } else {
                return resource_.allocate_async(bytes, align, ::cuda::stream_ref(stream.value()));
            }
        } catch (::rmm::out_of_memory const &) {
            throw;
        } catch (::rmm::bad_alloc const &) {
            // Freeing memory would not help: no handler is asked, and no layer tries again.
            throw ::alluvion::detail::not_for_want_of_memory{std::current_exception()};
        }
    }

    void deallocate(stream_view stream, void *block, std::size_t bytes, std::size_t align) noexcept {
        if constexpr (takes_stream_first<Resource>::value) {
            resource_.deallocate(::cuda::stream_ref(stream.value()), block, bytes, align);
        } else {
            resource_.deallocate_async(block, bytes, align, ::cuda::stream_ref(stream.value()));
        }
    }

private:
    // How CCCL calls resources since 3.1.
    template <class Asked, class = void>
    struct takes_stream_first : std::false_type {};
    template <class Asked>
    struct takes_stream_first<Asked, std::void_t<decltype(std::declval<Asked &>().allocate(
                                         std::declval<::cuda::stream_ref>(), std::size_t{}, std::size_t{}))>> : std::true_type {};

    Resource resource_;
};

/// A resource of RMM's under our layers: `resource::over("stats", alluvion::rmm::from_rmm(mr))`. It keeps the value that it is
/// given: an `any_resource` or a copyable resource of RMM 26.06 and later; before that a reference, whose resource must outlive
/// it. The memory is of the current device, or of `device`.
template <class Resource>
[[nodiscard]] resource from_rmm(Resource other, device_id device = current_device) {
    static_assert(!std::is_pointer_v<Resource>, "pass the resource, or a rmm::device_async_resource_ref of it");
    return resource::from_source(source<Resource>(std::move(other)), device);
}

#if ALLUVION_RMM_HAS_BASE_CLASS

/// A handle for what takes a `rmm::mr::device_memory_resource *`, which is gone in RMM 26.06: as `set_current_device_resource`
/// before that.
class device_memory_resource final : public ::rmm::mr::device_memory_resource {
public:
    explicit device_memory_resource(resource handle) : handle_(std::move(handle)) {}

    [[nodiscard]] resource const &handle() const noexcept { return handle_; }

private:
    void *do_allocate(std::size_t bytes, ::rmm::cuda_stream_view stream) override {
        return handle_.allocate(stream_view(stream.value()), bytes);
    }

    void do_deallocate(void *block, std::size_t bytes, ::rmm::cuda_stream_view stream) noexcept override {
        handle_.deallocate(stream_view(stream.value()), block, bytes);
    }

    [[nodiscard]] bool do_is_equal(::rmm::mr::device_memory_resource const &other) const noexcept override {
        auto const *const same = dynamic_cast<device_memory_resource const *>(&other);
        return same != nullptr && same->handle_ == handle_;
    }

    resource handle_;
};

#endif

} // namespace rmm
ALLUVION_END

#endif
