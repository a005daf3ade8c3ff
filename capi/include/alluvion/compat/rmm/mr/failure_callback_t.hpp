// Who is asked when memory runs out?
#ifndef ALLUVION_COMPAT_RMM_MR_FAILURE_CALLBACK_T_HPP
#define ALLUVION_COMPAT_RMM_MR_FAILURE_CALLBACK_T_HPP

#include "../detail/alone.hpp"

#include <cstddef>
#include <functional>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Gets the bytes that were asked for and the program's argument; true means that memory was freed, and the request is tried again.
using failure_callback_t = std::function<bool(std::size_t, void *)>;

} // namespace mr
ALLUVION_COMPAT_RMM_END

#endif
