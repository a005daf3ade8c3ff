// Who refuses to give more than so much?
#ifndef ALLUVION_COMPAT_RMM_MR_LIMITING_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_RMM_MR_LIMITING_RESOURCE_ADAPTOR_HPP

#include "../aligned.hpp"
#include "../detail/factory.hpp"

#include <cstddef>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

/// Refuses requests that would make more bytes live than its limit. A block counts in units of 256 bytes, whatever `alignment` is.
class limiting_resource_adaptor : public ::rmm::detail::adaptor {
public:
    limiting_resource_adaptor(::rmm::detail::any_resource upstream, std::size_t allocation_limit,
                              std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT)
        : adaptor("limiting(" + ::rmm::detail::number(checked(allocation_limit, alignment)) + ")", std::move(upstream), ::rmm::detail::blocks::handed_on),
          limit_(allocation_limit) {}

    [[nodiscard]] std::size_t get_allocation_limit() const { return limit_; }

    /// The bytes that are out.
    [[nodiscard]] std::size_t get_allocated_bytes() const {
        std::size_t used = 0;
        ::rmm::detail::check(alv_limit_of(native_handle(), &used, nullptr));
        return used;
    }

private:
    static std::size_t checked(std::size_t limit, std::size_t alignment) {
        if (!is_supported_alignment(alignment)) {
            throw invalid_argument("the alignment of a limit is not a power of two");
        }
        return limit;
    }

    std::size_t limit_;
};

ALLUVION_COMPAT_RMM_RECOGNISE(limiting_resource_adaptor)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
