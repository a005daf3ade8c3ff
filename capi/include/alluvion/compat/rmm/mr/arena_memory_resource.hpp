// Who gives streams large parts of a fixed amount?
#ifndef ALLUVION_COMPAT_RMM_MR_ARENA_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_MR_ARENA_MEMORY_RESOURCE_HPP

#include "../detail/factory.hpp"

#include <cstddef>
#include <optional>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

/// Takes a fixed amount of its upstream when it is made: half of what is free, or `arena_size` bytes.
class arena_memory_resource : public ::rmm::detail::adaptor {
public:
    /// A request that fails has a report in its message, so nothing is dumped to a log: `dump_log_on_failure` changes nothing.
    explicit arena_memory_resource(::rmm::detail::any_resource upstream, std::optional<std::size_t> arena_size = std::nullopt,
                                   [[maybe_unused]] bool dump_log_on_failure = false)
        : adaptor(arena_size ? "arena(bytes=" + ::rmm::detail::number(*arena_size) + ")" : "arena", std::move(upstream), ::rmm::detail::blocks::carved) {}
};

ALLUVION_COMPAT_RMM_RECOGNISE(arena_memory_resource)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
