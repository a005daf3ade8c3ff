// What if memory comes from two functions of the program?
#ifndef ALLUVION_COMPAT_RMM_MR_CALLBACK_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_MR_CALLBACK_MEMORY_RESOURCE_HPP

#include "../detail/factory.hpp"

#include <cstddef>
#include <functional>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

/// Gets the bytes, the stream and the program's argument; answers a block, and throws if there is none.
using allocate_callback_t = std::function<void *(std::size_t, cuda_stream_view, void *)>;

/// Gets the block, its bytes, the stream and the program's argument.
using deallocate_callback_t = std::function<void(void *, std::size_t, cuda_stream_view, void *)>;

/// Memory of the current device from two functions, which are called from any thread, and never for no bytes. What the first one
/// throws comes out of the request as it is. Its blocks may begin anywhere, for they are told no
/// alignment: one above 256 is a `bad_alloc`.
class callback_memory_resource : public ::rmm::detail::resource {
public:
    callback_memory_resource(allocate_callback_t allocate_callback, deallocate_callback_t deallocate_callback,
                             void *allocate_callback_arg = nullptr, void *deallocate_callback_arg = nullptr)
        : ::rmm::detail::resource(::rmm::detail::from_program(
              functions{std::move(allocate_callback), std::move(deallocate_callback), allocate_callback_arg, deallocate_callback_arg},
              ::rmm::detail::blocks::up_to_256)) {}

private:
    struct functions {
        allocate_callback_t allocate_callback;
        deallocate_callback_t deallocate_callback;
        void *allocate_argument;
        void *deallocate_argument;

        void *allocate(::alluvion::stream_view stream, std::size_t bytes, std::size_t) {
            return ::rmm::detail::as_the_program_says([&] { return allocate_callback(bytes, stream, allocate_argument); });
        }
        void deallocate(::alluvion::stream_view stream, void *block, std::size_t bytes, std::size_t) {
            deallocate_callback(block, bytes, stream, deallocate_argument);
        }
    };
};

ALLUVION_COMPAT_RMM_RECOGNISE(callback_memory_resource)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
