// What is the handle of a stack here?
#ifndef ALLUVION_COMPAT_RMM_DETAIL_HANDLE_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_HANDLE_HPP

#include "errors.hpp"

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

/// A counted handle, with the exceptions of RMM.
using resource = ::alluvion::basic_resource<errors>;

/// Whether two handles are of one stack. Those of a stack and of the same with a handler are equal, because each frees blocks of the
/// other, and say different things of themselves.
inline bool is_same(resource const &first, resource const &second) {
    return first.native_handle() == second.native_handle() || (first == second && first.describe() == second.describe());
}

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif
