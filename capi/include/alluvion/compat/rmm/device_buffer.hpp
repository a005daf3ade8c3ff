// Who frees bytes of a device?
#ifndef ALLUVION_COMPAT_RMM_DEVICE_BUFFER_HPP
#define ALLUVION_COMPAT_RMM_DEVICE_BUFFER_HPP

#include "aligned.hpp"
#include "cuda_device.hpp"
#include "cuda_stream.hpp"
#include "cuda_stream_view.hpp"
#include "mr/per_device_resource.hpp"
#include "resource_ref.hpp"

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

/// A resource, where an argument could be a stream as well: CCCL 3.5 does not compile the question whether an owner of a stream, which
/// cannot be copied, is a resource.
struct not_a_stream {
    any_resource resource;

    not_a_stream() : resource(current_resource()) {}

    template <class Other, std::enable_if_t<!std::is_convertible_v<Other, cuda_stream_view>, int> = 0,
              std::enable_if_t<std::is_convertible_v<Other, any_resource>, int> = 0>
    not_a_stream(Other &&other) : resource(std::forward<Other>(other)) {}
};

/// Queues a copy on a stream of a device, between any two sides.
inline void copy(cuda_device_id device, void *to, void const *from, std::size_t bytes, cuda_stream_view stream) {
    if (bytes != 0) {
        resource::current(device.value()).copy(to, from, bytes, stream);
    }
}

/// Queues a fill on a stream of a device.
inline void fill(cuda_device_id device, void *to, unsigned char value, std::size_t bytes, cuda_stream_view stream) {
    if (bytes != 0) {
        resource::current(device.value()).fill(to, value, bytes, stream);
    }
}

/// Makes the work that is submitted to a stream of a device from now on come after that on another. Where a capture forbids that, the
/// graph runs at a time of its own, and nothing is ordered.
inline void follow(cuda_device_id device, cuda_stream_view stream, cuda_stream_view other) noexcept {
    try {
        resource::current(device.value()).wait_for(stream, other);
    } catch (...) {
    }
}

/// Waits for the work on a stream of a device.
inline void synchronize(cuda_device_id device, cuda_stream_view stream) {
    resource::current(device.value()).synchronize(stream);
}

} // namespace detail

/// Bytes of a device, which are not initialised, grow on demand and go back on a stream.
///
/// It keeps its resource. It moves, and one that was moved from is empty, on the same resource: it may be used again. Frees happen on its
/// own stream: who used it on another orders that before, as in RMM. Where it gets another stream of its own, that waits for the one before.
class device_buffer {
public:
    /// Empty, on the default stream and the current resource.
    device_buffer() : device_buffer(0, cuda_stream_view{}) {}

    explicit device_buffer(std::size_t size, cuda_stream_view stream, detail::not_a_stream mr = {})
        : device_buffer(size, CUDA_ALLOCATION_ALIGNMENT, stream, std::move(mr.resource)) {}

    explicit device_buffer(std::size_t size, std::size_t alignment, cuda_stream_view stream,
                           detail::any_resource mr = detail::current_resource())
        : alignment_(alignment), stream_(stream), mr_(detail::here(std::move(mr))) {
        if (!is_supported_alignment(alignment)) {
            throw invalid_argument("the alignment of a buffer is not a power of two");
        }
        allocate(size);
        size_ = size;
    }

    /// A copy of `size` bytes from anywhere. The source stays as it is until the stream is done with it.
    device_buffer(void const *source, std::size_t size, cuda_stream_view stream, detail::not_a_stream mr = {})
        : device_buffer(source, size, CUDA_ALLOCATION_ALIGNMENT, stream, std::move(mr.resource)) {}

    explicit device_buffer(void const *source, std::size_t size, std::size_t alignment, cuda_stream_view stream,
                           detail::any_resource mr = detail::current_resource())
        : device_buffer(size, alignment, stream, std::move(mr)) {
        if (source == nullptr && size != 0) {
            throw logic_error("a copy from a null pointer");
        }
        detail::copy(device_, data_, source, size, stream);
    }

    /// A copy of what is in another buffer, and not of its spare room.
    device_buffer(device_buffer const &other, cuda_stream_view stream,
                  detail::any_resource mr = detail::current_resource())
        : device_buffer(other.data_, other.size_, other.alignment_, stream, std::move(mr)) {}

    device_buffer(device_buffer const &) = delete;
    device_buffer &operator=(device_buffer const &) = delete;

    device_buffer(device_buffer &&other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), alignment_(other.alignment_),
          capacity_(std::exchange(other.capacity_, 0)), stream_(std::exchange(other.stream_, cuda_stream_view{})),
          mr_(share(other.mr_)), device_(other.device_) {}

    device_buffer &operator=(device_buffer &&other) noexcept {
        if (this != &other) {
            deallocate();
            data_ = std::exchange(other.data_, nullptr);
            size_ = std::exchange(other.size_, 0);
            alignment_ = other.alignment_;
            capacity_ = std::exchange(other.capacity_, 0);
            stream_ = std::exchange(other.stream_, cuda_stream_view{});
            mr_ = share(other.mr_);
            device_ = other.device_;
        }
        return *this;
    }

    ~device_buffer() noexcept { deallocate(); }

    /// Makes room for `capacity` bytes at least, on `stream`, which becomes its own.
    void reserve(std::size_t capacity, cuda_stream_view stream) {
        set_stream(stream);
        if (capacity > capacity_) {
            move_to(capacity, size_);
        }
    }

    /// Makes it `size` bytes long, on `stream`, which becomes its own. New bytes are not initialised. A shorter one keeps its room.
    void resize(std::size_t size, cuda_stream_view stream) {
        set_stream(stream);
        if (size > capacity_) {
            move_to(size, size_);
        }
        size_ = size;
    }

    /// Gives spare room back, on `stream`, which becomes its own.
    void shrink_to_fit(cuda_stream_view stream) {
        set_stream(stream);
        if (size_ != capacity_) {
            move_to(size_, size_);
        }
    }

    [[nodiscard]] void const *data() const noexcept { return data_; }
    [[nodiscard]] void *data() noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::int64_t ssize() const noexcept {
        assert(size_ <= static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max()));
        return static_cast<std::int64_t>(size_);
    }
    [[nodiscard]] bool is_empty() const noexcept { return size_ == 0; }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
    [[nodiscard]] std::size_t alignment() const noexcept { return alignment_; }
    [[nodiscard]] cuda_stream_view stream() const noexcept { return stream_; }
    /// The stream on which its bytes go back, and which waits for the work that the one before has now.
    void set_stream(cuda_stream_view stream) noexcept {
        if (data_ != nullptr && stream != stream_) {
            detail::follow(device_, stream, stream_);
        }
        stream_ = stream;
    }

    /// The resource of its bytes.
    [[nodiscard]] device_async_resource_ref memory_resource() {
        require();
        return device_async_resource_ref{*mr_};
    }
#if ALLUVION_COMPAT_RMM_BY_POINTER
    [[nodiscard]] device_async_resource_ref memory_resource() const {
        require();
        return *mr_;
    }
#endif

private:
    template <class>
    friend class device_uvector;

    void require() const {
        if (!mr_) {
            throw logic_error("the buffer was moved from, and its resource could not be copied");
        }
    }

    /// A copy for another buffer. A resource of the program's that throws where it is copied is moved.
    static std::optional<detail::any_resource> share(std::optional<detail::any_resource> &mr) noexcept {
        try {
            return mr;
        } catch (...) {
            return std::exchange(mr, std::nullopt);
        }
    }

    void allocate(std::size_t bytes) {
        if (bytes != 0) {
            cuda_set_device_raii const here(device_);
            data_ = mr_->allocate(stream_, bytes, alignment_);
        }
        capacity_ = bytes;
    }

    void deallocate() noexcept {
        if (data_ != nullptr) {
            // A device that cannot be made current has no memory any more.
            std::optional<cuda_set_device_raii> here;
            try {
                here.emplace(device_);
            } catch (...) {
            }
            mr_->deallocate(stream_, data_, capacity_, alignment_);
        }
        data_ = nullptr;
        capacity_ = 0;
    }

    /// Other bytes of that capacity, with the first `kept` bytes of these. If that fails, everything is as it was.
    void move_to(std::size_t capacity, std::size_t kept) {
        require();
        device_buffer other(std::optional<detail::any_resource>(mr_), alignment_, stream_, device_);
        other.allocate(capacity);
        detail::copy(device_, other.data_, data_, kept, stream_);
        std::swap(data_, other.data_);
        std::swap(capacity_, other.capacity_);
    }

    device_buffer(std::optional<detail::any_resource> mr, std::size_t alignment, cuda_stream_view stream,
                  cuda_device_id device)
        : alignment_(alignment), stream_(stream), mr_(std::move(mr)), device_(device) {}

    /// What is in it, in another buffer; this one is empty, and keeps its stream.
    device_buffer take() noexcept {
        device_buffer taken(std::move(*this));
        stream_ = taken.stream_;
        return taken;
    }

    void *data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t alignment_ = CUDA_ALLOCATION_ALIGNMENT;
    std::size_t capacity_ = 0;
    cuda_stream_view stream_;
    std::optional<detail::any_resource> mr_;
    cuda_device_id device_;
};

ALLUVION_COMPAT_RMM_END

#endif
