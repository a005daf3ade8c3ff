// Who frees an array of a device?
#ifndef ALLUVION_COMPAT_RMM_DEVICE_UVECTOR_HPP
#define ALLUVION_COMPAT_RMM_DEVICE_UVECTOR_HPP

#include "detail/exec_check_disable.hpp"
#include "device_buffer.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>

#if ALLUVION_COMPAT_RMM_CCCL
#include <cuda/std/iterator>
#include <cuda/std/span>
#endif

ALLUVION_COMPAT_RMM_BEGIN

/// An array of a device whose elements are not initialised.
///
/// As RMM's, and safer where that costs nothing: sizes do not overflow, `set_element` throws if the copy failed, and a vector can
/// be used again after `release` and after a move. A resource is asked for the alignment of an element; ours give 256 for less.
template <class T>
class device_uvector {
    static_assert(std::is_trivially_copyable_v<T>, "the elements are copied as bytes: they must be trivially copyable");

public:
    using value_type = T;
    using size_type = std::size_t;
    using reference = value_type &;
    using const_reference = value_type const &;
    using pointer = value_type *;
    using const_pointer = value_type const *;
    using iterator = pointer;
    using const_iterator = const_pointer;
#if ALLUVION_COMPAT_RMM_CCCL
    // Those of the standard library are not for code of a device.
    using reverse_iterator = ::cuda::std::reverse_iterator<iterator>;
    using const_reverse_iterator = ::cuda::std::reverse_iterator<const_iterator>;
#else
    using reverse_iterator = std::reverse_iterator<iterator>;
    using const_reverse_iterator = std::reverse_iterator<const_iterator>;
#endif

    ALLUVION_COMPAT_RMM_EXEC_CHECK_DISABLE
    ~device_uvector() = default;
    ALLUVION_COMPAT_RMM_EXEC_CHECK_DISABLE
    device_uvector(device_uvector &&) noexcept = default;
    ALLUVION_COMPAT_RMM_EXEC_CHECK_DISABLE
    device_uvector &operator=(device_uvector &&) noexcept = default;
    device_uvector(device_uvector const &) = delete;
    device_uvector &operator=(device_uvector const &) = delete;
    device_uvector() = delete;

    explicit device_uvector(size_type size, cuda_stream_view stream,
                            detail::any_resource mr = detail::current_resource())
        : storage_(bytes_of(size), alignof(T), stream, std::move(mr)) {}

    explicit device_uvector(device_uvector const &other, cuda_stream_view stream,
                            detail::any_resource mr = detail::current_resource())
        : storage_(other.storage_, stream, std::move(mr)) {}

    /// Where an element is.
    [[nodiscard]] pointer element_ptr(size_type index) noexcept {
        assert(index < size());
        return data() + index;
    }
    [[nodiscard]] const_pointer element_ptr(size_type index) const noexcept {
        assert(index < size());
        return data() + index;
    }

    /// Queues a write of an element. `value` stays as it is until the stream is done with it.
    void set_element_async(size_type index, value_type const &value, cuda_stream_view stream) {
        require(index);
        detail::copy(storage_.device_, data() + index, &value, sizeof(value), stream);
    }

    /// A temporary would be gone when it is copied.
    void set_element_async(size_type, value_type const &&, cuda_stream_view) = delete;

    /// Queues a write of zero bytes.
    void set_element_to_zero_async(size_type index, cuda_stream_view stream) {
        require(index);
        detail::fill(storage_.device_, data() + index, 0, sizeof(value_type), stream);
    }

    /// Writes an element, and waits.
    void set_element(size_type index, T const &value, cuda_stream_view stream) {
        set_element_async(index, value, stream);
        detail::synchronize(storage_.device_, stream);
    }

    /// An element, after the work on the stream.
    [[nodiscard]] value_type element(size_type index, cuda_stream_view stream) const {
        require(index);
        // Bytes: a type need not have a constructor without arguments.
        alignas(value_type) unsigned char bytes[sizeof(value_type)];
        detail::copy(storage_.device_, bytes, data() + index, sizeof(value_type), stream);
        detail::synchronize(storage_.device_, stream);
        return *reinterpret_cast<value_type const *>(bytes);
    }

    [[nodiscard]] value_type front_element(cuda_stream_view stream) const { return element(0, stream); }
    /// An `out_of_range` if there is none: the number before 0 is beyond every end.
    [[nodiscard]] value_type back_element(cuda_stream_view stream) const { return element(size() - 1, stream); }

    void reserve(size_type capacity, cuda_stream_view stream) { storage_.reserve(bytes_of(capacity), stream); }
    void resize(size_type size, cuda_stream_view stream) { storage_.resize(bytes_of(size), stream); }
    void shrink_to_fit(cuda_stream_view stream) { storage_.shrink_to_fit(stream); }

    /// Its bytes, in a buffer. The vector is empty then, and may be used again.
    device_buffer release() noexcept { return storage_.take(); }

    [[nodiscard]] size_type capacity() const noexcept { return storage_.capacity() / sizeof(value_type); }
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

    [[nodiscard]] size_type size() const noexcept { return storage_.size() / sizeof(value_type); }
    [[nodiscard]] std::int64_t ssize() const noexcept { return static_cast<std::int64_t>(size()); }
    [[nodiscard]] bool is_empty() const noexcept { return size() == 0; }

#if ALLUVION_COMPAT_RMM_CCCL
    [[nodiscard]] operator ::cuda::std::span<T const>() const noexcept { return {data(), size()}; }
    [[nodiscard]] operator ::cuda::std::span<T>() noexcept { return {data(), size()}; }
#endif

    [[nodiscard]] device_async_resource_ref memory_resource() { return storage_.memory_resource(); }
#if ALLUVION_COMPAT_RMM_BY_POINTER
    [[nodiscard]] device_async_resource_ref memory_resource() const { return storage_.memory_resource(); }
#endif
    [[nodiscard]] cuda_stream_view stream() const noexcept { return storage_.stream(); }
    void set_stream(cuda_stream_view stream) noexcept { storage_.set_stream(stream); }

private:
    static std::size_t bytes_of(size_type elements) {
        if (elements > std::numeric_limits<size_type>::max() / sizeof(value_type)) {
            throw invalid_argument("so many elements have more bytes than a size can say");
        }
        return elements * sizeof(value_type);
    }

    void require(size_type index) const {
        if (index >= size()) {
            throw out_of_range("the index is not within the vector");
        }
    }

    device_buffer storage_;
};

ALLUVION_COMPAT_RMM_END

#endif
