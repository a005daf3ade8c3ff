// Who serves blocks of one size?
#ifndef ALLUVION_COMPAT_RMM_MR_FIXED_SIZE_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_MR_FIXED_SIZE_MEMORY_RESOURCE_HPP

#include "../aligned.hpp"
#include "../detail/factory.hpp"

#include <cstddef>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

/// Serves every request with a block of one size. A larger request is `out_of_memory`.
class fixed_size_memory_resource : public ::rmm::detail::adaptor {
public:
    static constexpr std::size_t default_block_size = std::size_t{1} << 20;
    static constexpr std::size_t default_blocks_to_preallocate = 128;

    /// A block has whole units of 256 bytes.
    explicit fixed_size_memory_resource(::rmm::detail::any_resource upstream, std::size_t block_size = default_block_size,
                                        std::size_t blocks_to_preallocate = default_blocks_to_preallocate)
        : adaptor("fixed-size(block=" + ::rmm::detail::number(align_up(block_size, CUDA_ALLOCATION_ALIGNMENT)) +
                      ", blocks=" + ::rmm::detail::number(blocks_to_preallocate) + ")",
                  std::move(upstream), ::rmm::detail::blocks::carved),
          block_size_(align_up(block_size, CUDA_ALLOCATION_ALIGNMENT)) {}

    [[nodiscard]] std::size_t get_block_size() const noexcept { return block_size_; }

private:
    std::size_t block_size_;
};

ALLUVION_COMPAT_RMM_RECOGNISE(fixed_size_memory_resource)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
