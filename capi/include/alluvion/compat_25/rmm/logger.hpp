// Where are errors and growth written? The debug log, by the names of RMM until 25.02 and of 25.04 and later.
#ifndef ALLUVION_COMPAT_25_RMM_LOGGER_HPP
#define ALLUVION_COMPAT_25_RMM_LOGGER_HPP

#include "detail/age.hpp"
#include "../../compat/rmm/detail/debug_log.hpp"

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

using level_enum = detail::debug_level;

/// The debug log, as until RMM 25.02.
[[nodiscard]] inline detail::debug_log &logger() noexcept { return detail::debug_log::get(); }

/// The debug log, as since RMM 25.04.
[[nodiscard]] inline detail::debug_log &default_logger() noexcept { return logger(); }

ALLUVION_COMPAT_RMM_END

#endif
