// What if the driver keeps a pool?
#ifndef ALLUVION_COMPAT_RMM_MR_CUDA_ASYNC_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_MR_CUDA_ASYNC_MEMORY_RESOURCE_HPP

#include "../detail/factory.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

/// A pool of the driver's own, stream-ordered, on the device that is current when it is made.
class cuda_async_memory_resource final : public ::rmm::detail::resource {
public:
    /// How memory of the pool is exported.
    enum class allocation_handle_type : std::int32_t {
        none = 0x0,
        posix_file_descriptor = 0x1,
        win32 = 0x2,
        win32_kmt = 0x4,
        fabric = 0x8,
    };

    /// Memory that is exported is not offered: another handle type than `none` is a `logic_error`.
    cuda_async_memory_resource(std::optional<std::size_t> initial_pool_size = {},
                               std::optional<std::size_t> release_threshold = {},
                               std::optional<allocation_handle_type> export_handle_type = {})
        : ::rmm::detail::resource(recipe(initial_pool_size, release_threshold, export_handle_type)) {}

private:
    static std::string recipe(std::optional<std::size_t> initial, std::optional<std::size_t> threshold,
                              std::optional<allocation_handle_type> exported) {
        if (exported && *exported != allocation_handle_type::none) {
            throw logic_error("a pool of the driver whose memory is exported is not offered here");
        }
        std::string text = "cuda-async(initial=" + ::rmm::detail::number(initial.value_or(0));
        if (threshold) {
            text += ", threshold=" + ::rmm::detail::number(*threshold);
        }
        return text + ")";
    }
};

ALLUVION_COMPAT_RMM_RECOGNISE(cuda_async_memory_resource)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
