// What if the program can free memory when it runs out?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_FAILURE_CALLBACK_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_FAILURE_CALLBACK_RESOURCE_ADAPTOR_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/failure_callback_resource_adaptor.hpp"
#include "../../detail/layer.hpp"

#include <type_traits>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

/// It asks about other exceptions than those of memory that ran out, and its handle does not.
template <class ExceptionType>
inline constexpr bool is_more_than_its_handle<handles::failure_callback_resource_adaptor<ExceptionType>> =
    !std::is_same_v<ExceptionType, ::rmm::out_of_memory>;

} // namespace detail
namespace mr {

/// Asks a function of the program when its upstream is out of memory, and tries again while that answers true. See the class of that name
/// in `alluvion/compat`.
template <class Upstream, class ExceptionType = ::rmm::out_of_memory>
class failure_callback_resource_adaptor final
    : public ::rmm::detail::layer<Upstream, handles::failure_callback_resource_adaptor<ExceptionType>> {
    using base = ::rmm::detail::layer<Upstream, handles::failure_callback_resource_adaptor<ExceptionType>>;

public:
    using exception_type = ExceptionType;

    failure_callback_resource_adaptor(Upstream *upstream, failure_callback_t callback, void *callback_arg)
        : base(upstream, std::move(callback), callback_arg) {}
    failure_callback_resource_adaptor(device_async_resource_ref upstream, failure_callback_t callback, void *callback_arg)
        : base(std::move(upstream), std::move(callback), callback_arg) {}
};

template <class Upstream, class... Rest>
failure_callback_resource_adaptor(Upstream *, Rest...) -> failure_callback_resource_adaptor<Upstream>;
template <class Upstream, class... Rest, ::rmm::detail::if_object<Upstream> = 0>
failure_callback_resource_adaptor(Upstream &, Rest...) -> failure_callback_resource_adaptor<Upstream>;
template <class... Rest>
failure_callback_resource_adaptor(device_async_resource_ref, Rest...) -> failure_callback_resource_adaptor<device_memory_resource>;

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
