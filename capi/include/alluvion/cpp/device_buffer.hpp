// What are bytes that grow?
#ifndef ALLUVION_CPP_DEVICE_BUFFER_HPP
#define ALLUVION_CPP_DEVICE_BUFFER_HPP

#include "buffer.hpp"

#include <cstddef>
#include <stdexcept>
#include <utility>

ALLUVION_BEGIN

/// Bytes of a device, of which the first `size()` are used, with the names and the order of arguments of RMM's type.
///
/// It owns a count of its resource. New bytes have no value. A change that throws changes nothing. What was moved from is empty and
/// has no resource: it can be assigned, and to grow it is a `std::logic_error`.
class device_buffer {
public:
    /// No bytes, of the current resource.
    device_buffer() : device_buffer(0, stream_view{}) {}

    explicit device_buffer(std::size_t size, stream_view stream, resource mr = current_resource())
        : device_buffer(size, resource::default_alignment, stream, std::move(mr)) {}

    explicit device_buffer(std::size_t size, std::size_t alignment, stream_view stream, resource mr = current_resource())
        : storage_(size, stream, std::move(mr), alignment), size_(size) {}

    /// A copy of bytes of the host or of a device, which stay as they are until the copy has run.
    device_buffer(void const *source, std::size_t size, stream_view stream, resource mr = current_resource())
        : device_buffer(source, size, resource::default_alignment, stream, std::move(mr)) {}

    device_buffer(void const *source, std::size_t size, std::size_t alignment, stream_view stream,
                  resource mr = current_resource())
        : device_buffer(size, alignment, stream, std::move(mr)) {
        if (source == nullptr && size > 0) {
            throw std::invalid_argument("device_buffer: a copy of bytes at null");
        }
        memory_resource().copy(data(), source, size, stream);
    }

    /// A copy of the bytes that are used. `stream` comes after the work that wrote them.
    device_buffer(device_buffer const &other, stream_view stream, resource mr = current_resource())
        : device_buffer(other.data(), other.size(), other.alignment(), stream, std::move(mr)) {}

    device_buffer(device_buffer &&other) noexcept
        : storage_(std::move(other.storage_)), size_(std::exchange(other.size_, 0)) {}
    device_buffer &operator=(device_buffer &&other) noexcept {
        storage_ = std::move(other.storage_);
        size_ = std::exchange(other.size_, 0);
        return *this;
    }
    device_buffer(device_buffer const &) = delete;
    device_buffer &operator=(device_buffer const &) = delete;
    ~device_buffer() = default;

    [[nodiscard]] void *data() noexcept { return storage_.data(); }
    [[nodiscard]] void const *data() const noexcept { return storage_.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::ptrdiff_t ssize() const noexcept { return static_cast<std::ptrdiff_t>(size_); }
    [[nodiscard]] bool is_empty() const noexcept { return size_ == 0; }
    [[nodiscard]] std::size_t capacity() const noexcept { return storage_.size(); }
    [[nodiscard]] std::size_t alignment() const noexcept { return storage_.alignment(); }

    /// The stream on which the bytes go back.
    [[nodiscard]] stream_view stream() const noexcept { return storage_.stream(); }
    void set_stream(stream_view stream) noexcept { storage_.set_stream(stream); }

    [[nodiscard]] resource const &memory_resource() const noexcept { return storage_.memory_resource(); }

    /// Makes room for so many bytes, on a stream that comes after the work on the old ones; never less than there is.
    void reserve(std::size_t capacity, stream_view stream) {
        if (capacity > this->capacity()) {
            move_to(capacity, stream);
        } else {
            set_stream(stream);
        }
    }

    /// Uses so many bytes. Room that is not used any more stays.
    void resize(std::size_t size, stream_view stream) {
        reserve(size, stream);
        size_ = size;
    }

    /// Gives room back that is not used.
    void shrink_to_fit(stream_view stream) {
        if (size_ < capacity()) {
            move_to(size_, stream);
        } else {
            set_stream(stream);
        }
    }

    /// Gives the bytes away, and is one that can be used again.
    [[nodiscard]] device_buffer release() noexcept {
        // A handle of its own first: the bytes take theirs with them.
        auto empty = buffer::adopt(nullptr, 0, stream(), memory_resource(), alignment());
        device_buffer taken(std::move(*this));
        storage_ = std::move(empty);
        return taken;
    }

private:
    void move_to(std::size_t capacity, stream_view stream) {
        buffer moved(capacity, stream, memory_resource(), alignment());
        memory_resource().copy(moved.data(), data(), size_, stream);
        // The old block goes back behind the copy.
        set_stream(stream);
        storage_ = std::move(moved);
    }

    buffer storage_;
    std::size_t size_ = 0;
};

ALLUVION_END

#endif
