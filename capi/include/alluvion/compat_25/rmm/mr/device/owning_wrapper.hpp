// Who keeps a resource together with what is below it?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_OWNING_WRAPPER_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_OWNING_WRAPPER_HPP

#include "../../detail/age.hpp"
#include "../../detail/layer.hpp"

#include <memory>
#include <tuple>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// A resource that is destroyed together with its upstreams, after it.
template <class Resource, class... Upstreams>
class owning_wrapper : public device_memory_resource {
public:
    using upstream_tuple = std::tuple<std::shared_ptr<Upstreams>...>;

    /// Made over pointers to the upstreams, and the other arguments.
    template <class... Arguments>
    explicit owning_wrapper(upstream_tuple upstreams, Arguments &&...arguments)
        : upstreams_(std::move(upstreams)), wrapped_(std::apply(
              [&](auto const &...each) { return std::make_unique<Resource>(each.get()..., std::forward<Arguments>(arguments)...); },
              upstreams_)) {}

    [[nodiscard]] Resource const &wrapped() const noexcept { return *wrapped_; }
    [[nodiscard]] Resource &wrapped() noexcept { return *wrapped_; }

private:
    void *do_allocate(std::size_t bytes, cuda_stream_view stream) override { return wrapped_->allocate(bytes, stream); }
    void do_deallocate(void *block, std::size_t bytes, cuda_stream_view stream) noexcept override {
        wrapped_->deallocate(block, bytes, stream);
    }
    [[nodiscard]] bool do_is_equal(device_memory_resource const &other) const noexcept override {
        auto const *const same = dynamic_cast<owning_wrapper const *>(&other);
        return wrapped_->is_equal(same == nullptr ? other : *same->wrapped_);
    }

    // Destroyed last.
    upstream_tuple upstreams_;
    std::unique_ptr<Resource> wrapped_;
};

/// Such a wrapper of one upstream: `make_owning_wrapper<pool_memory_resource>(std::make_shared<cuda_memory_resource>(), bytes)`.
template <template <class...> class Resource, class Upstream, class... Arguments>
auto make_owning_wrapper(std::shared_ptr<Upstream> upstream, Arguments &&...arguments) {
    using wrapper = owning_wrapper<Resource<Upstream>, Upstream>;
    return std::make_shared<wrapper>(std::make_tuple(std::move(upstream)), std::forward<Arguments>(arguments)...);
}

/// Such a wrapper of several.
template <template <class...> class Resource, class... Upstreams, class... Arguments>
auto make_owning_wrapper(std::tuple<std::shared_ptr<Upstreams>...> upstreams, Arguments &&...arguments) {
    using wrapper = owning_wrapper<Resource<Upstreams...>, Upstreams...>;
    return std::make_shared<wrapper>(std::move(upstreams), std::forward<Arguments>(arguments)...);
}

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
