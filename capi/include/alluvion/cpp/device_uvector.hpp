// What is a vector whose elements are in a device?
#ifndef ALLUVION_CPP_DEVICE_UVECTOR_HPP
#define ALLUVION_CPP_DEVICE_UVECTOR_HPP

#include "device_buffer.hpp"

#include <cstddef>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#if ALLUVION_CCCL
#include <cuda/std/span>
#endif

ALLUVION_BEGIN

/// A vector of elements in a device, which have no value until work gives them one, with the names and the order of arguments of
/// RMM's type.
///
/// Its pointers and iterators are addresses of the device. A change that throws changes nothing, and a mistake of the caller is one
/// of std's exceptions for those: `std::out_of_range` for an element that is not there.
template <class T>
class device_uvector {
    static_assert(std::is_trivially_copyable_v<T>, "elements of a device are copied as bytes: the type must be trivially copyable");

public:
    using value_type = T;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using reference = T &;
    using const_reference = T const &;
    using pointer = T *;
    using const_pointer = T const *;
    using iterator = pointer;
    using const_iterator = const_pointer;
    using reverse_iterator = std::reverse_iterator<iterator>;
    using const_reverse_iterator = std::reverse_iterator<const_iterator>;

    device_uvector() = delete;

    explicit device_uvector(size_type size, stream_view stream, resource mr = current_resource())
        : storage_(bytes(size), alignment, stream, std::move(mr)) {}

    /// A copy. `stream` comes after the work that wrote the elements.
    explicit device_uvector(device_uvector const &other, stream_view stream, resource mr = current_resource())
        : storage_(other.storage_, stream, std::move(mr)) {}

    device_uvector(device_uvector &&) noexcept = default;
    device_uvector &operator=(device_uvector &&) noexcept = default;
    device_uvector(device_uvector const &) = delete;
    device_uvector &operator=(device_uvector const &) = delete;
    ~device_uvector() = default;

    /// The address of an element in the device.
    [[nodiscard]] pointer element_ptr(size_type index) noexcept { return data() + index; }
    [[nodiscard]] const_pointer element_ptr(size_type index) const noexcept { return data() + index; }

    /// Queues the copy of a value, which stays as it is until the copy has run. To set many, write them in the device.
    void set_element_async(size_type index, value_type const &value, stream_view stream) {
        require(index);
        memory_resource().copy(element_ptr(index), &value, sizeof(T), stream);
    }
    /// The value would be gone before the copy has run.
    void set_element_async(size_type, value_type const &&, stream_view) = delete;

    void set_element_to_zero_async(size_type index, stream_view stream) {
        require(index);
        memory_resource().fill(element_ptr(index), 0, sizeof(T), stream);
    }

    /// Copies a value, and waits for the stream.
    void set_element(size_type index, value_type const &value, stream_view stream) {
        set_element_async(index, value, stream);
        memory_resource().synchronize(stream);
    }

    /// Waits for the stream, and answers an element. Each call waits.
    [[nodiscard]] value_type element(size_type index, stream_view stream) const {
        require(index);
        // Room for a value that need not have a constructor.
        union room {
            room() {}
            unsigned char nothing;
            T value;
        } copy;
        memory_resource().copy(&copy, element_ptr(index), sizeof(T), stream);
        memory_resource().synchronize(stream);
        return copy.value;
    }
    [[nodiscard]] value_type front_element(stream_view stream) const { return element(0, stream); }
    [[nodiscard]] value_type back_element(stream_view stream) const {
        // Of no elements, a number that no element has.
        return element(size() - 1, stream);
    }

    void reserve(size_type capacity, stream_view stream) { storage_.reserve(bytes(capacity), stream); }
    void resize(size_type size, stream_view stream) { storage_.resize(bytes(size), stream); }
    void shrink_to_fit(stream_view stream) { storage_.shrink_to_fit(stream); }

    /// Gives the elements away as bytes, and is an empty vector that can be used again.
    [[nodiscard]] device_buffer release() noexcept { return storage_.release(); }

    [[nodiscard]] size_type capacity() const noexcept { return storage_.capacity() / sizeof(T); }
    [[nodiscard]] size_type size() const noexcept { return storage_.size() / sizeof(T); }
    [[nodiscard]] difference_type ssize() const noexcept { return static_cast<difference_type>(size()); }
    [[nodiscard]] size_type size_bytes() const noexcept { return storage_.size(); }
    [[nodiscard]] bool is_empty() const noexcept { return size() == 0; }

    [[nodiscard]] pointer data() noexcept { return static_cast<pointer>(storage_.data()); }
    [[nodiscard]] const_pointer data() const noexcept { return static_cast<const_pointer>(storage_.data()); }

    [[nodiscard]] iterator begin() noexcept { return data(); }
    [[nodiscard]] const_iterator begin() const noexcept { return data(); }
    [[nodiscard]] const_iterator cbegin() const noexcept { return data(); }
    [[nodiscard]] iterator end() noexcept { return data() + size(); }
    [[nodiscard]] const_iterator end() const noexcept { return data() + size(); }
    [[nodiscard]] const_iterator cend() const noexcept { return data() + size(); }
    [[nodiscard]] reverse_iterator rbegin() noexcept { return reverse_iterator(end()); }
    [[nodiscard]] const_reverse_iterator rbegin() const noexcept { return const_reverse_iterator(end()); }
    [[nodiscard]] const_reverse_iterator crbegin() const noexcept { return const_reverse_iterator(end()); }
    [[nodiscard]] reverse_iterator rend() noexcept { return reverse_iterator(begin()); }
    [[nodiscard]] const_reverse_iterator rend() const noexcept { return const_reverse_iterator(begin()); }
    [[nodiscard]] const_reverse_iterator crend() const noexcept { return const_reverse_iterator(begin()); }

#if ALLUVION_CCCL
    operator ::cuda::std::span<T>() noexcept { return ::cuda::std::span<T>(data(), size()); }
    operator ::cuda::std::span<T const>() const noexcept { return ::cuda::std::span<T const>(data(), size()); }
#endif
    // `std::span` of C++20 takes it as it is: a contiguous range.

    /// The stream on which the elements go back.
    [[nodiscard]] stream_view stream() const noexcept { return storage_.stream(); }
    void set_stream(stream_view stream) noexcept { storage_.set_stream(stream); }

    [[nodiscard]] resource const &memory_resource() const noexcept { return storage_.memory_resource(); }

private:
    static constexpr std::size_t alignment =
        alignof(T) > resource::default_alignment ? alignof(T) : resource::default_alignment;

    static size_type bytes(size_type elements) {
        if (elements > std::numeric_limits<size_type>::max() / sizeof(T)) {
            auto const message = "size overflow: " + std::to_string(elements) + " elements of " + std::to_string(sizeof(T)) +
                                 " bytes are more than an allocation can hold";
            ::alluvion::detail::raise<default_errors>(ALV_SIZE_OVERFLOW, message.c_str());
        }
        return elements * sizeof(T);
    }

    void require(size_type index) const {
        if (index >= size()) {
            throw std::out_of_range("device_uvector: no element " + std::to_string(index) + ", there are " +
                                    std::to_string(size()));
        }
    }

    device_buffer storage_;
};

ALLUVION_END

#endif
