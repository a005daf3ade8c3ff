// Who gives streams large parts of a fixed amount?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_ARENA_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_ARENA_MEMORY_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/arena_memory_resource.hpp"
#include "../../detail/layer.hpp"

#include <cstddef>
#include <optional>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Takes a fixed amount of its upstream when it is made: half of what is free, or `arena_size` bytes. Less than 1 MiB is a `logic_error`, as in RMM.
template <class Upstream>
class arena_memory_resource final : public ::rmm::detail::suballocator<Upstream, handles::arena_memory_resource> {
    using base = ::rmm::detail::suballocator<Upstream, handles::arena_memory_resource>;

public:
    explicit arena_memory_resource(Upstream *upstream, std::optional<std::size_t> arena_size = std::nullopt, bool dump_log_on_failure = false) : base(upstream, arena_size, dump_log_on_failure) {}
    explicit arena_memory_resource(device_async_resource_ref upstream, std::optional<std::size_t> arena_size = std::nullopt, bool dump_log_on_failure = false) : base(std::move(upstream), arena_size, dump_log_on_failure) {}
};

template <class Upstream, class... Rest>
arena_memory_resource(Upstream *, Rest...) -> arena_memory_resource<Upstream>;
template <class Upstream, class... Rest, ::rmm::detail::if_object<Upstream> = 0>
arena_memory_resource(Upstream &, Rest...) -> arena_memory_resource<Upstream>;
template <class... Rest>
arena_memory_resource(device_async_resource_ref, Rest...) -> arena_memory_resource<device_memory_resource>;

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
