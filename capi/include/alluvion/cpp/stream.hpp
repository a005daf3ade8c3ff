// Which device, and which stream?
#ifndef ALLUVION_CPP_STREAM_HPP
#define ALLUVION_CPP_STREAM_HPP

#include "error.hpp"

#include <atomic>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace alluvion {

/// The number of a device. A negative one means the device that is current for the calling thread.
class device_id {
public:
    using value_type = int;

    constexpr device_id() noexcept = default;
    constexpr device_id(int value) noexcept : value_(value) {}

    [[nodiscard]] constexpr int value() const noexcept { return value_; }

    /// The device that is current for the calling thread.
    [[nodiscard]] static device_id current() {
        int32_t number = -1;
        detail::check(alv_current_device(&number));
        return device_id(number);
    }

    /// How many devices there are.
    [[nodiscard]] static int count() {
        int32_t count = 0;
        detail::check(alv_device_count(&count));
        return count;
    }

    /// Makes it current for the calling thread.
    void make_current() const { detail::check(alv_set_current_device(value_)); }

    friend constexpr bool operator==(device_id first, device_id second) noexcept { return first.value_ == second.value_; }
    friend constexpr bool operator!=(device_id first, device_id second) noexcept { return first.value_ != second.value_; }

private:
    int value_ = -1;
};

/// The device that is current for the calling thread when it is used.
inline constexpr device_id current_device{};

} // namespace alluvion

namespace alluvion::detail {

/// What is no object that stands for a stream: numbers, null, and pointers, which convert by themselves or not at all.
template <class Stream>
inline constexpr bool is_bare =
    std::is_arithmetic_v<Stream> || std::is_null_pointer_v<Stream> || std::is_pointer_v<Stream> || std::is_array_v<Stream>;

/// Whether a type converts to `cudaStream_t`.
template <class Stream>
inline constexpr bool gives_handle = !is_bare<Stream> && std::is_convertible_v<Stream const &, alv_cuda_stream>;

#if ALLUVION_CCCL
/// Whether a type is `cuda::stream_ref`, or converts to that alone.
template <class Stream>
inline constexpr bool gives_ref =
    !is_bare<Stream> && !gives_handle<Stream> && std::is_convertible_v<Stream const &, ::cuda::stream_ref>;
#endif

} // namespace alluvion::detail

ALLUVION_BEGIN

class stream;

/// A stream that somebody else keeps: one word, to be passed by value.
///
/// The default stream is the one that 0 means where the file is compiled: the legacy one, or that of the thread.
class stream_view {
    template <class Stream>
    static constexpr bool is_ours = std::is_same_v<Stream, stream_view> || std::is_same_v<Stream, stream>;

public:
    using value_type = alv_cuda_stream;

    /// The default stream.
    constexpr stream_view() noexcept = default;

    constexpr stream_view(alv_cuda_stream stream) noexcept : stream_(stream) {}

    /// Literals are no streams: say `stream_view{}` for the default one.
    stream_view(int) = delete;
    stream_view(std::nullptr_t) = delete;

    /// Whatever stands for a stream of CUDA.
    template <class Stream,
              std::enable_if_t<!is_ours<Stream>, std::enable_if_t<::alluvion::detail::gives_handle<Stream>, int>> = 0>
    constexpr stream_view(Stream const &stream) noexcept(noexcept(static_cast<alv_cuda_stream>(stream)))
        : stream_(static_cast<alv_cuda_stream>(stream)) {}

#if ALLUVION_CCCL
    template <class Stream, std::enable_if_t<!is_ours<Stream>, std::enable_if_t<::alluvion::detail::gives_ref<Stream>, int>> = 0,
              class = void>
    constexpr stream_view(Stream const &stream) noexcept : stream_(from_ref(stream)) {}

    constexpr operator ::cuda::stream_ref() const noexcept { return ::cuda::stream_ref(stream_); }
#endif

    /// The handle of CUDA, as it was given.
    [[nodiscard]] constexpr alv_cuda_stream value() const noexcept { return stream_; }
    [[nodiscard]] constexpr alv_cuda_stream get() const noexcept { return stream_; }
    constexpr operator alv_cuda_stream() const noexcept { return stream_; }

    /// The handle for the library, for which 0 is always the legacy stream.
    [[nodiscard]] alv_cuda_stream resolved() const noexcept {
#if ALLUVION_PER_THREAD_DEFAULT_STREAM
        return stream_ == nullptr ? per_thread().value() : stream_;
#else
        return stream_;
#endif
    }

    /// A handle of the library, as this file means it: the other way round.
    [[nodiscard]] static stream_view of_library(alv_cuda_stream stream) noexcept {
#if ALLUVION_PER_THREAD_DEFAULT_STREAM
        return stream == nullptr ? legacy() : stream_view(stream);
#else
        return stream_view(stream);
#endif
    }

    /// The same for a function of the program's: the default stream of this file is 0 there, as the program writes it.
    [[nodiscard]] static stream_view as_written(alv_cuda_stream stream) noexcept {
        stream_view const known = of_library(stream);
#if ALLUVION_PER_THREAD_DEFAULT_STREAM
        return known.is_per_thread_default() ? stream_view() : known;
#else
        return known.is_default() ? stream_view() : known;
#endif
    }

    /// The stream that 0 means in a file that is compiled without per-thread default streams.
    [[nodiscard]] static stream_view legacy() noexcept { return stream_view(reinterpret_cast<alv_cuda_stream>(1)); }

    /// The default stream of the calling thread.
    [[nodiscard]] static stream_view per_thread() noexcept { return stream_view(reinterpret_cast<alv_cuda_stream>(2)); }

    /// Whether it is the legacy default stream.
    [[nodiscard]] bool is_default() const noexcept {
        return resolved() == nullptr || resolved() == legacy().value();
    }

    [[nodiscard]] bool is_per_thread_default() const noexcept { return resolved() == per_thread().value(); }

    /// Waits for the work on the stream.
    void synchronize() const {
        alv_stream *known = nullptr;
        alv_status status = alv_stream_wrap_raw(-1, resolved(), &known);
        // The default streams are those of the current device. Another stream has a device of its own.
        for (int device = 0; status == ALV_DEVICE_MISMATCH && device < device_id::count(); ++device) {
            status = alv_stream_wrap_raw(device, resolved(), &known);
        }
        ::alluvion::detail::check(status);
        status = alv_stream_synchronize(known);
        alv_stream_release(known);
        ::alluvion::detail::check(status);
    }
    void sync() const { synchronize(); }

    /// Waits, and answers whether that succeeded.
    bool synchronize_no_throw() const noexcept {
        try {
            synchronize();
            return true;
        } catch (...) {
            return false;
        }
    }

    friend bool operator==(stream_view first, stream_view second) noexcept { return first.stream_ == second.stream_; }
    friend bool operator!=(stream_view first, stream_view second) noexcept { return first.stream_ != second.stream_; }
#if ALLUVION_CCCL
    // Each converts to the other, so that its operators and those above would both do.
    friend bool operator==(stream_view first, ::cuda::stream_ref second) noexcept { return first.stream_ == second.get(); }
    friend bool operator!=(stream_view first, ::cuda::stream_ref second) noexcept { return first.stream_ != second.get(); }
    friend bool operator==(::cuda::stream_ref first, stream_view second) noexcept { return first.get() == second.stream_; }
    friend bool operator!=(::cuda::stream_ref first, stream_view second) noexcept { return first.get() != second.stream_; }
#endif

private:
#if ALLUVION_CCCL
    static constexpr alv_cuda_stream from_ref(::cuda::stream_ref stream) noexcept { return stream.get(); }
#endif

    alv_cuda_stream stream_ = nullptr;
};

/// A stream that is kept: made here, or somebody else's. A call with it needs no look-up.
///
/// It moves, and a stream that was moved from is only good for assignment and destruction.
class stream {
public:
    /// A new stream, which does not wait for the legacy default stream.
    explicit stream(device_id device = current_device) { ::alluvion::detail::check(alv_stream_create(device.value(), &stream_)); }

    /// Somebody else's, which stays valid until this goes.
    [[nodiscard]] static stream wrap(stream_view other, device_id device = current_device) {
        alv_stream *known = nullptr;
        ::alluvion::detail::check(alv_stream_wrap_raw(device.value(), other.resolved(), &known));
        return stream(known, adopted{});
    }

    /// Somebody else's, which is valid while `owner` lives. A free on it costs no driver call. `owner` is destroyed on any thread,
    /// when the library needs the stream no more, which may be later than this goes.
    template <class Owner>
    [[nodiscard]] static stream wrap_owned(stream_view other, Owner owner, device_id device = current_device) {
        static_assert(std::is_nothrow_destructible_v<Owner>, "an owner is let go of by code that cannot pass an exception on");
        auto held = std::make_unique<Owner>(std::move(owner));
        alv_stream *known = nullptr;
        ::alluvion::detail::check(
            alv_stream_wrap_owned_raw(device.value(), other.resolved(), held.get(), &let_go<Owner>, &known));
        // The library has it now.
        static_cast<void>(held.release());
        return stream(known, adopted{});
    }

    /// Takes over a count of a handle of the C interface.
    [[nodiscard]] static stream adopt(alv_stream *handle) noexcept { return stream(handle, adopted{}); }

    stream(stream &&other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
    stream &operator=(stream &&other) noexcept {
        stream gone(std::move(other));
        std::swap(stream_, gone.stream_);
        return *this;
    }
    stream(stream const &) = delete;
    stream &operator=(stream const &) = delete;
    ~stream() { alv_stream_release(stream_); }

    [[nodiscard]] stream_view view() const noexcept { return stream_view::of_library(alv_stream_handle(stream_)); }
    [[nodiscard]] alv_cuda_stream value() const noexcept { return view().value(); }
    [[nodiscard]] alv_cuda_stream get() const noexcept { return view().value(); }
    operator stream_view() const noexcept { return view(); }
#if ALLUVION_CCCL
    operator ::cuda::stream_ref() const noexcept { return ::cuda::stream_ref(value()); }
#endif

    /// Whether it was not moved from.
    [[nodiscard]] bool is_valid() const noexcept { return stream_ != nullptr; }

    /// Waits for the work on it.
    void synchronize() const { ::alluvion::detail::check(alv_stream_synchronize(stream_)); }
    void sync() const { synchronize(); }

    [[nodiscard]] alv_stream *native_handle() const noexcept { return stream_; }

private:
    struct adopted {};
    stream(alv_stream *handle, adopted) noexcept : stream_(handle) {}

    template <class Owner>
    static void let_go(void *owner) noexcept {
        delete static_cast<Owner *>(owner);
    }

    alv_stream *stream_ = nullptr;
};

/// Streams that are given out in turn.
class stream_pool {
public:
    static constexpr std::size_t default_size = 16;

    explicit stream_pool(std::size_t size = default_size, device_id device = current_device) {
        if (size == 0) {
            ::alluvion::detail::raise<default_errors>(ALV_INVALID_ARGUMENT, "invalid argument: a pool of no streams");
        }
        streams_.reserve(size);
        for (std::size_t made = 0; made < size; ++made) {
            streams_.emplace_back(device);
        }
    }

    /// The next one. Any thread may ask.
    [[nodiscard]] stream_view get_stream() const noexcept {
        return streams_[next_.fetch_add(1, std::memory_order_relaxed) % streams_.size()].view();
    }

    /// The same one for the same number.
    [[nodiscard]] stream_view get_stream(std::size_t number) const noexcept {
        return streams_[number % streams_.size()].view();
    }

    [[nodiscard]] std::size_t get_pool_size() const noexcept { return streams_.size(); }

private:
    std::vector<stream> streams_;
    // Only a turn is drawn from it: nothing is ordered by it.
    mutable std::atomic<std::size_t> next_{0};
};

ALLUVION_END

#endif
