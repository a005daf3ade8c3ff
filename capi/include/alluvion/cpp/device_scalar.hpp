// What is one value in a device?
#ifndef ALLUVION_CPP_DEVICE_SCALAR_HPP
#define ALLUVION_CPP_DEVICE_SCALAR_HPP

#include "device_uvector.hpp"

#include <cstddef>
#include <type_traits>
#include <utility>

ALLUVION_BEGIN

/// One value in a device, with the names and the order of arguments of RMM's type.
template <class T>
class device_scalar {
public:
    using value_type = T;
    using reference = T &;
    using const_reference = T const &;
    using pointer = T *;
    using const_pointer = T const *;
    using size_type = std::size_t;

    device_scalar() = delete;

    /// Without a value.
    explicit device_scalar(stream_view stream, resource mr = current_resource()) : storage_(1, stream, std::move(mr)) {}

    /// With a value, which stays as it is until its copy has run.
    explicit device_scalar(value_type const &initial, stream_view stream, resource mr = current_resource())
        : device_scalar(stream, std::move(mr)) {
        set_value_async(initial, stream);
    }
    /// The value would be gone before the copy has run: give it a name.
    device_scalar(value_type &&, stream_view) = delete;
    device_scalar(value_type &&, stream_view, resource) = delete;

    /// A copy. `stream` comes after the work that wrote the value.
    device_scalar(device_scalar const &other, stream_view stream, resource mr = current_resource())
        : storage_(other.storage_, stream, std::move(mr)) {}

    device_scalar(device_scalar &&) noexcept = default;
    device_scalar &operator=(device_scalar &&) noexcept = default;
    device_scalar(device_scalar const &) = delete;
    device_scalar &operator=(device_scalar const &) = delete;
    ~device_scalar() = default;

    /// Waits for the stream, and answers the value. Each call waits.
    [[nodiscard]] value_type value(stream_view stream) const { return storage_.front_element(stream); }

    /// Queues the copy of a value, which stays as it is until the copy has run.
    void set_value_async(value_type const &value, stream_view stream) { storage_.set_element_async(0, value, stream); }
    /// The value would be gone before the copy has run.
    void set_value_async(value_type &&, stream_view) = delete;

    void set_value_to_zero_async(stream_view stream) { storage_.set_element_to_zero_async(0, stream); }

    /// The address in the device.
    [[nodiscard]] pointer data() noexcept { return storage_.data(); }
    [[nodiscard]] const_pointer data() const noexcept { return storage_.data(); }
    [[nodiscard]] size_type size() const noexcept { return storage_.size(); }

    /// The stream on which the value goes back.
    [[nodiscard]] stream_view stream() const noexcept { return storage_.stream(); }
    void set_stream(stream_view stream) noexcept { storage_.set_stream(stream); }

    [[nodiscard]] resource const &memory_resource() const noexcept { return storage_.memory_resource(); }

private:
    device_uvector<T> storage_;
};

ALLUVION_END

#endif
