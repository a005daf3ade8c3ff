// Which device?
#ifndef ALLUVION_COMPAT_RMM_CUDA_DEVICE_HPP
#define ALLUVION_COMPAT_RMM_CUDA_DEVICE_HPP

#include "aligned.hpp"
#include "detail/errors.hpp"

#include <cstddef>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN

struct cuda_device_id;
inline cuda_device_id get_current_cuda_device();

/// The number of a device.
struct cuda_device_id {
    using value_type = int;

    /// The device that is current for the calling thread.
    cuda_device_id() : id_(detail::current_device()) {}

    explicit constexpr cuda_device_id(value_type number) noexcept : id_(number) {}

    [[nodiscard]] constexpr value_type value() const noexcept { return id_; }

    friend constexpr bool operator==(cuda_device_id const &first, cuda_device_id const &second) noexcept {
        return first.id_ == second.id_;
    }
    friend constexpr bool operator!=(cuda_device_id const &first, cuda_device_id const &second) noexcept {
        return first.id_ != second.id_;
    }

private:
    value_type id_;
};

/// The device that is current for the calling thread.
inline cuda_device_id get_current_cuda_device() { return cuda_device_id(detail::current_device()); }

/// How many devices there are.
inline int get_num_cuda_devices() {
    int32_t count = 0;
    detail::check(alv_device_count(&count));
    return count;
}

/// The free and the total bytes of the current device.
inline std::pair<std::size_t, std::size_t> available_device_memory() {
    detail::ensure_context();
    alv_resource *source = nullptr;
    detail::check(alv_resource_from_recipe("cuda", detail::current_device(), &source));
    std::pair<std::size_t, std::size_t> bytes{0, 0};
    alv_status const status = alv_memory_info(source, &bytes.first, &bytes.second);
    alv_resource_release(source);
    detail::check(status);
    return bytes;
}

/// That part of the free bytes of the current device, in whole units of 256 bytes.
inline std::size_t percent_of_free_device_memory(int percent) {
    if (percent < 0) {
        throw logic_error("a part of the free memory cannot be negative");
    }
    // First the division: free bytes times a hundred may be more than a size can be.
    std::size_t const free = available_device_memory().first;
    std::size_t const parts = static_cast<std::size_t>(percent);
    return align_down(free / 100 * parts + free % 100 * parts / 100, CUDA_ALLOCATION_ALIGNMENT);
}

/// Makes a device current for the calling thread while it lives.
struct cuda_set_device_raii {
    explicit cuda_set_device_raii(cuda_device_id device) : before_(), changed_(before_ != device) {
        if (changed_) {
            detail::check(alv_set_current_device(device.value()));
        }
    }

    ~cuda_set_device_raii() noexcept {
        if (changed_) {
            alv_set_current_device(before_.value());
        }
    }

    cuda_set_device_raii(cuda_set_device_raii const &) = delete;
    cuda_set_device_raii &operator=(cuda_set_device_raii const &) = delete;

private:
    cuda_device_id before_;
    bool changed_;
};

ALLUVION_COMPAT_RMM_END

#endif
