// What is an allocation for, and what does a part of a program use?
#ifndef ALLUVION_CPP_SCOPE_HPP
#define ALLUVION_CPP_SCOPE_HPP

#include "resource.hpp"

#include <string>

ALLUVION_BEGIN

/// While it lives, what its thread allocates is counted under a name, within the names around it.
class tag_scope {
public:
    explicit tag_scope(std::string_view name) {
        auto const text = ::alluvion::detail::c_text<default_errors>(name);
        ::alluvion::detail::check(alv_tag_push(text.c_str()));
    }
    tag_scope(tag_scope const &) = delete;
    tag_scope &operator=(tag_scope const &) = delete;
    ~tag_scope() { alv_tag_pop(); }
};

/// While it lives, the statistics of a resource count by themselves.
class stats_scope {
public:
    explicit stats_scope(resource const &counted) : resource_(counted) { resource_.push_stats(); }
    stats_scope(stats_scope const &) = delete;
    stats_scope &operator=(stats_scope const &) = delete;
    // Without a scope there is nothing to end: somebody has ended this one.
    ~stats_scope() { static_cast<void>(alv_stats_pop(resource_.native_handle(), nullptr)); }

    /// What was counted in it so far, by all threads.
    [[nodiscard]] counts so_far() const {
        counts within = ALV_INIT(counts);
        ::alluvion::detail::check(alv_stats(resource_.native_handle(), &within));
        return within;
    }

private:
    resource resource_;
};

ALLUVION_END

#endif
