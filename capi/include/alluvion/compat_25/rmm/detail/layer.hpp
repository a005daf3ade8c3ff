// What is a layer, whose upstream is pointed to?
#ifndef ALLUVION_COMPAT_25_RMM_DETAIL_LAYER_HPP
#define ALLUVION_COMPAT_25_RMM_DETAIL_LAYER_HPP

#include "age.hpp"
#include "../../../compat/rmm/detail/factory.hpp"

#include <cstddef>
#include <optional>
#include <type_traits>
#include <typeinfo>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

/// A resource over another one, to which it points, and which outlives it. `Upstream` is the type of that one; it plays no part in what
/// the layer does.
template <class Upstream, class Handle>
class layer : public object_of<Handle> {
public:
    layer(layer const &) = delete;
    layer(layer &&) noexcept = default;
    layer &operator=(layer const &) = delete;
    layer &operator=(layer &&) noexcept = default;

    [[nodiscard]] device_async_resource_ref get_upstream_resource() const noexcept { return upstream_; }
    /// Null if it was put over a reference to another type.
    [[nodiscard]] Upstream *get_upstream() const noexcept {
        if constexpr (std::is_base_of_v<mr::device_memory_resource, Upstream>) {
            return given_ != nullptr ? given_ : dynamic_cast<Upstream *>(static_cast<mr::device_memory_resource *>(upstream_));
        } else {
            return given_;
        }
    }

    [[nodiscard]] bool supports_streams() const noexcept override { return upstream_->supports_streams(); }
    [[nodiscard]] bool supports_get_mem_info() const noexcept override { return upstream_->supports_get_mem_info(); }

protected:
    template <class... Arguments>
    explicit layer(Upstream *upstream, Arguments &&...arguments) : layer(by_pointer(upstream), std::forward<Arguments>(arguments)...) {
        given_ = upstream;
    }

    template <class... Arguments>
    explicit layer(by_pointer const &upstream, Arguments &&...arguments)
        : object_of<Handle>(typename object_of<Handle>::of{}, upstream, std::forward<Arguments>(arguments)...), upstream_(upstream) {}

private:
    /// As in RMM: it is of the same type, over an equal upstream.
    [[nodiscard]] bool do_is_equal(mr::device_memory_resource const &other) const noexcept override {
        if (this == &other) {
            return true;
        }
        auto const *const same = dynamic_cast<layer const *>(&other);
        return same != nullptr && same->upstream_ == upstream_;
    }

    [[nodiscard]] std::pair<std::size_t, std::size_t> do_get_mem_info(cuda_stream_view stream) const override {
        return upstream_->get_mem_info(stream);
    }
    [[nodiscard]] bool alluvion_is_layer() const noexcept final { return true; }

    by_pointer upstream_;
    /// What it was put over, if that was a pointer.
    Upstream *given_ = nullptr;
};

/// A layer that carves memory up, and frees its own blocks alone.
template <class Upstream, class Handle>
class suballocator : public layer<Upstream, Handle> {
protected:
    using layer<Upstream, Handle>::layer;

private:
    [[nodiscard]] bool do_is_equal(mr::device_memory_resource const &other) const noexcept final { return this == &other; }
};

/// A size that a program gave, or half of the free memory of the current device.
inline std::size_t half_of_free(std::optional<std::size_t> size) { return size ? *size : percent_of_free_device_memory(50); }

/// Whether an argument is a resource, and not a reference to one.
template <class Other>
using if_object = std::enable_if_t<std::is_base_of_v<mr::device_memory_resource, Other> || is_called_as_resource<Other>, int>;

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif
