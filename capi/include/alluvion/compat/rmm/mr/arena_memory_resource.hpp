// Who gives streams large parts of a fixed amount?
#ifndef ALLUVION_COMPAT_RMM_MR_ARENA_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_MR_ARENA_MEMORY_RESOURCE_HPP

#include "../detail/factory.hpp"

#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

/// Takes a fixed amount of its upstream when it is made: half of what is free, or `arena_size` bytes. Less than 1 MiB is a `logic_error`, as in RMM.
class arena_memory_resource : public ::rmm::detail::adaptor {
public:
    /// The message of a request that fails has a report. With `dump_log_on_failure` that is a line at the end of `rmm_arena_memory_dump.log` in the
    /// working directory, with a snapshot after it. What cannot be written is lost. A handle that is sliced off writes nothing.
    explicit arena_memory_resource(::rmm::detail::any_resource upstream, std::optional<std::size_t> arena_size = std::nullopt,
                                   bool dump_log_on_failure = false)
        : adaptor(recipe(arena_size), std::move(upstream), ::rmm::detail::blocks::carved), dumps_(dump_log_on_failure) {}

    using adaptor::allocate;
    using adaptor::allocate_sync;

    [[nodiscard]] void *allocate(::alluvion::stream_view stream, std::size_t bytes, std::size_t align = default_alignment) const {
        return dumping([&] { return adaptor::allocate(stream, bytes, align); });
    }
    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t align = default_alignment) const {
        return dumping([&] { return adaptor::allocate_sync(bytes, align); });
    }

private:
    static std::string recipe(std::optional<std::size_t> arena_size) {
        if (!arena_size) {
            return "arena";
        }
        if (*arena_size < std::size_t{1} << 20) {
            throw logic_error("an arena has 1 MiB at least");
        }
        return "arena(bytes=" + ::rmm::detail::number(*arena_size) + ")";
    }

    template <class Allocate>
    void *dumping(Allocate const &allocate) const {
        try {
            return allocate();
        } catch (out_of_memory const &failure) {
            if (dumps_) {
                if (std::FILE *const file = std::fopen("rmm_arena_memory_dump.log", "a")) {
                    std::fprintf(file, "%s\n%s\n", failure.what(), blocks_as_json().c_str());
                    std::fclose(file);
                }
            }
            throw;
        }
    }

    [[nodiscard]] std::string blocks_as_json() const noexcept {
        try {
            return snapshot();
        } catch (...) {
            return {};
        }
    }

    bool dumps_;
};

ALLUVION_COMPAT_RMM_RECOGNISE(arena_memory_resource)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
