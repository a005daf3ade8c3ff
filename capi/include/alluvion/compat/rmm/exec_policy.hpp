// How do Thrust's algorithms use a resource?
#ifndef ALLUVION_COMPAT_RMM_EXEC_POLICY_HPP
#define ALLUVION_COMPAT_RMM_EXEC_POLICY_HPP

#include "mr/thrust_allocator_adaptor.hpp"

ALLUVION_COMPAT_RMM_BEGIN

/// Algorithms run on a stream, with temporary memory of a resource, and wait where Thrust waits.
using exec_policy = ::alluvion::basic_exec_policy<detail::allocation>;

/// The same, and algorithms that answer nothing do not wait.
using exec_policy_nosync = ::alluvion::basic_exec_policy_nosync<detail::allocation>;

ALLUVION_COMPAT_RMM_END

#endif
