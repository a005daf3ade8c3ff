// What of a limit is set aside?
#ifndef ALLUVION_CPP_RESERVATION_HPP
#define ALLUVION_CPP_RESERVATION_HPP

#include "resource.hpp"

#include <cstddef>
#include <utility>

ALLUVION_BEGIN

/// Bytes of the outermost limit of a stack that are set aside, until it goes: for memory that somebody else takes, such as a workspace of a
/// library, so that the limit counts it. It is no memory. It moves, and is empty then.
class reservation {
public:
    /// Throws `out_of_memory` if the limit has not as much left, and `error` for a stack without a limit.
    reservation(resource const &stack, std::size_t bytes) {
        ::alluvion::detail::check(alv_reserve(stack.native_handle(), bytes, &handle_));
    }

    reservation(reservation &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    reservation &operator=(reservation &&other) noexcept {
        reservation taken(std::move(other));
        std::swap(handle_, taken.handle_);
        return *this;
    }
    reservation(reservation const &) = delete;
    reservation &operator=(reservation const &) = delete;
    ~reservation() { alv_reservation_release(handle_); }

    /// The bytes, in whole units of 256; 0 for an empty one.
    [[nodiscard]] std::size_t bytes() const noexcept { return alv_reservation_bytes(handle_); }

    [[nodiscard]] alv_reservation *native_handle() const noexcept { return handle_; }

private:
    alv_reservation *handle_ = nullptr;
};

ALLUVION_END

#endif
