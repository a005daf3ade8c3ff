// How does a class of RMM become a stack of a recipe?
#ifndef ALLUVION_COMPAT_RMM_DETAIL_FACTORY_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_FACTORY_HPP

#include "../mr/per_device_resource.hpp"
#include "../resource_ref.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

/// A layer over a resource: its handle, and what it was put over as the program gave it. Copies are the same layer, and equal; two
/// that were made one by one are not, whatever they stand on.
class adaptor : public resource {
public:
    /// A reference, valid while a copy of the layer lives.
    [[nodiscard]] device_async_resource_ref get_upstream_resource() const noexcept {
        return device_async_resource_ref{*upstream_};
    }

    friend bool operator==(adaptor const &first, adaptor const &second) noexcept { return first.upstream_ == second.upstream_; }
    friend bool operator!=(adaptor const &first, adaptor const &second) noexcept { return !(first == second); }

protected:
    adaptor(std::string const &layers, any_resource upstream, blocks use)
        : adaptor(resource::over(layers, handle_of(upstream, use)), std::move(upstream)) {}

    // By reference: the argument before is made of what this one is moved from afterwards.
    adaptor(resource made, any_resource &&upstream)
        : resource(std::move(made)), upstream_(std::make_shared<any_resource>(std::move(upstream))) {}

private:
    // Three words with the handle: an erased resource keeps so much in place.
    std::shared_ptr<any_resource> upstream_;
};

inline std::string number(std::size_t value) { return std::to_string(value); }

/// Text of the program's in a recipe, with what ends it early made harmless.
inline std::string quoted(std::string const &text) {
    std::string made = "\"";
    for (char const letter : text) {
        if (letter == '"' || letter == '\\') {
            made += '\\';
        }
        made += letter;
    }
    return made + '"';
}

} // namespace detail

namespace ALLUVION_COMPAT_RMM_MR {
namespace detail {

using ::rmm::detail::any_resource;
using ::rmm::detail::resource;

} // namespace detail
} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

// Registers a class, so that layers over an erased copy of it stand on its handle; or, for a source without a state, on that of its device.
#if ALLUVION_COMPAT_RMM_CCCL
#define ALLUVION_COMPAT_RMM_RECOGNISE(Class) \
    namespace detail { \
    inline bool const Class##_is_recognised = ::rmm::detail::recognise_type<Class>(); \
    }
#define ALLUVION_COMPAT_RMM_RECOGNISE_SOURCE(Class) \
    namespace detail { \
    inline bool const Class##_is_recognised = ::rmm::detail::recognise_source<Class>(); \
    }
// Memory that the host reaches, too.
#define ALLUVION_COMPAT_RMM_HOST_ACCESSIBLE(Class) \
    using default_queries = ::cuda::mr::properties_list<::cuda::mr::device_accessible, ::cuda::mr::host_accessible>; \
    friend constexpr void get_property(Class const &, ::cuda::mr::device_accessible) noexcept {} \
    friend constexpr void get_property(Class const &, ::cuda::mr::host_accessible) noexcept {}
#else
#define ALLUVION_COMPAT_RMM_RECOGNISE(Class)
#define ALLUVION_COMPAT_RMM_RECOGNISE_SOURCE(Class)
#define ALLUVION_COMPAT_RMM_HOST_ACCESSIBLE(Class)
#endif

#endif
