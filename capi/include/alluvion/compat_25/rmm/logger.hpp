// Where are errors and growth written? The debug log, by the names of RMM until 25.02 and of 25.04 and later.
#ifndef ALLUVION_COMPAT_25_RMM_LOGGER_HPP
#define ALLUVION_COMPAT_25_RMM_LOGGER_HPP

#include "detail/age.hpp"
#include "../../compat/rmm/detail/debug_log.hpp"

#include <string>

// Until 25.02 a program names levels of spdlog, which these headers do without.
#if __has_include(<spdlog/common.h>)
#include <spdlog/common.h>
#else
namespace spdlog {
namespace level {
enum level_enum : int { trace = 0, debug = 1, info = 2, warn = 3, err = 4, critical = 5, off = 6, n_levels };
} // namespace level
} // namespace spdlog
#endif

ALLUVION_COMPAT_RMM_BEGIN

using level_enum = detail::debug_log::level;

/// The log, to which a program may write, too: text, which is written as it is.
class logger_type {
public:
    template <class Level>
    void set_level(Level least) noexcept {
        detail::debug_log::get().set_level(least);
    }
    [[nodiscard]] level_enum level() const noexcept { return detail::debug_log::get().get_level(); }
    template <class Level>
    [[nodiscard]] bool should_log(Level of) const noexcept {
        return detail::debug_log::get().should_log(of);
    }
    template <class Level>
    void flush_on(Level) noexcept {}
    void flush() noexcept {}

    template <class Level>
    void log(Level of, std::string const &text) noexcept {
        detail::debug_log::get().log(of, text);
    }
    void trace(std::string const &text) noexcept { log(level_enum::trace, text); }
    void debug(std::string const &text) noexcept { log(level_enum::debug, text); }
    void info(std::string const &text) noexcept { log(level_enum::info, text); }
    void warn(std::string const &text) noexcept { log(level_enum::warn, text); }
    void error(std::string const &text) noexcept { log(level_enum::error, text); }
    void critical(std::string const &text) noexcept { log(level_enum::critical, text); }
};

/// The debug log, as until RMM 25.02.
[[nodiscard]] inline logger_type &logger() noexcept {
    static logger_type log;
    return log;
}

/// The debug log, as since RMM 25.04.
[[nodiscard]] inline logger_type &default_logger() noexcept { return logger(); }

ALLUVION_COMPAT_RMM_END

#endif
