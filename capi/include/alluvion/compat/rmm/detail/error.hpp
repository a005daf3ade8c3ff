// How does a program check what it asks for, and what CUDA answers? The macros of RMM, under their names.
#ifndef ALLUVION_COMPAT_RMM_DETAIL_ERROR_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_ERROR_HPP

#include "errors.hpp"

#include <cassert>
#include <cstddef>
#include <string>

#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>
#endif

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

/// Throws what a check of the program's is about.
template <class Thrown>
[[noreturn]] void raise(std::string const &what, char const *file, int line, std::string const &reason) {
    throw Thrown(what + " at: " + file + ':' + std::to_string(line) + ": " + reason);
}

} // namespace detail
ALLUVION_COMPAT_RMM_END

// Of two or three arguments, and of one or two, the last is a type: what is thrown.
#define ALLUVION_RMM_THIRD_OR(first, second, third, chosen, ...) chosen
#define ALLUVION_RMM_SECOND_OR(first, second, chosen, ...) chosen

/// Throws `rmm::logic_error`, or the type of the third argument, where a condition does not hold.
#define RMM_EXPECTS(...) \
    ALLUVION_RMM_THIRD_OR(__VA_ARGS__, ALLUVION_RMM_EXPECTS_OR, ALLUVION_RMM_EXPECTS, unused)(__VA_ARGS__)
#define ALLUVION_RMM_EXPECTS(condition, reason) ALLUVION_RMM_EXPECTS_OR(condition, reason, ::rmm::logic_error)
#define ALLUVION_RMM_EXPECTS_OR(condition, reason, thrown) \
    (static_cast<bool>(condition) ? static_cast<void>(0) \
                                  : ::rmm::detail::raise<thrown>("RMM failure", __FILE__, __LINE__, reason))

/// Throws `rmm::logic_error`, or the type of the second argument.
#define RMM_FAIL(...) ALLUVION_RMM_SECOND_OR(__VA_ARGS__, ALLUVION_RMM_FAIL_OF, ALLUVION_RMM_FAIL, unused)(__VA_ARGS__)
#define ALLUVION_RMM_FAIL(reason) ALLUVION_RMM_FAIL_OF(reason, ::rmm::logic_error)
#define ALLUVION_RMM_FAIL_OF(reason, thrown) ::rmm::detail::raise<thrown>("RMM failure", __FILE__, __LINE__, reason)

/// Throws `rmm::cuda_error`, or the type of the second argument, where a call of the runtime fails.
#define RMM_CUDA_TRY(...) \
    ALLUVION_RMM_SECOND_OR(__VA_ARGS__, ALLUVION_RMM_CUDA_TRY_OR, ALLUVION_RMM_CUDA_TRY, unused)(__VA_ARGS__)
#define ALLUVION_RMM_CUDA_TRY(call) ALLUVION_RMM_CUDA_TRY_OR(call, ::rmm::cuda_error)
#define ALLUVION_RMM_CUDA_TRY_OR(call, thrown) \
    do { \
        cudaError_t const alluvion_said = (call); \
        if (alluvion_said != cudaSuccess) { \
            static_cast<void>(cudaGetLastError()); \
            ::rmm::detail::raise<thrown>("CUDA error", __FILE__, __LINE__, \
                                         std::string(cudaGetErrorName(alluvion_said)) + ' ' + cudaGetErrorString(alluvion_said)); \
        } \
    } while (0)

/// Throws `rmm::out_of_memory` where a call of the runtime finds no memory, and `rmm::bad_alloc` where it fails otherwise. The second argument
/// is how many bytes were asked for.
#define RMM_CUDA_TRY_ALLOC(...) \
    ALLUVION_RMM_SECOND_OR(__VA_ARGS__, ALLUVION_RMM_CUDA_TRY_ALLOC_OF, ALLUVION_RMM_CUDA_TRY_ALLOC, unused)(__VA_ARGS__)
#define ALLUVION_RMM_CUDA_TRY_ALLOC(call) ALLUVION_RMM_CUDA_TRY_ALLOC_SAYING(call, std::string())
#define ALLUVION_RMM_CUDA_TRY_ALLOC_OF(call, bytes) \
    ALLUVION_RMM_CUDA_TRY_ALLOC_SAYING(call, " (failed to allocate " + std::to_string(bytes) + " bytes)")
#define ALLUVION_RMM_CUDA_TRY_ALLOC_SAYING(call, bytes) \
    do { \
        cudaError_t const alluvion_said = (call); \
        if (alluvion_said != cudaSuccess) { \
            static_cast<void>(cudaGetLastError()); \
            std::string const alluvion_reason = \
                std::string(cudaGetErrorName(alluvion_said)) + ' ' + cudaGetErrorString(alluvion_said); \
            if (alluvion_said == cudaErrorMemoryAllocation) { \
                ::rmm::detail::raise<::rmm::out_of_memory>("CUDA error" + (bytes), __FILE__, __LINE__, alluvion_reason); \
            } \
            ::rmm::detail::raise<::rmm::bad_alloc>("CUDA error" + (bytes), __FILE__, __LINE__, alluvion_reason); \
        } \
    } while (0)

/// Where asserts are on, ends the process if a call of the runtime fails.
#define RMM_ASSERT_CUDA_SUCCESS(call) \
    do { \
        cudaError_t const alluvion_said = (call); \
        assert(alluvion_said == cudaSuccess); \
        static_cast<void>(alluvion_said); \
    } while (0)

/// The same, at the end of the process: that the runtime has gone is no failure.
#define RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(call) \
    do { \
        cudaError_t const alluvion_said = (call); \
        assert(alluvion_said == cudaSuccess || alluvion_said == cudaErrorCudartUnloading); \
        static_cast<void>(alluvion_said); \
    } while (0)

#endif
