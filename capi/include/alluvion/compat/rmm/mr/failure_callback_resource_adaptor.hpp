// What if the program can free memory when it runs out?
#ifndef ALLUVION_COMPAT_RMM_MR_FAILURE_CALLBACK_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_RMM_MR_FAILURE_CALLBACK_RESOURCE_ADAPTOR_HPP

#include "../detail/factory.hpp"
#include "failure_callback_t.hpp"

#include <type_traits>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Asks a function of the program when its upstream is out of memory, and tries again while that answers true.
///
/// The function runs on the thread whose request failed, with no lock held, and may free, trim and allocate; its own requests ask
/// nobody. An exception of it is an answer of false: the request fails as it would have without it. `ExceptionType` is one that
/// is caught where memory runs out.
template <class ExceptionType = ::rmm::out_of_memory>
class failure_callback_resource_adaptor : public ::rmm::detail::adaptor {
    static_assert(std::is_base_of_v<ExceptionType, ::rmm::out_of_memory>,
                  "the function is asked when memory runs out: name rmm::out_of_memory, or a base of it");

public:
    using exception_type = ExceptionType;

    failure_callback_resource_adaptor(::rmm::detail::any_resource upstream, failure_callback_t callback, void *callback_arg)
        : adaptor(asking(::rmm::detail::handle_of(upstream), std::move(callback), callback_arg), std::move(upstream)) {}

private:
    static ::rmm::detail::resource asking(::rmm::detail::resource const &upstream, failure_callback_t callback, void *argument) {
        return upstream.with_oom_handler([callback = std::move(callback), argument](alv_oom_report const &report) {
            return callback(report.requested_bytes, argument);
        });
    }
};

#if ALLUVION_COMPAT_RMM_CCCL
namespace detail {
inline bool const failure_callback_resource_adaptor_is_recognised =
    ::rmm::detail::recognise_type<failure_callback_resource_adaptor<>>();
} // namespace detail
#endif

} // namespace mr
ALLUVION_COMPAT_RMM_END

#endif
