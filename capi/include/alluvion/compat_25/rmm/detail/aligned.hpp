// How is memory aligned, by the names of RMM 24.02 and before?
#ifndef ALLUVION_COMPAT_25_RMM_DETAIL_ALIGNED_HPP
#define ALLUVION_COMPAT_25_RMM_DETAIL_ALIGNED_HPP

#include "age.hpp"
#include "../../../compat/rmm/detail/aligned.hpp"
#include "../aligned.hpp"

#include <cstddef>

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

using ::rmm::align_down;
using ::rmm::align_up;
using ::rmm::CUDA_ALLOCATION_ALIGNMENT;
using ::rmm::is_aligned;
using ::rmm::is_pointer_aligned;
using ::rmm::is_pow2;
using ::rmm::is_supported_alignment;
using ::rmm::RMM_DEFAULT_HOST_ALIGNMENT;

template <class Allocate>
void *aligned_allocate(std::size_t bytes, std::size_t alignment, Allocate allocate) {
    return aligned_host_allocate(bytes, alignment, allocate);
}
template <class Deallocate>
void aligned_deallocate(void *block, std::size_t bytes, std::size_t alignment, Deallocate deallocate) noexcept {
    aligned_host_deallocate(block, bytes, alignment, deallocate);
}

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif
