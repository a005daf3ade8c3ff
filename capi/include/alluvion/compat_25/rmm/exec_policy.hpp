// How do Thrust's algorithms use a resource?
#ifndef ALLUVION_COMPAT_25_RMM_EXEC_POLICY_HPP
#define ALLUVION_COMPAT_25_RMM_EXEC_POLICY_HPP

#include "detail/age.hpp"
#include "../../compat/rmm/mr/thrust_allocator_adaptor.hpp"

ALLUVION_COMPAT_RMM_BEGIN

/// Algorithms run on a stream, with temporary memory of a resource, and wait where Thrust waits. Until RMM 0.16 a program wrote
/// `rmm::exec_policy(stream)->on(stream)`.
class exec_policy : public ::alluvion::basic_exec_policy<detail::allocation> {
public:
    using ::alluvion::basic_exec_policy<detail::allocation>::basic_exec_policy;
    exec_policy *operator->() noexcept { return this; }
    exec_policy const *operator->() const noexcept { return this; }
};

/// The same, and algorithms that answer nothing do not wait.
using exec_policy_nosync = ::alluvion::basic_exec_policy_nosync<detail::allocation>;

ALLUVION_COMPAT_RMM_END

#endif
