// What does the debug log of RMM 25.12 and before say? Requests that fail, and what suballocators take from below.
#ifndef ALLUVION_COMPAT_RMM_DETAIL_DEBUG_LOG_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_DEBUG_LOG_HPP

#include "alone.hpp"

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <stdlib.h>
#include <string>
#include <unistd.h>

#if ALLUVION_COMPAT_RMM_BY_POINTER

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

/// The numbers are those of spdlog and of rapids-logger.
enum debug_level : int { trace, debug, info, warn, err, error = err, critical, off };

/// Lines in the file that `RMM_DEBUG_LOG_FILE` names, or else `rmm_log.txt` in the working directory, which is opened, and emptied, at the
/// first line. One for the process, which is never destroyed: resources log until the end. What cannot be written is lost.
class debug_log {
public:
    [[nodiscard]] static debug_log &get() noexcept {
        static debug_log *const log = new debug_log;
        return *log;
    }

    /// Messages of that level and above are written: of `info` and above at first. Any enumeration will do whose numbers are these.
    template <class Level>
    void set_level(Level least) noexcept {
        least_.store(static_cast<int>(least), std::memory_order_relaxed);
    }
    [[nodiscard]] debug_level level() const noexcept { return static_cast<debug_level>(least_.load(std::memory_order_relaxed)); }
    template <class Level>
    [[nodiscard]] bool should_log(Level of) const noexcept {
        // Relaxed: a message on its way may miss a change.
        return static_cast<int>(of) >= least_.load(std::memory_order_relaxed) && static_cast<int>(of) < debug_level::off;
    }
    /// A line is flushed when it is written.
    void flush() noexcept {}
    template <class Level>
    void flush_on(Level) noexcept {}

    /// Text is written as it is.
    template <class Level>
    void log(Level of, std::string const &text) noexcept {
        if (should_log(of)) {
            write(static_cast<int>(of), text);
        }
    }
    void trace(std::string const &text) noexcept { log(debug_level::trace, text); }
    void debug(std::string const &text) noexcept { log(debug_level::debug, text); }
    void info(std::string const &text) noexcept { log(debug_level::info, text); }
    void warn(std::string const &text) noexcept { log(debug_level::warn, text); }
    void error(std::string const &text) noexcept { log(debug_level::error, text); }
    void critical(std::string const &text) noexcept { log(debug_level::critical, text); }

private:
    debug_log() = default;

    void write(int of, std::string const &text) noexcept {
        static constexpr char const *names[] = {"trace", "debug", "info", "warn", "error", "critical"};
        std::timespec now{};
        std::timespec_get(&now, TIME_UTC);
        std::tm local{};
        ::localtime_r(&now.tv_sec, &local);
        std::lock_guard<std::mutex> const held(lock_);
        if (file_ == nullptr) {
            char const *const named = ::secure_getenv("RMM_DEBUG_LOG_FILE");
            file_ = std::fopen(named != nullptr && *named != '\0' ? named : "rmm_log.txt", "w");
        }
        if (file_ != nullptr) {
            std::fprintf(file_, "[%6ld][%02d:%02d:%02d:%06ld][%-8s] %s\n", static_cast<long>(::getpid()), local.tm_hour, local.tm_min,
                         local.tm_sec, now.tv_nsec / 1000, names[of < 0 ? 0 : of], text.c_str());
            std::fflush(file_);
        }
    }

    std::atomic<int> least_{debug_level::info};
    std::mutex lock_;
    std::FILE *file_ = nullptr;
};

/// Calls `allocate`, and logs what came of it: a failure, which goes on, and what the stack of `handle` has taken from below meanwhile.
template <class Handle, class Allocate>
void *logged(Handle const &handle, std::size_t bytes, Allocate const &allocate) {
    auto &log = debug_log::get();
    bool const watches = log.should_log(debug_level::debug);
    auto const reserved = [&] {
        auto const status = watches && handle ? handle.status() : std::nullopt;
        return status ? status->reserved_bytes : 0;
    };
    std::size_t const before = reserved();
    try {
        void *const block = allocate();
        if (watches) {
            if (std::size_t const now = reserved(); now > before) {
                log.debug("growth by " + std::to_string(now - before) + " B to " + std::to_string(now) +
                                              " B, for a request of " + std::to_string(bytes) + " B");
            }
        }
        return block;
    } catch (std::exception const &failure) {
        log.error("a request of " + std::to_string(bytes) + " B failed: " + failure.what());
        throw;
    }
}

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif

#endif
