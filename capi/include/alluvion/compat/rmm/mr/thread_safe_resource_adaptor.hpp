// Who lets one thread in at a time?
#ifndef ALLUVION_COMPAT_RMM_MR_THREAD_SAFE_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_RMM_MR_THREAD_SAFE_RESOURCE_ADAPTOR_HPP

#include "../detail/factory.hpp"

#include <memory>
#include <mutex>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {
namespace detail {

/// A resource of the program's, for one call at a time.
struct one_at_a_time {
    std::unique_ptr<std::mutex> lock = std::make_unique<std::mutex>();
    ::rmm::detail::foreign<any_resource> upstream;

    explicit one_at_a_time(any_resource resource) : upstream(std::move(resource)) {}

    void *allocate(::alluvion::stream_view stream, std::size_t bytes, std::size_t align) {
        std::lock_guard<std::mutex> const held(*lock);
        return upstream.allocate(stream, bytes, align);
    }
    void deallocate(::alluvion::stream_view stream, void *block, std::size_t bytes, std::size_t align) noexcept {
        std::lock_guard<std::mutex> const held(*lock);
        upstream.deallocate(stream, block, bytes, align);
    }
};

} // namespace detail

/// Lets one thread at a time into a resource of the program's that needs that. Resources of this library never do, so over one of
/// them it allocates as that one does.
class thread_safe_resource_adaptor : public ::rmm::detail::adaptor {
public:
    using lock_t = std::lock_guard<std::mutex>;

    explicit thread_safe_resource_adaptor(::rmm::detail::any_resource upstream) : adaptor(made(upstream), std::move(upstream)) {}

private:
    static ::rmm::detail::resource made(::rmm::detail::any_resource const &upstream) {
        if (::rmm::detail::resource ours = ::rmm::detail::recognised(upstream)) {
            return ours;
        }
        return ::rmm::detail::from_program(detail::one_at_a_time(upstream), ::rmm::detail::blocks::handed_on);
    }
};

ALLUVION_COMPAT_RMM_RECOGNISE(thread_safe_resource_adaptor)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
