// Which exception of RMM is a failure of the library?
#ifndef ALLUVION_CPP_RMM_ERRORS_HPP
#define ALLUVION_CPP_RMM_ERRORS_HPP

#include "error.hpp"

namespace alluvion {
namespace detail {

/// A policy that throws exceptions of RMM. `Types` names them: those of the program's RMM, or those of `compat/rmm`.
template <class Types>
struct errors_of_rmm {
    /// RMM works by CUDA's runtime, after whose calls a context is current: programs for RMM ask the driver right after an allocation.
    static constexpr bool ensures_context = true;

    /// What a resource of the program's throws, comes out of RMM's layers as it is.
    static constexpr bool throws_on = true;

    [[noreturn]] static void raise(alv_status status, alv_error_info const &, char const *message) {
        switch (status) {
        case ALV_OUT_OF_MEMORY:
            throw typename Types::out_of_memory(message);
        case ALV_SIZE_OVERFLOW:
        case ALV_INVALID_ALIGNMENT:
        case ALV_UNSUPPORTED_ALIGNMENT:
            throw typename Types::bad_alloc(message);
        case ALV_OUT_OF_RANGE:
            throw typename Types::out_of_range(message);
        case ALV_INVALID_ARGUMENT:
        case ALV_MALFORMED:
            throw typename Types::invalid_argument(message);
        case ALV_LENGTH_MISMATCH:
        case ALV_UNSUPPORTED:
        case ALV_IN_USE:
        case ALV_MISUSE:
            throw typename Types::logic_error(message);
        default:
            throw typename Types::cuda_error(message);
        }
    }
};

} // namespace detail
} // namespace alluvion

#endif
