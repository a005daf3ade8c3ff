// How do Thrust's containers and algorithms use our memory?
//
//     alluvion::stream stream;
//     alluvion::device_vector<int> numbers(1000, alluvion::thrust_allocator<int>(stream, pool));
//     thrust::sort(alluvion::exec_policy_nosync(stream, pool), numbers.begin(), numbers.end());
//
// For a compiler of CUDA, with the Thrust of CUDA 12.4 and later.
#ifndef ALLUVION_THRUST_HPP
#define ALLUVION_THRUST_HPP

#include "allocators.hpp"

#include <thrust/device_malloc_allocator.h>
#include <thrust/device_ptr.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/system/cuda/execution_policy.h>

#include <cstddef>
#include <utility>

// Thrust makes and destroys allocators in functions for both sides, which only ever run on the host.
#if defined(__CUDACC__) && defined(__NVCC__)
#define ALLUVION_EXEC_CHECK_DISABLE _Pragma("nv_exec_check_disable")
#else
#define ALLUVION_EXEC_CHECK_DISABLE
#endif

ALLUVION_BEGIN

/// Elements for Thrust, on one stream. Thrust itself writes new elements on its default stream.
template <class T, class Allocation>
class basic_thrust_allocator : public ::thrust::device_malloc_allocator<T> {
    using base = ::thrust::device_malloc_allocator<T>;

public:
    using pointer = typename base::pointer;
    using size_type = typename base::size_type;
    using stream_type = typename Allocation::stream;
    using resource_type = typename Allocation::resource;

    template <class Other>
    struct rebind {
        using other = basic_thrust_allocator<Other, Allocation>;
    };

    /// On the default stream and the resource that is current when it is made.
    ALLUVION_EXEC_CHECK_DISABLE
    basic_thrust_allocator() : resource_(Allocation::current()) {}

    ALLUVION_EXEC_CHECK_DISABLE
    explicit basic_thrust_allocator(stream_type stream) : stream_(stream), resource_(Allocation::current()) {}

    ALLUVION_EXEC_CHECK_DISABLE
    basic_thrust_allocator(stream_type stream, resource_type resource) : stream_(stream), resource_(std::move(resource)) {}

    ALLUVION_EXEC_CHECK_DISABLE
    basic_thrust_allocator(basic_thrust_allocator const &other)
        : base(other), stream_(other.stream_), resource_(other.resource_), device_(other.device_) {}

    ALLUVION_EXEC_CHECK_DISABLE
    basic_thrust_allocator(basic_thrust_allocator &&other) noexcept
        : base(other), stream_(other.stream_), resource_(std::move(other.resource_)), device_(other.device_) {}

    ALLUVION_EXEC_CHECK_DISABLE
    template <class Other>
    basic_thrust_allocator(basic_thrust_allocator<Other, Allocation> const &other)
        : stream_(other.stream()), resource_(other.kept()), device_(other.device()) {}

    ALLUVION_EXEC_CHECK_DISABLE
    basic_thrust_allocator &operator=(basic_thrust_allocator const &other) {
        stream_ = other.stream_;
        resource_ = other.resource_;
        device_ = other.device_;
        return *this;
    }

    ALLUVION_EXEC_CHECK_DISABLE
    ~basic_thrust_allocator() = default;

    [[nodiscard]] pointer allocate(size_type count) {
        typename Allocation::on_device const here(device_);
        void *const block = resource_.allocate(stream_, Allocation::bytes(count, sizeof(T)), alignment);
        return ::thrust::device_pointer_cast(static_cast<T *>(block));
    }

    void deallocate(pointer block, size_type count) noexcept {
        typename Allocation::on_device const here(device_);
        resource_.deallocate(stream_, ::thrust::raw_pointer_cast(block), count * sizeof(T), alignment);
    }

    [[nodiscard]] stream_type stream() const noexcept { return stream_; }
    [[nodiscard]] typename Allocation::reference get_upstream_resource() const noexcept { return Allocation::refer(resource_); }
    [[nodiscard]] resource_type const &kept() const noexcept { return resource_; }
    [[nodiscard]] typename Allocation::device device() const noexcept { return device_; }

    /// Whether one frees what the other allocated: on which stream, does not matter.
    template <class Other>
    [[nodiscard]] bool operator==(basic_thrust_allocator<Other, Allocation> const &other) const {
        return resource_ == other.kept();
    }
    template <class Other>
    [[nodiscard]] bool operator!=(basic_thrust_allocator<Other, Allocation> const &other) const {
        return !(*this == other);
    }

private:
    static constexpr std::size_t alignment = alignof(T) > 256 ? alignof(T) : 256;

    stream_type stream_{};
    // References of CCCL are made of what may be changed.
    mutable resource_type resource_;
    typename Allocation::device device_{};
};

namespace policy {

// The constructor with an allocator alone is the one that Thrust says may run on either side.
// The names by which Thrust's own policies with an allocator are made, the same in CUDA 12.4 to 13.5.
template <class Allocation>
using waiting = ::thrust::detail::execute_with_allocator<basic_thrust_allocator<char, Allocation>,
                                                         ::thrust::cuda_cub::execute_on_stream_base>;
template <class Allocation>
using not_waiting = ::thrust::detail::execute_with_allocator<basic_thrust_allocator<char, Allocation>,
                                                             ::thrust::cuda_cub::execute_on_stream_nosync_base>;

/// A policy of Thrust's on a stream, with an allocator on it.
template <class Policy, class Allocation>
Policy on(typename Allocation::stream stream, typename Allocation::resource resource) {
    return Policy(basic_thrust_allocator<char, Allocation>(stream, std::move(resource))).on(stream.value());
}

} // namespace policy

/// Algorithms run on a stream, take what they need for the time being from a resource, and wait where Thrust waits.
template <class Allocation>
class basic_exec_policy : public policy::waiting<Allocation> {
public:
    explicit basic_exec_policy(typename Allocation::stream stream = {},
                               typename Allocation::resource resource = Allocation::current())
        : policy::waiting<Allocation>(policy::on<policy::waiting<Allocation>, Allocation>(stream, std::move(resource))) {}
};

/// As `basic_exec_policy`, and algorithms that answer nothing do not wait.
template <class Allocation>
class basic_exec_policy_nosync : public policy::not_waiting<Allocation> {
public:
    explicit basic_exec_policy_nosync(typename Allocation::stream stream = {},
                                      typename Allocation::resource resource = Allocation::current())
        : policy::not_waiting<Allocation>(policy::on<policy::not_waiting<Allocation>, Allocation>(stream, std::move(resource))) {}
};

template <class T>
using thrust_allocator = basic_thrust_allocator<T, allocation_by_handle<default_errors>>;

template <class T>
using device_vector = ::thrust::device_vector<T, thrust_allocator<T>>;

using exec_policy = basic_exec_policy<allocation_by_handle<default_errors>>;
using exec_policy_nosync = basic_exec_policy_nosync<allocation_by_handle<default_errors>>;

ALLUVION_END

#endif
