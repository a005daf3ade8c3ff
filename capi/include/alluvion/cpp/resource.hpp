// What is a resource?
#ifndef ALLUVION_CPP_RESOURCE_HPP
#define ALLUVION_CPP_RESOURCE_HPP

#include "callback.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace alluvion {

/// What a layer `stats` has counted.
using counts = ::alv_counts;

/// The figures of a suballocator.
using pool_status = ::alv_pool_status;

/// The free and the total bytes of the memory that a resource draws on.
struct memory_info {
    std::size_t available_bytes;
    std::size_t total_bytes;
};

} // namespace alluvion

ALLUVION_BEGIN

/// A counted handle of a resource: memory of one device, with layers over it.
///
/// It is one pointer wide. A copy is one more count, and an empty handle is what a move leaves behind: it can be assigned and
/// destroyed, frees on it do nothing, and other calls throw `std::logic_error`. Every call may come from any thread.
///
/// The type is a memory resource for each CCCL from 2.3 on, whose names for the calls it all has. Alignments up to 256 are one, so
/// a block may be freed with another alignment than it was got with. No bytes are a null pointer.
///
/// `Errors::raise(alv_status, alv_error_info const &, char const *message)` throws, and does not return. `HostAccessible` says that
/// the host may use the memory, too, which is checked where a handle is made: that type converts to the one without, and not the
/// other way.
template <class Errors = default_errors, bool HostAccessible = false>
class basic_resource {
    template <class Other, bool Access>
    static constexpr bool converts =
        !(std::is_same_v<Errors, Other> && HostAccessible == Access) && (Access || !HostAccessible);

public:
    using errors = Errors;

    static constexpr std::size_t default_alignment = 256;

#if ALLUVION_CCCL >= 3002000
    using default_queries = std::conditional_t<
        HostAccessible, ::cuda::mr::properties_list<::cuda::mr::device_accessible, ::cuda::mr::host_accessible>,
        ::cuda::mr::properties_list<::cuda::mr::device_accessible>>;
#endif

    /// The stack of a recipe, as `stats | pool(initial=1GiB) | cuda-async`, on the device that the recipe names or else on the
    /// current one.
    explicit basic_resource(std::string_view recipe, device_id device = current_device)
        : basic_resource(of_recipe(recipe, device), adopted{}) {
        ensure_context();
        require_access();
    }

    /// The layers of a recipe without a source, as `stats | pool`, over a resource, which they keep.
    [[nodiscard]] static basic_resource over(std::string_view layers, basic_resource const &upstream) {
        auto const text = ::alluvion::detail::c_text<Errors>(layers);
        upstream.ensure_context();
        alv_resource *made = nullptr;
        upstream.check(alv_resource_over(text.c_str(), upstream.handle_, &made));
        return adopt(made);
    }

    /// What a device allocates from by default.
    [[nodiscard]] static basic_resource current(device_id device = current_device) {
        alv_resource *found = nullptr;
        ::alluvion::detail::check<Errors>(alv_current_resource(device.value(), &found));
        return adopt(found);
    }

    /// Memory of a device from an object with `void *allocate(stream_view, std::size_t bytes, std::size_t align)` and `void
    /// deallocate(stream_view, void *, std::size_t bytes, std::size_t align)`: any resource of CCCL 3.1 and later, or
    /// `source_functions`; or with the names of CCCL before, `allocate_async(bytes, align, stream)` and `deallocate_async(block,
    /// bytes, align, stream)`.
    ///
    /// Both are called from any thread, several at once, with no lock held. What `allocate` throws is the error of the request: a
    /// `std::bad_alloc` and a null pointer are out of memory. What `deallocate` throws is dropped. `flags` are 0, or
    /// `ALV_SOURCE_AT_ANY_ADDRESS`.
    template <class Source>
    [[nodiscard]] static basic_resource from_source(Source source, device_id device = current_device,
                                                    std::size_t max_align = default_alignment, std::uint32_t flags = 0) {
        auto held = std::make_unique<Source>(std::move(source));
        alv_source functions = ALV_INIT(alv_source);
        functions.max_align = max_align;
        functions.flags = flags;
        functions.allocate = &callback::allocate<Source>;
        functions.deallocate = &callback::deallocate<Source>;
        functions.drop = &callback::drop<Source>;
        functions.user = held.get();
        alv_resource *made = nullptr;
        ::alluvion::detail::check<Errors>(alv_resource_from_source(device.value(), &functions, &made));
        // The library has it now.
        static_cast<void>(held.release());
        basic_resource taken = adopt(made);
        taken.ensure_context();
        return taken;
    }

    /// This resource, with a `bool (oom_report const &)` that is asked when it is out of memory: true means that memory was freed,
    /// and the request is tried again. It runs on the thread whose request failed, with no lock held, and may use the library. If
    /// it throws, nothing was freed.
    template <class Ask>
    [[nodiscard]] basic_resource with_oom_handler(Ask ask) const {
        static_assert(std::is_invocable_r_v<bool, Ask &, oom_report const &>, "a handler is a bool (oom_report const &)");
        auto held = std::make_unique<Ask>(std::move(ask));
        alv_resource *made = nullptr;
        check(alv_resource_with_oom_handler(handle_, &callback::ask<Ask>, &callback::drop<Ask>, held.get(), &made));
        static_cast<void>(held.release());
        return adopt(made);
    }

    /// Takes over a count of a handle of the C interface.
    [[nodiscard]] static basic_resource adopt(alv_resource *handle) noexcept(!HostAccessible) {
        basic_resource made(handle, adopted{});
        made.require_access();
        return made;
    }

    /// One more count of a handle of the C interface.
    [[nodiscard]] static basic_resource retain(alv_resource *handle) noexcept(!HostAccessible) {
        return adopt(alv_resource_retain(handle));
    }

    basic_resource(basic_resource const &other) noexcept : handle_(alv_resource_retain(other.handle_)) {}
    basic_resource(basic_resource &&other) noexcept : handle_(other.release()) {}
    basic_resource &operator=(basic_resource const &other) noexcept {
        basic_resource copy(other);
        std::swap(handle_, copy.handle_);
        return *this;
    }
    basic_resource &operator=(basic_resource &&other) noexcept {
        basic_resource taken(std::move(other));
        std::swap(handle_, taken.handle_);
        return *this;
    }
    ~basic_resource() { alv_resource_release(handle_); }

    /// The same resource, with other exceptions, or without access of the host.
    template <class Other, bool Access, std::enable_if_t<converts<Other, Access>, int> = 0>
    basic_resource(basic_resource<Other, Access> const &other) noexcept : handle_(alv_resource_retain(other.native_handle())) {}
    template <class Other, bool Access, std::enable_if_t<converts<Other, Access>, int> = 0>
    basic_resource(basic_resource<Other, Access> &&other) noexcept : handle_(other.release()) {}

    /// The same resource, if its memory is the host's, too.
    template <class Other, bool Access, std::enable_if_t<HostAccessible && !Access, int> = 0>
    explicit basic_resource(basic_resource<Other, Access> const &other)
        : basic_resource(alv_resource_retain(other.native_handle()), adopted{}) {
        require_access();
    }

    /// The handle of the C interface, which stays this one's.
    [[nodiscard]] alv_resource *native_handle() const noexcept { return handle_; }

    /// Gives the handle and its count away.
    [[nodiscard]] alv_resource *release() noexcept { return std::exchange(handle_, nullptr); }

    /// Whether it was not moved from.
    [[nodiscard]] explicit operator bool() const noexcept { return handle_ != nullptr; }

    // On a stream.

    [[nodiscard]] void *allocate(stream_view stream, std::size_t bytes, std::size_t align = default_alignment) const {
        ensure_context();
        void *block = nullptr;
        check(alv_allocate_raw(handle_, bytes, align, stream.resolved(), &block));
        return block;
    }
    void deallocate(stream_view stream, void *block, std::size_t bytes,
                    std::size_t align = default_alignment) const noexcept {
        ensure_context();
        alv_deallocate_raw(handle_, block, bytes, align, stream.resolved());
    }

    // On a stream that the library knows: without a look-up.

    [[nodiscard]] void *allocate(stream const &stream, std::size_t bytes, std::size_t align = default_alignment) const {
        ensure_context();
        void *block = nullptr;
        check(alv_allocate_on(handle_, bytes, align, stream.native_handle(), &block));
        return block;
    }
    void deallocate(stream const &stream, void *block, std::size_t bytes,
                    std::size_t align = default_alignment) const noexcept {
        ensure_context();
        alv_deallocate_on(handle_, block, bytes, align, stream.native_handle());
    }

    // Many at once, with one look-up of the stream for all: a block for each size, or none at all.

    [[nodiscard]] std::vector<void *> allocate_many(stream_view stream, std::vector<std::size_t> const &sizes,
                                                    std::size_t align = default_alignment) const {
        ensure_context();
        std::vector<void *> blocks(sizes.size());
        check(alv_allocate_many_raw(handle_, sizes.data(), sizes.size(), align, stream.resolved(), blocks.data()));
        return blocks;
    }
    /// Throws `std::invalid_argument`, and frees nothing, if there is not one size for each block.
    void deallocate_many(stream_view stream, std::vector<void *> const &blocks, std::vector<std::size_t> const &sizes,
                         std::size_t align = default_alignment) const {
        if (blocks.size() != sizes.size()) {
            throw std::invalid_argument("alluvion: there is not one size for each block");
        }
        ensure_context();
        alv_deallocate_many_raw(handle_, blocks.data(), sizes.data(), sizes.size(), align, stream.resolved());
    }

    // For every stream at once.

    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t align = default_alignment) const {
        ensure_context();
        void *block = nullptr;
        check(alv_allocate_sync(handle_, bytes, align, &block));
        return block;
    }
    void deallocate_sync(void *block, std::size_t bytes, std::size_t align = default_alignment) const noexcept {
        ensure_context();
        alv_deallocate_sync(handle_, block, bytes, align);
    }

    // The same calls by the names that CCCL had before 3.1, which std::pmr has too.

    [[nodiscard]] void *allocate(std::size_t bytes, std::size_t align = default_alignment) const {
        return allocate_sync(bytes, align);
    }
    // Of two plain numbers the first may be meant as a stream: `allocate(0, 4096)`. A stream is no number here, and
    // `allocate_sync(bytes, align)` is for sizes.
    template <class Number, std::enable_if_t<std::is_integral_v<Number> && std::is_signed_v<Number>, int> = 0>
    void *allocate(Number stream_or_bytes, std::size_t bytes_or_align, std::size_t align = default_alignment) const = delete;
    void deallocate(void *block, std::size_t bytes, std::size_t align = default_alignment) const noexcept {
        deallocate_sync(block, bytes, align);
    }
    [[nodiscard]] void *allocate_async(std::size_t bytes, std::size_t align, stream_view stream) const {
        return allocate(stream, bytes, align);
    }
    [[nodiscard]] void *allocate_async(std::size_t bytes, stream_view stream) const { return allocate(stream, bytes); }
    void deallocate_async(void *block, std::size_t bytes, std::size_t align, stream_view stream) const noexcept {
        deallocate(stream, block, bytes, align);
    }
    void deallocate_async(void *block, std::size_t bytes, stream_view stream) const noexcept {
        deallocate(stream, block, bytes);
    }

#if ALLUVION_CCCL
    friend constexpr void get_property(basic_resource const &, ::cuda::mr::device_accessible) noexcept {}
#endif
#if ALLUVION_CCCL >= 3004000
    [[nodiscard]] constexpr basic_resource const &query(::cuda::mr::get_memory_resource_t const &) const noexcept {
        return *this;
    }
#endif

    /// The device that the memory belongs to.
    [[nodiscard]] device_id device() const {
        int32_t number = -1;
        check(alv_resource_device(handle_, &number));
        return device_id(number);
    }

    /// The largest alignment that is honoured.
    [[nodiscard]] std::size_t max_align() const noexcept { return alv_resource_max_align(handle_); }

    /// The stack on a line, as `Stats(...) > Pool(...) > CudaAsync(gpu 0)`.
    [[nodiscard]] std::string describe() const {
        require();
        return ::alluvion::detail::text_of<Errors>(
            [this](char *text, std::size_t room, std::size_t *needed) { return alv_describe(handle_, text, room, needed); });
    }

    /// Gives memory that nobody uses back to the driver until at most `keep` bytes are kept; says how much went.
    std::size_t trim(std::size_t keep = 0) const {
        ensure_context();
        std::size_t given_back = 0;
        check(alv_trim(handle_, keep, &given_back));
        return given_back;
    }

    /// Empties the caches of the outermost suballocator, and merges the memory of completed work. Does not wait.
    void defragment() const {
        ensure_context();
        check(alv_defragment(handle_));
    }

    /// The free and the total bytes of the memory that the stack draws on.
    [[nodiscard]] ::alluvion::memory_info memory_info() const {
        ensure_context();
        ::alluvion::memory_info info{};
        check(alv_memory_info(handle_, &info.available_bytes, &info.total_bytes));
        return info;
    }

    /// What the outermost layer `stats` has counted; nothing without one.
    [[nodiscard]] std::optional<counts> stats() const {
        counts found = ALV_INIT(counts);
        return if_there(alv_stats(handle_, &found), found);
    }

    /// Begins a scope of the statistics; answers what was counted around it.
    counts push_stats() const {
        counts around = ALV_INIT(counts);
        check(alv_stats_push(handle_, &around));
        return around;
    }

    /// Ends a scope of the statistics; answers what was counted in it.
    counts pop_stats() const {
        counts within = ALV_INIT(counts);
        check(alv_stats_pop(handle_, &within));
        return within;
    }

    /// The figures of the outermost suballocator; nothing without one.
    [[nodiscard]] std::optional<pool_status> status() const {
        pool_status found = ALV_INIT(pool_status);
        return if_there(alv_status_of(handle_, &found), found);
    }

    /// How many frees through this handle and its copies a layer has refused: see `alv_refused_frees`.
    [[nodiscard]] std::uint64_t refused_frees() const {
        std::uint64_t found = 0;
        check(alv_refused_frees(handle_, &found));
        return found;
    }

    /// Writes every block of the outermost suballocator to a file, as JSON that `alluvion viz` draws.
    void snapshot(std::string const &path) const {
        auto const text = ::alluvion::detail::c_text<Errors>(path);
        check(alv_snapshot_write(handle_, text.c_str()));
    }

    /// The same, as text.
    [[nodiscard]] std::string snapshot() const {
        return written([this](alv_write write, void *user) { return alv_snapshot_to(handle_, write, user); });
    }

    /// The figures of every layer in the text format of Prometheus, and what the device shares with other processes.
    [[nodiscard]] std::string metrics(std::string_view name) const {
        auto const text = ::alluvion::detail::c_text<Errors>(name);
        return written([&](alv_write write, void *user) { return alv_metrics(handle_, text.c_str(), write, user); });
    }

    /// Calls `each` with the `alv_block` of every block that the outermost layer `tracking` knows to be out, oldest first, until it
    /// answers false, if it answers anything. No lock is held meanwhile. What it throws ends the call, and is thrown on.
    template <class Each>
    void outstanding(Each each) const {
        callback::guarded<Each> guarded(each);
        auto const call = [](void *user, alv_block const *block) noexcept -> int {
            return static_cast<callback::guarded<Each> *>(user)->call(*block) ? 0 : 1;
        };
        check(alv_outstanding(handle_, call, &guarded));
        guarded.finish();
    }

    /// Calls `each` with the `alv_violation` of what the outermost layer `guard` has found, as `outstanding` does. Waits for the work before
    /// all that was freed, and looks at it first.
    template <class Each>
    void violations(Each each) const {
        callback::guarded<Each> guarded(each);
        auto const call = [](void *user, alv_violation const *violation) noexcept -> int {
            return static_cast<callback::guarded<Each> *>(user)->call(*violation) ? 0 : 1;
        };
        check(alv_violations(handle_, call, &guarded));
        guarded.finish();
    }

    /// Has the outermost layer `guard` call `observer` with the `alv_violation` of what it finds from now on, on the thread that finds it and
    /// with no lock held. It may use the library. What it throws is dropped.
    template <class Observer>
    void on_violation(Observer observer) const {
        static_assert(std::is_invocable_v<Observer &, alv_violation const &>, "an observer takes an alv_violation");
        auto held = std::make_unique<Observer>(std::move(observer));
        check(alv_on_violation(handle_, &callback::observe<Observer, alv_violation>, &callback::drop<Observer>, held.get()));
        static_cast<void>(held.release());
    }

    /// Has `observer` called with an `alv_crossing` each time that the live bytes exceed the soft limit of the outermost limit: on the thread
    /// of the request, before the bytes are used, with no lock held. It may use the library. What it throws is dropped. `soft` is the soft
    /// limit from now on, which refuses no request; left out, it stays what the recipe says.
    template <class Observer>
    void on_soft_limit(Observer observer, std::size_t soft = SIZE_MAX) const {
        static_assert(std::is_invocable_v<Observer &, alv_crossing const &>, "an observer takes an alv_crossing");
        auto held = std::make_unique<Observer>(std::move(observer));
        check(alv_on_soft_limit(handle_, soft, &callback::observe<Observer, alv_crossing>, &callback::drop<Observer>, held.get()));
        static_cast<void>(held.release());
    }

    /// Writes the rows of the outermost layer `logging` to its file.
    void flush_log() const { check(alv_log_flush(handle_)); }

    /// Queues a copy on a stream of the device. Either side may be memory of a device or of the host.
    void copy(void *to, void const *from, std::size_t bytes, stream_view stream) const {
        ensure_context();
        check(alv_copy_raw(handle_, to, from, bytes, stream.resolved()));
    }

    /// Queues a fill on a stream of the device.
    void fill(void *to, unsigned char value, std::size_t bytes, stream_view stream) const {
        ensure_context();
        check(alv_fill_raw(handle_, to, value, bytes, stream.resolved()));
    }

    /// Waits for the work on a stream of the device.
    void synchronize(stream_view stream) const {
        ensure_context();
        check(alv_synchronize_raw(handle_, stream.resolved()));
    }

    /// Makes the work that is submitted to a stream from now on come after the work on another one; both are of the device.
    void wait_for(stream_view stream, stream_view other) const {
        ensure_context();
        check(alv_wait_for_raw(handle_, stream.resolved(), other.resolved()));
    }

    /// Whether the host may use every block.
    [[nodiscard]] bool host_accessible() const noexcept { return alv_resource_host_accessible(handle_); }

private:
    struct adopted {};
    basic_resource(alv_resource *handle, adopted) noexcept : handle_(handle) {}

    static alv_resource *of_recipe(std::string_view recipe, device_id device) {
        auto const text = ::alluvion::detail::c_text<Errors>(recipe);
        alv_resource *made = nullptr;
        ::alluvion::detail::check<Errors>(alv_resource_from_recipe(text.c_str(), device.value(), &made));
        return made;
    }

    void require_access() const {
        if constexpr (HostAccessible) {
            if (handle_ != nullptr && !host_accessible()) {
                auto const message = "unsupported: access of the host: " + describe() +
                                     " has memory of the device; name a source such as `pinned` or `managed`";
                ::alluvion::detail::raise<Errors>(ALV_UNSUPPORTED, message.c_str());
            }
        }
    }

    /// Before a call that uses the device, which finds its context current then.
    void ensure_context() const noexcept {
        if constexpr (::alluvion::detail::ensures_context<Errors>) {
            if (handle_ != nullptr) {
                alv_ensure_context(handle_);
            }
        }
    }

    void require() const {
        if (handle_ == nullptr) {
            throw std::logic_error("alluvion: the resource was moved from");
        }
    }

    void check(alv_status status) const {
        if (status != ALV_OK) {
            failed(status);
        }
    }

    [[noreturn]] ALLUVION_COLD void failed(alv_status status) const {
        // The library refuses an empty handle, so that nothing is asked where nothing fails.
        require();
        ::alluvion::detail::raise<Errors>(status);
    }

    template <class Found>
    std::optional<Found> if_there(alv_status status, Found const &found) const {
        if (status == ALV_UNSUPPORTED) {
            return std::nullopt;
        }
        check(status);
        return found;
    }

    template <class Write>
    std::string written(Write const &write) const {
        std::string text;
        auto append = [&text](std::string_view piece) { text.append(piece); };
        callback::guarded<decltype(append)> guarded(append);
        auto const call = [](void *user, char const *bytes, std::size_t count) noexcept -> int {
            return static_cast<decltype(guarded) *>(user)->call(std::string_view(bytes, count)) ? 0 : 1;
        };
        alv_status const status = write(call, &guarded);
        guarded.finish();
        check(status);
        return text;
    }

    alv_resource *handle_ = nullptr;
};

/// Whether two handles are of one resource.
template <class First, bool FirstAccess, class Second, bool SecondAccess>
[[nodiscard]] bool operator==(basic_resource<First, FirstAccess> const &first,
                              basic_resource<Second, SecondAccess> const &second) noexcept {
    return first.native_handle() == second.native_handle() ||
           alv_resource_equal(first.native_handle(), second.native_handle());
}
template <class First, bool FirstAccess, class Second, bool SecondAccess>
[[nodiscard]] bool operator!=(basic_resource<First, FirstAccess> const &first,
                              basic_resource<Second, SecondAccess> const &second) noexcept {
    return !(first == second);
}

#if ALLUVION_CCCL
template <class Errors>
constexpr void get_property(basic_resource<Errors, true> const &, ::cuda::mr::host_accessible) noexcept {}
#endif

/// The handle with the exceptions of this library.
using resource = basic_resource<>;

/// The handle of memory that the host may use, too: `pinned`, `managed`, `system`, and layers over them.
using host_device_resource = basic_resource<default_errors, true>;

/// What a device allocates from by default.
[[nodiscard]] inline resource current_resource(device_id device = current_device) { return resource::current(device); }

/// Makes a device allocate from another resource; answers the one before.
inline resource set_current_resource(resource const &other, device_id device = current_device) {
    if (!other) {
        throw std::logic_error("alluvion: the resource was moved from");
    }
    alv_resource *previous = nullptr;
    ::alluvion::detail::check(alv_set_current_resource(device.value(), other.native_handle(), &previous));
    return resource::adopt(previous);
}

/// Makes a device allocate from its first resource again; answers the one before.
inline resource reset_current_resource(device_id device = current_device) {
    alv_resource *previous = nullptr;
    ::alluvion::detail::check(alv_reset_current_resource(device.value(), &previous));
    return resource::adopt(previous);
}

ALLUVION_END

#endif
