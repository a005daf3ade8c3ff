// Who frees one value of a device?
#ifndef ALLUVION_COMPAT_RMM_DEVICE_SCALAR_HPP
#define ALLUVION_COMPAT_RMM_DEVICE_SCALAR_HPP

#include "device_uvector.hpp"

#include <cstddef>
#include <type_traits>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN

/// One value in memory of a device.
template <class T>
class device_scalar {
public:
    static_assert(std::is_trivially_copyable_v<T>, "the value is copied as bytes: it must be trivially copyable");

    using value_type = typename device_uvector<T>::value_type;
    using size_type = typename device_uvector<T>::size_type;
    using reference = typename device_uvector<T>::reference;
    using const_reference = typename device_uvector<T>::const_reference;
    using pointer = typename device_uvector<T>::pointer;
    using const_pointer = typename device_uvector<T>::const_pointer;

    ALLUVION_COMPAT_RMM_EXEC_CHECK_DISABLE
    ~device_scalar() = default;
    ALLUVION_COMPAT_RMM_EXEC_CHECK_DISABLE
    device_scalar(device_scalar &&) noexcept = default;
    device_scalar &operator=(device_scalar &&) noexcept = default;
    device_scalar(device_scalar const &) = delete;
    device_scalar &operator=(device_scalar const &) = delete;
    device_scalar() = delete;

    /// A value that is not initialised.
    explicit device_scalar(cuda_stream_view stream, detail::not_a_stream mr = {})
        : storage_(1, stream, std::move(mr.resource)) {}

    /// Queues the write of the value, which stays as it is until the stream is done with it.
    explicit device_scalar(value_type const &initial, cuda_stream_view stream,
                           detail::any_resource mr = detail::current_resource())
        : storage_(1, stream, std::move(mr)) {
        set_value_async(initial, stream);
    }

    /// A temporary would be gone when it is copied.
    device_scalar(value_type const &&, cuda_stream_view stream,
                  detail::any_resource mr = detail::current_resource()) = delete;

    device_scalar(device_scalar const &other, cuda_stream_view stream,
                  detail::any_resource mr = detail::current_resource())
        : storage_(other.storage_, stream, std::move(mr)) {}

    /// The value, after the work on the stream.
    [[nodiscard]] value_type value(cuda_stream_view stream) const { return storage_.front_element(stream); }

    /// Queues a write. `value` stays as it is until the stream is done with it.
    void set_value_async(value_type const &value, cuda_stream_view stream) { storage_.set_element_async(0, value, stream); }
    /// A temporary would be gone when it is copied.
    void set_value_async(value_type const &&, cuda_stream_view) = delete;
    /// Writes a value, also a temporary, and waits. RMM's guides call it; RMM itself has had `set_value_async` alone since 21.06.
    void set_value(value_type const &value, cuda_stream_view stream) { storage_.set_element(0, value, stream); }
    /// Queues a write of zero bytes.
    void set_value_to_zero_async(cuda_stream_view stream) { storage_.set_element_to_zero_async(0, stream); }

    [[nodiscard]] pointer data() noexcept { return storage_.data(); }
    [[nodiscard]] const_pointer data() const noexcept { return storage_.data(); }
    [[nodiscard]] constexpr size_type size() const noexcept { return 1; }
    [[nodiscard]] cuda_stream_view stream() const noexcept { return storage_.stream(); }
    void set_stream(cuda_stream_view stream) noexcept { storage_.set_stream(stream); }
    [[nodiscard]] device_async_resource_ref memory_resource() { return storage_.memory_resource(); }
#if ALLUVION_COMPAT_RMM_BY_POINTER
    [[nodiscard]] device_async_resource_ref memory_resource() const { return storage_.memory_resource(); }
#endif

private:
    device_uvector<T> storage_;
};

ALLUVION_COMPAT_RMM_END

#endif
