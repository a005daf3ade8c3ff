// How does a failure of the library become an exception of RMM?
#ifndef ALLUVION_COMPAT_RMM_DETAIL_ERRORS_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_ERRORS_HPP

#include "../../../cpp/rmm_errors.hpp"
#include "../error.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

struct error_types {
    using bad_alloc = ::rmm::bad_alloc;
    using out_of_memory = ::rmm::out_of_memory;
    using out_of_range = ::rmm::out_of_range;
    using invalid_argument = ::rmm::invalid_argument;
    using logic_error = ::rmm::logic_error;
    using cuda_error = ::rmm::cuda_error;
};

/// Throws the exceptions of `rmm/error.hpp`.
struct errors : public ::alluvion::detail::errors_of_rmm<error_types> {};

inline void check(alv_status status) { ::alluvion::detail::check<errors>(status); }

/// Makes a context current on the calling thread if none is, for a call that has no resource.
inline void ensure_context() noexcept { alv_ensure_context(nullptr); }

/// The device that is current for the calling thread.
inline int current_device() {
    int32_t number = 0;
    check(alv_current_device(&number));
    return number;
}

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif
