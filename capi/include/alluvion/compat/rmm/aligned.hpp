// How are sizes and addresses rounded?
#ifndef ALLUVION_COMPAT_RMM_ALIGNED_HPP
#define ALLUVION_COMPAT_RMM_ALIGNED_HPP

#include "detail/alone.hpp"

#include <cassert>
#include <cstddef>
#include <cstdint>

namespace rmm {

/// Every block is aligned to this at least.
static constexpr std::size_t CUDA_ALLOCATION_ALIGNMENT{256};

/// Whether it is a power of two. Zero is none.
[[nodiscard]] constexpr bool is_pow2(std::size_t value) noexcept { return value != 0 && (value & (value - 1)) == 0; }

/// Whether it is an alignment.
[[nodiscard]] constexpr bool is_supported_alignment(std::size_t alignment) noexcept { return is_pow2(alignment); }

/// Whether every source honours it.
[[nodiscard]] constexpr bool is_supported_base_resource_alignment(std::size_t alignment) noexcept {
    return is_pow2(alignment) && alignment <= CUDA_ALLOCATION_ALIGNMENT;
}

[[nodiscard]] constexpr std::size_t align_down(std::size_t value, std::size_t alignment) noexcept {
    assert(is_supported_alignment(alignment));
    return value & ~(alignment - 1);
}

[[nodiscard]] constexpr std::size_t align_up(std::size_t value, std::size_t alignment) noexcept {
    return align_down(value + (alignment - 1), alignment);
}

[[nodiscard]] constexpr bool is_aligned(std::size_t value, std::size_t alignment) noexcept {
    return value == align_down(value, alignment);
}

[[nodiscard]] inline bool is_pointer_aligned(void *pointer, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) noexcept {
    return is_aligned(reinterpret_cast<std::uintptr_t>(pointer), alignment);
}

} // namespace rmm

#endif
