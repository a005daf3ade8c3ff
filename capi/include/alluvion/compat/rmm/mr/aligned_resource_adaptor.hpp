// Who aligns blocks to more?
#ifndef ALLUVION_COMPAT_RMM_MR_ALIGNED_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_RMM_MR_ALIGNED_RESOURCE_ADAPTOR_HPP

#include "../aligned.hpp"
#include "../detail/factory.hpp"

#include <cstddef>
#include <string>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

/// Aligns blocks of at least `alignment_threshold` bytes to `alignment`, a power of two.
class aligned_resource_adaptor : public ::rmm::detail::adaptor {
public:
    static constexpr std::size_t default_alignment_threshold = 0;

    explicit aligned_resource_adaptor(::rmm::detail::any_resource upstream, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT,
                                      std::size_t alignment_threshold = default_alignment_threshold)
        : adaptor(layers(alignment, alignment_threshold), std::move(upstream), ::rmm::detail::blocks::up_to_256) {}

private:
    static std::string layers(std::size_t alignment, std::size_t threshold) {
        if (!is_supported_alignment(alignment)) {
            throw logic_error("the alignment of blocks is not a power of two");
        }
        // Less than 256 is no demand: every block is aligned to so much.
        std::size_t const least = alignment < CUDA_ALLOCATION_ALIGNMENT ? CUDA_ALLOCATION_ALIGNMENT : alignment;
        return "aligned(alignment=" + ::rmm::detail::number(least) + ", threshold=" + ::rmm::detail::number(threshold) + ")";
    }
};

ALLUVION_COMPAT_RMM_RECOGNISE(aligned_resource_adaptor)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
