// Who keeps what is freed?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_POOL_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_POOL_MEMORY_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/pool_memory_resource.hpp"
#include "../../detail/layer.hpp"

#include <cstddef>
#include <optional>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

#if ALLUVION_CCCL

/// The properties of CCCL's that a pool has: those of its upstream. Its base says of every resource that a device reaches its memory.
template <class Pool, bool HostReaches>
struct reached_by_host {};
template <class Pool>
struct reached_by_host<Pool, true> {
    friend void get_property(Pool const &, ::cuda::mr::host_accessible) noexcept {}
};

template <class Pool, bool DeviceReaches>
struct reached_by_device {};
template <class Pool>
struct reached_by_device<Pool, false> {
    friend void get_property(Pool const &, ::cuda::mr::device_accessible) = delete;
};

template <class Pool, class Upstream>
struct reached_as_upstream : reached_by_host<Pool, ::cuda::has_property<Upstream, ::cuda::mr::host_accessible>>,
                             reached_by_device<Pool, ::cuda::has_property<Upstream, ::cuda::mr::device_accessible>> {};

#else

template <class Pool, class Upstream>
struct reached_as_upstream {};

#endif

} // namespace detail
namespace mr {

/// Takes memory of its upstream in large pieces, and serves requests of every size from it.
template <class Upstream>
class pool_memory_resource final : public ::rmm::detail::suballocator<Upstream, handles::pool_memory_resource>,
                                   private ::rmm::detail::reached_as_upstream<pool_memory_resource<Upstream>, Upstream> {
    using base = ::rmm::detail::suballocator<Upstream, handles::pool_memory_resource>;

public:
    /// Sizes are multiples of 256, and the first is at most the second. Without the first it is half of what is free.
    explicit pool_memory_resource(Upstream *upstream, std::optional<std::size_t> initial_pool_size = std::nullopt, std::optional<std::size_t> maximum_pool_size = std::nullopt) : base(upstream, ::rmm::detail::half_of_free(initial_pool_size), maximum_pool_size) {}
    explicit pool_memory_resource(device_async_resource_ref upstream, std::optional<std::size_t> initial_pool_size = std::nullopt, std::optional<std::size_t> maximum_pool_size = std::nullopt) : base(std::move(upstream), ::rmm::detail::half_of_free(initial_pool_size), maximum_pool_size) {}

    /// The bytes that it has taken of its upstream.
    [[nodiscard]] std::size_t pool_size() const { return this->handle_.pool_size(); }
};

template <class Upstream, class... Rest>
pool_memory_resource(Upstream *, Rest...) -> pool_memory_resource<Upstream>;
template <class Upstream, class... Rest, ::rmm::detail::if_object<Upstream> = 0>
pool_memory_resource(Upstream &, Rest...) -> pool_memory_resource<Upstream>;
template <class... Rest>
pool_memory_resource(device_async_resource_ref, Rest...) -> pool_memory_resource<device_memory_resource>;

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
