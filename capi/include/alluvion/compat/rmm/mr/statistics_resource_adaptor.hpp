// How much is out?
#ifndef ALLUVION_COMPAT_RMM_MR_STATISTICS_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_RMM_MR_STATISTICS_RESOURCE_ADAPTOR_HPP

#include "../detail/factory.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

/// Counts bytes and blocks: those that are out, the most that were, and all that ever were.
class statistics_resource_adaptor : public ::rmm::detail::adaptor {
public:
    /// A figure now, at most, and all together.
    struct counter {
        std::int64_t value{0};
        std::int64_t peak{0};
        std::int64_t total{0};

        counter &operator+=(std::int64_t more) {
            value += more;
            total += more;
            peak = std::max(peak, value);
            return *this;
        }

        counter &operator-=(std::int64_t less) {
            value -= less;
            return *this;
        }

        /// Adds what a scope within has counted.
        void add_counters_from_tracked_sub_block(counter const &within) {
            peak = std::max(peak, value + within.peak);
            value += within.value;
            total += within.total;
        }
    };

    explicit statistics_resource_adaptor(::rmm::detail::any_resource upstream)
        // Without slack: the figures are exact after every call, as RMM's are.
        : adaptor("stats(slack=0)", std::move(upstream), ::rmm::detail::blocks::handed_on) {}

    [[nodiscard]] counter get_bytes_counter() const { return of(now().bytes); }
    [[nodiscard]] counter get_allocations_counter() const { return of(now().allocations); }

    /// Begins a scope that counts from zero; answers bytes and blocks of the one around it.
    std::pair<counter, counter> push_counters() { return both(push_stats()); }

    /// Ends a scope, and adds it to the one around it; answers its bytes and blocks. The outermost one does not end: a
    /// `std::out_of_range`.
    std::pair<counter, counter> pop_counters() {
        alv_counts within = ALV_INIT(alv_counts);
        alv_status const status = alv_stats_pop(native_handle(), &within);
        if (status == ALV_INVALID_ARGUMENT) {
            throw std::out_of_range("the outermost counters cannot be popped");
        }
        ::rmm::detail::check(status);
        return both(within);
    }

private:
    [[nodiscard]] alv_counts now() const {
        alv_counts counts = ALV_INIT(alv_counts);
        ::rmm::detail::check(alv_stats(native_handle(), &counts));
        return counts;
    }

    static counter of(alv_count const &figure) { return {figure.value, figure.peak, figure.total}; }
    static std::pair<counter, counter> both(alv_counts const &counts) { return {of(counts.bytes), of(counts.allocations)}; }
};

ALLUVION_COMPAT_RMM_RECOGNISE(statistics_resource_adaptor)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
