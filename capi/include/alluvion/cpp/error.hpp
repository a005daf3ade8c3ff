// What is thrown?
#ifndef ALLUVION_CPP_ERROR_HPP
#define ALLUVION_CPP_ERROR_HPP

#include "configuration.hpp"
#include "thrown.hpp"

#include <cstddef>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace alluvion {

/// What a resource said when it ran out of memory. What is not known is `SIZE_MAX`.
using oom_report = ::alv_oom_report;

/// A failure that is not about the memory of a request: `what()` is the message of the library.
class ALLUVION_VISIBLE error : public std::runtime_error {
public:
    error(alv_status status, int cuda_code, std::string const &message)
        : std::runtime_error(message), status_(status), cuda_code_(cuda_code) {}

    /// One of the constants `ALV_`.
    [[nodiscard]] alv_status status() const noexcept { return status_; }

    /// The code of the CUDA driver; 0 if the driver was not the cause.
    [[nodiscard]] int cuda_code() const noexcept { return cuda_code_; }

private:
    alv_status status_;
    int cuda_code_;
};

/// A recipe or a file that cannot be read.
class ALLUVION_VISIBLE invalid_recipe : public error {
public:
    invalid_recipe(std::size_t column, std::string const &message) : error(ALV_MALFORMED, 0, message), column_(column) {}

    /// The column, from 1; 0 without one.
    [[nodiscard]] std::size_t column() const noexcept { return column_; }

private:
    std::size_t column_;
};

/// A request that no free memory would help: a size that overflows, an alignment that cannot be honoured.
class ALLUVION_VISIBLE bad_alloc : public std::bad_alloc {
public:
    bad_alloc(alv_status status, int cuda_code, std::string const &message)
        : text_("std::bad_alloc: " + message), status_(status), cuda_code_(cuda_code) {}

    /// Begins with `std::bad_alloc: `.
    [[nodiscard]] char const *what() const noexcept override { return text_.what(); }

    /// One of the constants `ALV_`.
    [[nodiscard]] alv_status status() const noexcept { return status_; }

    /// The code of the CUDA driver; 0 if the driver was not the cause.
    [[nodiscard]] int cuda_code() const noexcept { return cuda_code_; }

private:
    // A text whose copies cannot throw, as those of an exception must not.
    std::runtime_error text_;
    alv_status status_;
    int cuda_code_;
};

/// There is not enough memory; freeing some and asking again may succeed.
class ALLUVION_VISIBLE out_of_memory : public bad_alloc {
public:
    out_of_memory(std::size_t requested_bytes, std::optional<oom_report> const &report, int cuda_code,
                  std::string const &message)
        : bad_alloc(ALV_OUT_OF_MEMORY, cuda_code, "out_of_memory: " + message), requested_bytes_(requested_bytes),
          report_(report) {}

    /// The bytes that were asked for; 0 if they are not known.
    [[nodiscard]] std::size_t requested_bytes() const noexcept { return requested_bytes_; }

    /// The report of the layer that ran out; nothing if the driver did.
    [[nodiscard]] std::optional<oom_report> const &report() const noexcept { return report_; }

private:
    std::size_t requested_bytes_;
    std::optional<oom_report> report_;
};

/// Throws the exceptions of this file. A policy is a type with such a function, which does not return.
struct default_errors {
    [[noreturn]] static void raise(alv_status status, alv_error_info const &info, char const *message) {
        switch (status) {
        case ALV_OUT_OF_MEMORY: {
            oom_report report = ALV_INIT(oom_report);
            std::optional<oom_report> said;
            if (alv_last_out_of_memory(&report) == ALV_OK) {
                said = report;
            }
            throw out_of_memory(info.requested_bytes, said, info.cuda_code, message);
        }
        case ALV_SIZE_OVERFLOW:
        case ALV_INVALID_ALIGNMENT:
        case ALV_UNSUPPORTED_ALIGNMENT:
            throw bad_alloc(status, info.cuda_code, message);
        case ALV_MALFORMED:
            throw invalid_recipe(info.column, message);
        default:
            throw error(status, info.cuda_code, message);
        }
    }
};

namespace detail {

/// Whether what a function of the program's has thrown is thrown on as it is.
template <class Errors, class = void>
inline constexpr bool throws_on = false;
template <class Errors>
inline constexpr bool throws_on<Errors, std::void_t<decltype(Errors::throws_on)>> = Errors::throws_on;

/// Throws what a failed call of the library was, by the policy.
template <class Errors>
[[noreturn]] ALLUVION_COLD void raise(alv_status status) {
    alv_error_info info = ALV_INIT(alv_error_info);
    alv_last_error(&info);
    if constexpr (throws_on<Errors>) {
        if (status == ALV_FOREIGN) {
            thrown::again(info.foreign_status);
        }
    }
    Errors::raise(status, info, alv_last_error_message());
    std::terminate();
}

/// Throws an error of this header, by the policy.
template <class Errors>
[[noreturn]] ALLUVION_COLD void raise(alv_status status, char const *message) {
    alv_error_info info = ALV_INIT(alv_error_info);
    info.status = status;
    Errors::raise(status, info, message);
    std::terminate();
}

/// Whether a context is current on the calling thread after the calls of a handle with this policy.
template <class Errors, class = void>
inline constexpr bool ensures_context = false;
template <class Errors>
inline constexpr bool ensures_context<Errors, std::void_t<decltype(Errors::ensures_context)>> = Errors::ensures_context;

template <class Errors = default_errors>
void check(alv_status status) {
    if (status != ALV_OK) {
        raise<Errors>(status);
    }
}

/// Text for the library, which ends at the first 0.
template <class Errors>
std::string c_text(std::string_view text) {
    if (text.find('\0') != std::string_view::npos) {
        raise<Errors>(ALV_INVALID_ARGUMENT, "invalid argument: the text has a byte 0 in it");
    }
    return std::string(text);
}

/// Text that the library writes, of any length.
template <class Errors, class Write>
std::string text_of(Write const &write) {
    std::string text(256, '\0');
    for (;;) {
        std::size_t needed = 0;
        // One byte more than the text has letters: room for the 0 that a string ends with anyway.
        check<Errors>(write(text.data(), text.size() + 1, &needed));
        bool const whole = needed <= text.size();
        text.resize(needed);
        if (whole) {
            return text;
        }
    }
}

} // namespace detail

/// Throws if the library that the program has found does not fit the header that it was compiled with.
inline void check_version() { detail::check(alv_check_version(ALV_VERSION)); }

} // namespace alluvion

#endif
