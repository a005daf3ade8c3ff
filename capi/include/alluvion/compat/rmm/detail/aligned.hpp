// How is memory of the host aligned to more than its allocator knows?
#ifndef ALLUVION_COMPAT_RMM_DETAIL_ALIGNED_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_ALIGNED_HPP

#include "../aligned.hpp"
#include "errors.hpp"

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

/// Memory of the host that is aligned to a power of two: `allocate(bytes)` is asked for more, and what comes before the block is noted behind it.
template <class Allocate>
void *aligned_host_allocate(std::size_t bytes, std::size_t alignment, Allocate allocate) {
    assert(is_supported_alignment(alignment));
    std::size_t const more = alignment + sizeof(std::size_t);
    if (bytes > (std::numeric_limits<std::size_t>::max)() - more) {
        throw bad_alloc("a block of the host is larger than any memory");
    }
    auto *const begin = static_cast<char *>(allocate(bytes + more));
    auto const address = reinterpret_cast<std::uintptr_t>(begin);
    std::size_t const before = align_up(address, alignment) - address;
    std::memcpy(begin + before + bytes, &before, sizeof(before));
    return begin + before;
}

/// Gives a block back that `aligned_host_allocate` has made with the same `bytes`: to `deallocate(begin)`.
template <class Deallocate>
void aligned_host_deallocate(void *block, std::size_t bytes, [[maybe_unused]] std::size_t alignment, Deallocate deallocate) noexcept {
    std::size_t before = 0;
    std::memcpy(&before, static_cast<char *>(block) + bytes, sizeof(before));
    deallocate(static_cast<void *>(static_cast<char *>(block) - before));
}

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif
