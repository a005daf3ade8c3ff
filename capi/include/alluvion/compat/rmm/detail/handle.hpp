// What is the handle of a stack here?
#ifndef ALLUVION_COMPAT_RMM_DETAIL_HANDLE_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_HANDLE_HPP

#include "errors.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

/// A counted handle, with the exceptions of RMM.
using resource = ::alluvion::basic_resource<errors>;

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif
