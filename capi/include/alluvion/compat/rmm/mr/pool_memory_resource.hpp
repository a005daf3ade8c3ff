// Who keeps what is freed?
#ifndef ALLUVION_COMPAT_RMM_MR_POOL_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_MR_POOL_MEMORY_RESOURCE_HPP

#include "../aligned.hpp"
#include "../detail/factory.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

/// Takes memory of its upstream in large pieces, and serves requests of every size from it.
class pool_memory_resource : public ::rmm::detail::adaptor {
public:
    /// Sizes are multiples of 256, and the first is at most the second.
    explicit pool_memory_resource(::rmm::detail::any_resource upstream, std::size_t initial_pool_size,
                                  std::optional<std::size_t> maximum_pool_size = std::nullopt)
        : adaptor(layers(initial_pool_size, maximum_pool_size), std::move(upstream), ::rmm::detail::blocks::carved) {}

    /// The bytes that it has taken of its upstream.
    [[nodiscard]] std::size_t pool_size() const {
        auto const figures = status();
        return figures ? figures->reserved_bytes : 0;
    }

private:
    static std::string layers(std::size_t initial, std::optional<std::size_t> maximum) {
        if (!is_aligned(initial, CUDA_ALLOCATION_ALIGNMENT) || !is_aligned(maximum.value_or(0), CUDA_ALLOCATION_ALIGNMENT)) {
            throw logic_error("the sizes of a pool are multiples of 256 bytes");
        }
        if (maximum && initial > *maximum) {
            throw logic_error("the initial size of a pool is larger than its maximum");
        }
        std::string text = "pool(initial=" + ::rmm::detail::number(initial);
        if (maximum) {
            text += ", maximum=" + ::rmm::detail::number(*maximum);
        }
        return text + ")";
    }
};

ALLUVION_COMPAT_RMM_RECOGNISE(pool_memory_resource)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
