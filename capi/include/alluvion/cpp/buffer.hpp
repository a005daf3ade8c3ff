// Who frees a block?
#ifndef ALLUVION_CPP_BUFFER_HPP
#define ALLUVION_CPP_BUFFER_HPP

#include "resource.hpp"

#include <cstddef>
#include <utility>

ALLUVION_BEGIN

/// Bytes of a device, which go back on a stream when it goes. It moves, and is empty then.
class buffer {
public:
    buffer() noexcept : resource_(resource::adopt(nullptr)) {}

    buffer(std::size_t bytes, stream_view stream, resource from = current_resource(),
           std::size_t align = resource::default_alignment)
        : resource_(std::move(from)), data_(resource_.allocate(stream, bytes, align)), bytes_(bytes), align_(align),
          stream_(stream) {}

    /// Takes over a block that `from` gave, with the bytes and the alignment of its request.
    [[nodiscard]] static buffer adopt(void *block, std::size_t bytes, stream_view stream, resource from,
                                      std::size_t align = resource::default_alignment) noexcept {
        buffer made;
        made.resource_ = std::move(from);
        made.data_ = block;
        made.bytes_ = bytes;
        made.align_ = align;
        made.stream_ = stream;
        return made;
    }

    buffer(buffer &&other) noexcept
        : resource_(std::move(other.resource_)), data_(std::exchange(other.data_, nullptr)),
          bytes_(std::exchange(other.bytes_, 0)), align_(other.align_), stream_(other.stream_) {}
    buffer &operator=(buffer &&other) noexcept {
        buffer taken(std::move(other));
        swap(taken);
        return *this;
    }
    buffer(buffer const &) = delete;
    buffer &operator=(buffer const &) = delete;
    ~buffer() { resource_.deallocate(stream_, data_, bytes_, align_); }

    void swap(buffer &other) noexcept {
        std::swap(resource_, other.resource_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        std::swap(align_, other.align_);
        std::swap(stream_, other.stream_);
    }

    [[nodiscard]] void *data() noexcept { return data_; }
    [[nodiscard]] void const *data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
    [[nodiscard]] bool is_empty() const noexcept { return bytes_ == 0; }
    [[nodiscard]] std::size_t alignment() const noexcept { return align_; }
    [[nodiscard]] stream_view stream() const noexcept { return stream_; }

    /// The stream on which the block goes back. The caller has ordered the uses before.
    void set_stream(stream_view stream) noexcept { stream_ = stream; }

    [[nodiscard]] resource const &memory_resource() const noexcept { return resource_; }

    /// Gives the block away, which goes back with these bytes and this alignment.
    [[nodiscard]] void *release() noexcept {
        bytes_ = 0;
        return std::exchange(data_, nullptr);
    }

private:
    resource resource_;
    void *data_ = nullptr;
    std::size_t bytes_ = 0;
    std::size_t align_ = resource::default_alignment;
    stream_view stream_;
};

ALLUVION_END

#endif
