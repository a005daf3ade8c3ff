// How do Thrust's containers use a resource?
#ifndef ALLUVION_COMPAT_RMM_MR_THRUST_ALLOCATOR_ADAPTOR_HPP
#define ALLUVION_COMPAT_RMM_MR_THRUST_ALLOCATOR_ADAPTOR_HPP

#include "../../../thrust.hpp"
#include "../detail/allocation.hpp"

#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Elements for Thrust, on one stream. A class, which programs declare ahead, specialise over and derive from.
template <class T>
class thrust_allocator : public ::alluvion::basic_thrust_allocator<T, ::rmm::detail::allocation> {
    using base = ::alluvion::basic_thrust_allocator<T, ::rmm::detail::allocation>;

public:
    template <class Other>
    struct rebind {
        using other = thrust_allocator<Other>;
    };

    ALLUVION_EXEC_CHECK_DISABLE
    thrust_allocator() : base() {}

    ALLUVION_EXEC_CHECK_DISABLE
    explicit thrust_allocator(cuda_stream_view stream) : base(stream) {}

    ALLUVION_EXEC_CHECK_DISABLE
    thrust_allocator(cuda_stream_view stream, ::rmm::detail::any_resource mr) : base(stream, std::move(mr)) {}

    ALLUVION_EXEC_CHECK_DISABLE
    thrust_allocator(thrust_allocator const &other) = default;

    ALLUVION_EXEC_CHECK_DISABLE
    thrust_allocator(thrust_allocator &&other) noexcept = default;

    ALLUVION_EXEC_CHECK_DISABLE
    template <class Other>
    thrust_allocator(thrust_allocator<Other> const &other) : base(other) {}

    ALLUVION_EXEC_CHECK_DISABLE
    thrust_allocator &operator=(thrust_allocator const &other) = default;

    ALLUVION_EXEC_CHECK_DISABLE
    ~thrust_allocator() = default;
};

} // namespace mr
ALLUVION_COMPAT_RMM_END

#endif
