// How does Thrust use the memory of the first RMM?
#ifndef ALLUVION_COMPAT_0_RMM_THRUST_RMM_ALLOCATOR_H
#define ALLUVION_COMPAT_0_RMM_THRUST_RMM_ALLOCATOR_H

#include "rmm.h"

#include "../../thrust.hpp"

#include <cstddef>

namespace rmm {
// What 0 means is in the names, as in alluvion.hpp, and that this is the first RMM: a file of a later one does not link with them.
inline namespace ALLUVION_STREAMS_NAMESPACE {
inline namespace first_rmm {
namespace detail {

/// Memory of `rmmAlloc`, on the device that is current at the call.
struct memory {
    [[nodiscard]] void *allocate(::alluvion::stream_view stream, std::size_t bytes, std::size_t) const {
        void *block = nullptr;
        if (rmmAlloc(&block, bytes, stream.value(), __FILE__, __LINE__) != RMM_SUCCESS) {
            alv_error_info info = ALV_INIT(alv_error_info);
            alv_last_error(&info);
            ::alluvion::default_errors::raise(info.status, info, alv_last_error_message());
        }
        return block;
    }
    void deallocate(::alluvion::stream_view stream, void *block, std::size_t, std::size_t) const noexcept {
        // What is no block is refused, and nobody could be told.
        static_cast<void>(rmmFree(block, stream.value(), __FILE__, __LINE__));
    }
    friend bool operator==(memory, memory) noexcept { return true; }
};

struct allocation {
    using resource = memory;
    using stream = ::alluvion::stream_view;
    using reference = memory;
    /// The first RMM knows the device of a block.
    struct device {};
    struct on_device {
        explicit on_device(device) noexcept {}
        ~on_device() {}
    };

    [[nodiscard]] static memory current() noexcept { return {}; }
    [[nodiscard]] static memory refer(memory) noexcept { return {}; }
    [[nodiscard]] static std::size_t bytes(std::size_t count, std::size_t size) {
        return ::alluvion::allocation_by_handle<::alluvion::default_errors>::bytes(count, size);
    }
};

} // namespace detail

/// Thrust's vector, with memory of RMM.
template <class T>
using device_vector = ::thrust::device_vector<T, ::alluvion::basic_thrust_allocator<T, detail::allocation>>;

/// Algorithms run on a stream, with temporary memory of RMM: `rmm::exec_policy(stream)->on(stream)`, or without `->on`.
class exec_policy : public ::alluvion::basic_exec_policy<detail::allocation> {
public:
    explicit exec_policy(::alluvion::stream_view stream = {}) : basic_exec_policy(stream) {}
    exec_policy *operator->() noexcept { return this; }
    exec_policy const *operator->() const noexcept { return this; }
};

} // namespace first_rmm
} // namespace ALLUVION_STREAMS_NAMESPACE
} // namespace rmm

/// An allocator of Thrust's containers.
template <class T>
using rmm_allocator = ::alluvion::basic_thrust_allocator<T, ::rmm::detail::allocation>;

#endif
