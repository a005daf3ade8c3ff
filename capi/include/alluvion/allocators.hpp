// How does an allocator of elements ask a resource?
#ifndef ALLUVION_ALLOCATORS_HPP
#define ALLUVION_ALLOCATORS_HPP

#include "../alluvion.hpp"

#include <cstddef>
#include <limits>
#include <memory>
#include <utility>

ALLUVION_BEGIN

/// What allocators are made of: the resource that they keep, the stream that they are given, what they answer for their resource,
/// and what is around their calls.
template <class Errors>
struct allocation_by_handle {
    using resource = basic_resource<Errors>;
    using stream = stream_view;
    using reference = resource const &;
    /// A handle knows its device: nothing has to be made current.
    struct device {};
    struct on_device {
        explicit on_device(device) noexcept {}
        ~on_device() {}
    };

    [[nodiscard]] static resource current() { return resource::current(); }
    [[nodiscard]] static reference refer(resource &kept) noexcept { return kept; }
    [[noreturn]] static void too_many() {
        ::alluvion::detail::raise<Errors>(ALV_SIZE_OVERFLOW, "size overflow: so many elements have more bytes than a size can say");
    }

    /// The bytes of elements, or an exception.
    [[nodiscard]] static std::size_t bytes(std::size_t count, std::size_t size) {
        if (count > std::numeric_limits<std::size_t>::max() / size) {
            too_many();
        }
        return count * size;
    }
};

/// Elements of a device, on a stream that each call names.
template <class T, class Allocation>
class basic_polymorphic_allocator {
public:
    using value_type = T;

    /// Of the resource that is current when it is made.
    basic_polymorphic_allocator() : resource_(Allocation::current()) {}

    basic_polymorphic_allocator(typename Allocation::resource upstream) : resource_(std::move(upstream)) {}

    /// Of what a reference refers to, where that is another type.
    template <class Reference, std::enable_if_t<std::is_same_v<Reference, typename Allocation::reference> &&
                                                    !std::is_same_v<Reference, typename Allocation::resource>, int> = 0>
    basic_polymorphic_allocator(Reference const &upstream) : resource_(upstream) {}

    template <class Other>
    basic_polymorphic_allocator(basic_polymorphic_allocator<Other, Allocation> const &other) noexcept : resource_(other.kept()) {}

    [[nodiscard]] value_type *allocate(std::size_t count, typename Allocation::stream stream) {
        return static_cast<value_type *>(resource_.allocate(stream, Allocation::bytes(count, sizeof(T)), alignment));
    }

    void deallocate(value_type *block, std::size_t count, typename Allocation::stream stream) noexcept {
        resource_.deallocate(stream, block, count * sizeof(T), alignment);
    }

    [[nodiscard]] typename Allocation::reference get_upstream_resource() const noexcept { return Allocation::refer(resource_); }

    [[nodiscard]] typename Allocation::resource const &kept() const noexcept { return resource_; }

private:
    static constexpr std::size_t alignment = alignof(T) > 256 ? alignof(T) : 256;

    // References of CCCL are made of what may be changed.
    mutable typename Allocation::resource resource_;
};

template <class First, class Second, class Allocation>
bool operator==(basic_polymorphic_allocator<First, Allocation> const &first,
                basic_polymorphic_allocator<Second, Allocation> const &second) {
    return first.kept() == second.kept();
}
template <class First, class Second, class Allocation>
bool operator!=(basic_polymorphic_allocator<First, Allocation> const &first,
                basic_polymorphic_allocator<Second, Allocation> const &second) {
    return !(first == second);
}

/// An allocator that is given a stream by each call, as one of the standard library, on one stream.
template <class Allocator, class Stream = stream_view>
class basic_stream_allocator_adaptor {
public:
    using value_type = typename std::allocator_traits<Allocator>::value_type;

    basic_stream_allocator_adaptor() = delete;
    basic_stream_allocator_adaptor(Allocator const &allocator, Stream stream) : allocator_(allocator), stream_(stream) {}

    template <class Other>
    basic_stream_allocator_adaptor(basic_stream_allocator_adaptor<Other, Stream> const &other)
        : basic_stream_allocator_adaptor(other.underlying_allocator(), other.stream()) {}

    template <class Other>
    struct rebind {
        using other =
            basic_stream_allocator_adaptor<typename std::allocator_traits<Allocator>::template rebind_alloc<Other>, Stream>;
    };

    [[nodiscard]] value_type *allocate(std::size_t count) { return allocator_.allocate(count, stream_); }
    void deallocate(value_type *block, std::size_t count) noexcept { allocator_.deallocate(block, count, stream_); }

    [[nodiscard]] Stream stream() const noexcept { return stream_; }
    [[nodiscard]] Allocator underlying_allocator() const noexcept { return allocator_; }

private:
    Allocator allocator_;
    Stream stream_;
};

template <class First, class Second, class Stream>
bool operator==(basic_stream_allocator_adaptor<First, Stream> const &first,
                basic_stream_allocator_adaptor<Second, Stream> const &second) {
    return first.underlying_allocator() == second.underlying_allocator();
}
template <class First, class Second, class Stream>
bool operator!=(basic_stream_allocator_adaptor<First, Stream> const &first,
                basic_stream_allocator_adaptor<Second, Stream> const &second) {
    return !(first == second);
}

template <class T>
using polymorphic_allocator = basic_polymorphic_allocator<T, allocation_by_handle<default_errors>>;

template <class Allocator>
using stream_allocator_adaptor = basic_stream_allocator_adaptor<Allocator>;

ALLUVION_END

#endif
