// How are sizes and addresses rounded?
#ifndef ALLUVION_COMPAT_25_RMM_ALIGNED_HPP
#define ALLUVION_COMPAT_25_RMM_ALIGNED_HPP

#include "detail/age.hpp"
#include "../../compat/rmm/aligned.hpp"

#include <cstddef>

namespace rmm {

/// The alignment of memory of the host, unless a program asks for more.
static constexpr std::size_t RMM_DEFAULT_HOST_ALIGNMENT{alignof(std::max_align_t)};

} // namespace rmm

#endif
