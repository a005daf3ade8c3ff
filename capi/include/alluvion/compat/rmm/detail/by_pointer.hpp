// What is a resource where others point to it, as in RMM 25.12 and before?
#ifndef ALLUVION_COMPAT_RMM_DETAIL_BY_POINTER_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_BY_POINTER_HPP

#include "../aligned.hpp"
#include "../cuda_stream_view.hpp"
#include "debug_log.hpp"
#include "handle.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#if ALLUVION_COMPAT_RMM_BY_POINTER

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {
class device_memory_resource;
} // namespace mr
namespace detail {
class by_pointer;
inline void forget_object(mr::device_memory_resource const &object) noexcept;
} // namespace detail
namespace mr {

/// The base of every resource: the program's derive from it, and ours do. It frees what it allocated, and outlives all that points to it.
class ALLUVION_VISIBLE device_memory_resource {
public:
    device_memory_resource() = default;
    device_memory_resource(device_memory_resource const &) = default;
    device_memory_resource(device_memory_resource &&) noexcept = default;
    device_memory_resource &operator=(device_memory_resource const &) = default;
    device_memory_resource &operator=(device_memory_resource &&) noexcept = default;
    /// A device whose current resource it is goes back to its first one.
    virtual ~device_memory_resource() { ::rmm::detail::forget_object(*this); }

    [[nodiscard]] void *allocate(std::size_t bytes, cuda_stream_view stream = cuda_stream_view{}) {
        return do_allocate(bytes, stream);
    }
    void deallocate(void *block, std::size_t bytes, cuda_stream_view stream = cuda_stream_view{}) {
        do_deallocate(block, bytes, stream);
    }

    [[nodiscard]] bool is_equal(device_memory_resource const &other) const noexcept { return do_is_equal(other); }

    // With the names of CCCL of that time. Every block is aligned to 256; more is asked of `aligned_resource_adaptor`.

    [[nodiscard]] void *allocate(std::size_t bytes, std::size_t alignment) { return allocate_async(bytes, alignment, cuda_stream_view{}); }
    void deallocate(void *block, std::size_t bytes, [[maybe_unused]] std::size_t alignment) { deallocate(block, bytes); }
    [[nodiscard]] void *allocate_async(std::size_t bytes, std::size_t alignment, cuda_stream_view stream) {
        if (!is_supported_base_resource_alignment(alignment)) {
            throw bad_alloc("a resource aligns its blocks to 256 bytes, and not to " + std::to_string(alignment));
        }
        return do_allocate(bytes, stream);
    }
    [[nodiscard]] void *allocate_async(std::size_t bytes, cuda_stream_view stream) { return do_allocate(bytes, stream); }
    void deallocate_async(void *block, std::size_t bytes, [[maybe_unused]] std::size_t alignment, cuda_stream_view stream) {
        do_deallocate(block, bytes, stream);
    }
    void deallocate_async(void *block, std::size_t bytes, cuda_stream_view stream) { do_deallocate(block, bytes, stream); }

    // With those of CCCL 3.1 and RMM 25.10.

    [[nodiscard]] void *allocate(cuda_stream_view stream, std::size_t bytes, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) {
        return allocate_async(bytes, alignment, stream);
    }
    void deallocate(cuda_stream_view stream, void *block, std::size_t bytes,
                    [[maybe_unused]] std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) noexcept {
        do_deallocate(block, bytes, stream);
    }
    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) {
        return allocate_async(bytes, alignment, cuda_stream_view{});
    }
    void deallocate_sync(void *block, std::size_t bytes, [[maybe_unused]] std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) noexcept {
        do_deallocate(block, bytes, cuda_stream_view{});
    }

    [[nodiscard]] bool operator==(device_memory_resource const &other) const noexcept { return do_is_equal(other); }
    [[nodiscard]] bool operator!=(device_memory_resource const &other) const noexcept { return !do_is_equal(other); }

    // The questions of RMM 23 and before.

    [[nodiscard]] virtual bool supports_streams() const noexcept { return true; }
    [[nodiscard]] virtual bool supports_get_mem_info() const noexcept { return false; }
    /// The free and the total bytes; zeros where a resource cannot tell.
    [[nodiscard]] std::pair<std::size_t, std::size_t> get_mem_info(cuda_stream_view stream) const { return do_get_mem_info(stream); }

#if ALLUVION_CCCL
    friend void get_property(device_memory_resource const &, ::cuda::mr::device_accessible) noexcept {}
#endif

protected:
    /// Whether another one is a source of ours that frees the same blocks.
    [[nodiscard]] bool has_handle_of(device_memory_resource const &other) const noexcept {
        try {
            alv_resource *const theirs = other.alluvion_is_layer() ? nullptr : other.alluvion_handle();
            return theirs != nullptr && alv_resource_equal(alluvion_handle(), theirs);
        } catch (...) {
            return false;
        }
    }

private:
    friend class ::rmm::detail::by_pointer;

    virtual void *do_allocate(std::size_t bytes, cuda_stream_view stream) = 0;
    virtual void do_deallocate(void *block, std::size_t bytes, cuda_stream_view stream) = 0;
    [[nodiscard]] virtual bool do_is_equal(device_memory_resource const &other) const noexcept { return this == &other; }
    [[nodiscard]] virtual std::pair<std::size_t, std::size_t> do_get_mem_info(cuda_stream_view) const { return {0, 0}; }

    /// The handle in a resource of ours, on the current device; null in one of the program's.
    [[nodiscard]] virtual alv_resource *alluvion_handle() const { return nullptr; }

    /// Whether it is a layer, whose equality is its own.
    [[nodiscard]] virtual bool alluvion_is_layer() const noexcept { return false; }
};

} // namespace mr
namespace detail {

/// Whether a class with a handle does more than the handle: then the object is asked, and not the handle in it.
template <class Handle>
inline constexpr bool is_more_than_its_handle = false;

/// A resource of ours: an object with a handle, which others point to.
template <class Handle>
class object_of : public mr::device_memory_resource {
public:
    /// The handle, with all that a resource of this library can: `describe()`, `status()`, `trim()` and the rest.
    [[nodiscard]] Handle const &handle() const noexcept { return handle_; }

protected:
    struct of {};

    template <class... Arguments>
    explicit object_of(of, Arguments &&...arguments) : handle_(std::forward<Arguments>(arguments)...) {}

    // Not constant: bins and counters change.
    Handle handle_;

private:
    void *do_allocate(std::size_t bytes, cuda_stream_view stream) final {
        return logged(handle_, bytes, [&] { return handle_.allocate(stream, bytes); });
    }
    void do_deallocate(void *block, std::size_t bytes, cuda_stream_view stream) noexcept final {
        handle_.deallocate(stream, block, bytes);
    }
    [[nodiscard]] bool do_is_equal(mr::device_memory_resource const &other) const noexcept override {
        return has_handle_of(other);
    }
    [[nodiscard]] alv_resource *alluvion_handle() const noexcept final {
        return is_more_than_its_handle<Handle> ? nullptr : handle_.native_handle();
    }
};

/// A source that allocates on whatever device is current, as RMM's do that have no state: it has a handle for each device that it met. All
/// of one type are equal, and a copy begins anew.
template <class Handle>
class object_of_each_device : public mr::device_memory_resource {
public:
    /// The handle for the current device, with all that a resource of this library can.
    [[nodiscard]] Handle const &handle() const {
        int const device = current_device();
        std::lock_guard<std::mutex> const held(lock_);
        auto const found = by_device_.find(device);
        return found == by_device_.end() ? by_device_.try_emplace(device).first->second : found->second;
    }

    [[nodiscard]] bool supports_get_mem_info() const noexcept final { return true; }

protected:
    object_of_each_device() = default;
    object_of_each_device(object_of_each_device const &) noexcept : mr::device_memory_resource() {}
    object_of_each_device &operator=(object_of_each_device const &) noexcept { return *this; }

private:
    void *do_allocate(std::size_t bytes, cuda_stream_view stream) final { return handle().allocate(stream, bytes); }
    void do_deallocate(void *block, std::size_t bytes, cuda_stream_view stream) final {
        of_free().deallocate(stream, block, bytes);
    }
    /// The handle for a block that goes back: of the only device there was, or of the current one.
    [[nodiscard]] Handle const &of_free() const {
        {
            std::lock_guard<std::mutex> const held(lock_);
            if (by_device_.size() == 1) {
                return by_device_.begin()->second;
            }
        }
        return handle();
    }
    [[nodiscard]] bool do_is_equal(mr::device_memory_resource const &other) const noexcept final {
        if (dynamic_cast<object_of_each_device const *>(&other) != nullptr) {
            return true;
        }
        return has_handle_of(other);
    }
    [[nodiscard]] alv_resource *alluvion_handle() const final { return handle().native_handle(); }
    [[nodiscard]] std::pair<std::size_t, std::size_t> do_get_mem_info(cuda_stream_view) const final {
        std::pair<std::size_t, std::size_t> bytes{0, 0};
        check(alv_memory_info(handle().native_handle(), &bytes.first, &bytes.second));
        return bytes;
    }

    mutable std::mutex lock_;
    // References stay.
    mutable std::map<int, Handle> by_device_;
};

/// A handle that came from elsewhere: from C, or from `alluvion.hpp`.
class object_of_handle final : public object_of<resource> {
public:
    explicit object_of_handle(resource handle) : object_of(of{}, std::move(handle)) {}
};

/// Whether a type is a reference of CCCL's itself, and goes by value.
template <class Other>
inline constexpr bool is_reference_of_cccl = false;
#if ALLUVION_CCCL >= 3001000
template <class... Properties>
inline constexpr bool is_reference_of_cccl<::cuda::mr::resource_ref<Properties...>> = true;
#elif ALLUVION_CCCL
template <::cuda::mr::_AllocType Kind, class... Properties>
inline constexpr bool is_reference_of_cccl<::cuda::mr::basic_resource_ref<Kind, Properties...>> = true;
#endif

// Which types are handles, and what derives from them: those are kept, and not pointed to.
template <class Errors, bool Access>
std::true_type handle_or_not(::alluvion::basic_resource<Errors, Access> const *);
std::false_type handle_or_not(void const *);

template <class Other>
inline constexpr bool is_of_program = !std::is_base_of_v<mr::device_memory_resource, Other> &&
                                      !std::is_same_v<std::remove_const_t<Other>, by_pointer> &&
                                      !decltype(handle_or_not(static_cast<Other *>(nullptr)))::value;

template <class Other, class = void>
inline constexpr bool is_called_with_async = false;
template <class Other>
inline constexpr bool is_called_with_async<Other, std::void_t<decltype(std::declval<Other &>().allocate_async(
                                                      std::size_t{}, std::size_t{}, std::declval<cuda_stream_view>()))>> = true;
template <class Other, bool OfProgram = is_of_program<Other>>
inline constexpr bool is_called_as_resource = false;
template <class Other>
inline constexpr bool is_called_as_resource<Other, true> = is_called_with_async<Other> || ::alluvion::callback::takes_stream_first<Other>;

/// A resource of the program's that is called as CCCL called resources in RMM 23.12 to 25.12, and is no `device_memory_resource`: pointed to,
/// as by a reference of CCCL's, or such a reference.
template <class Other>
class object_of_program final : public mr::device_memory_resource {
public:
    explicit object_of_program(Other &other) : other_(held(other)) {}

private:
    static constexpr bool is_kept = is_reference_of_cccl<std::remove_const_t<Other>>;
    using kept = std::conditional_t<is_kept, std::remove_const_t<Other>, Other *>;
    static kept held(Other &other) {
        if constexpr (is_kept) {
            return other;
        } else {
            return &other;
        }
    }
    static auto &pointed(kept &of) {
        if constexpr (is_kept) {
            return of;
        } else {
            return *of;
        }
    }

    void *do_allocate(std::size_t bytes, cuda_stream_view stream) override {
        if constexpr (::alluvion::callback::takes_stream_first<Other>) {
            return pointed(other_).allocate(stream, bytes, CUDA_ALLOCATION_ALIGNMENT);
        } else {
            return pointed(other_).allocate_async(bytes, CUDA_ALLOCATION_ALIGNMENT, stream);
        }
    }
    void do_deallocate(void *block, std::size_t bytes, cuda_stream_view stream) override {
        if constexpr (::alluvion::callback::takes_stream_first<Other>) {
            pointed(other_).deallocate(stream, block, bytes, CUDA_ALLOCATION_ALIGNMENT);
        } else {
            pointed(other_).deallocate_async(block, bytes, CUDA_ALLOCATION_ALIGNMENT, stream);
        }
    }
    [[nodiscard]] bool do_is_equal(mr::device_memory_resource const &other) const noexcept override {
        auto const *const same = dynamic_cast<object_of_program const *>(&other);
        if constexpr (is_kept) {
            return same != nullptr && same->other_ == other_;
        } else {
            return same != nullptr && (same->other_ == other_ || *same->other_ == *other_);
        }
    }

    // Not constant: references of CCCL are called as what may be changed.
    kept other_;
};

/// A pointer to a resource, in every parameter that takes one, and in what containers keep.
///
/// The pointer does not keep the object, which must outlive it, as in RMM. Of a resource of ours it keeps the handle: blocks go back also after the
/// object has gone.
class by_pointer {
public:
    by_pointer(mr::device_memory_resource *to) : by_pointer(required(to), nullptr) {}
    by_pointer(mr::device_memory_resource &to) : by_pointer(&to, nullptr) {}
    by_pointer(std::nullptr_t) = delete;
    // No moves: a reference may be used after it was moved from.
    by_pointer(by_pointer const &) = default;
    by_pointer &operator=(by_pointer const &) = default;

    template <class Errors, bool Access>
    by_pointer(::alluvion::basic_resource<Errors, Access> const &handle)
        : by_pointer(nullptr, std::make_shared<object_of_handle>(resource(handle))) {}

    template <class Other, std::enable_if_t<is_called_as_resource<Other>, int> = 0>
    by_pointer(Other &other) : by_pointer(nullptr, std::make_shared<object_of_program<Other>>(other)) {}
    template <class Other, std::enable_if_t<is_called_as_resource<Other>, int> = 0>
    by_pointer(Other *other) : by_pointer(*required(other)) {}

    /// Its object.
    [[nodiscard]] mr::device_memory_resource *operator->() const noexcept { return to_; }
    [[nodiscard]] mr::device_memory_resource &operator*() const noexcept { return *to_; }
    operator mr::device_memory_resource *() const noexcept { return to_; }

    [[nodiscard]] void *allocate(::alluvion::stream_view stream, std::size_t bytes,
                                 std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) const {
        if (!ours_) {
            return to_->allocate_async(bytes, alignment, stream);
        }
        return logged(ours_, bytes, [&] { return ours_.allocate(stream, bytes, alignment); });
    }
    void deallocate(::alluvion::stream_view stream, void *block, std::size_t bytes,
                    std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) const noexcept {
        if (ours_) {
            ours_.deallocate(stream, block, bytes, alignment);
        } else {
            to_->deallocate_async(block, bytes, alignment, stream);
        }
    }

    // With the names of CCCL of that time, and without a stream.

    [[nodiscard]] void *allocate_async(std::size_t bytes, std::size_t alignment, cuda_stream_view stream) const {
        return allocate(stream, bytes, alignment);
    }
    [[nodiscard]] void *allocate_async(std::size_t bytes, cuda_stream_view stream) const { return allocate(stream, bytes); }
    void deallocate_async(void *block, std::size_t bytes, std::size_t alignment, cuda_stream_view stream) const noexcept {
        deallocate(stream, block, bytes, alignment);
    }
    void deallocate_async(void *block, std::size_t bytes, cuda_stream_view stream) const noexcept { deallocate(stream, block, bytes); }
    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) const {
        return allocate(cuda_stream_view{}, bytes, alignment);
    }
    void deallocate_sync(void *block, std::size_t bytes, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) const noexcept {
        deallocate(cuda_stream_view{}, block, bytes, alignment);
    }
    [[nodiscard]] void *allocate(std::size_t bytes, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) const {
        return allocate(cuda_stream_view{}, bytes, alignment);
    }
    void deallocate(void *block, std::size_t bytes, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) const noexcept {
        deallocate(cuda_stream_view{}, block, bytes, alignment);
    }

    friend bool operator==(by_pointer const &first, by_pointer const &second) noexcept {
        return first.to_ == second.to_ || first.to_->is_equal(*second.to_);
    }
    friend bool operator!=(by_pointer const &first, by_pointer const &second) noexcept { return !(first == second); }
#if ALLUVION_CCCL
    friend void get_property(by_pointer const &, ::cuda::mr::device_accessible) noexcept {}
#endif

    // With a pointer: whether it is that object. Exact, because both sides convert into each other.
    template <class Other, std::enable_if_t<std::is_base_of_v<mr::device_memory_resource, Other>, int> = 0>
    friend bool operator==(by_pointer const &first, Other *second) noexcept {
        return first.to_ == second;
    }
    template <class Other, std::enable_if_t<std::is_base_of_v<mr::device_memory_resource, Other>, int> = 0>
    friend bool operator!=(by_pointer const &first, Other *second) noexcept {
        return first.to_ != second;
    }
    template <class Other, std::enable_if_t<std::is_base_of_v<mr::device_memory_resource, Other>, int> = 0>
    friend bool operator==(Other *first, by_pointer const &second) noexcept {
        return second.to_ == first;
    }
    template <class Other, std::enable_if_t<std::is_base_of_v<mr::device_memory_resource, Other>, int> = 0>
    friend bool operator!=(Other *first, by_pointer const &second) noexcept {
        return second.to_ != first;
    }

    /// The same on the device that is current now: a source without a state has a handle for each.
    [[nodiscard]] by_pointer on_current_device() const { return by_pointer(to_, kept_); }

    /// Whether nobody else has the object.
    [[nodiscard]] bool keeps_object() const noexcept { return kept_ != nullptr; }

    /// The handle of a resource of ours; null for one of the program's.
    [[nodiscard]] alv_resource *native_handle() const noexcept { return ours_.native_handle(); }

private:
    by_pointer(mr::device_memory_resource *to, std::shared_ptr<mr::device_memory_resource> kept)
        : kept_(std::move(kept)), to_(kept_ ? kept_.get() : to), ours_(resource::retain(to_->alluvion_handle())) {}

    template <class Resource>
    static Resource *required(Resource *to) {
        if (to == nullptr) {
            throw logic_error("the pointer to a resource is null");
        }
        return to;
    }

    // Nobody else has an object for a handle, or for a resource that is none.
    std::shared_ptr<mr::device_memory_resource> kept_;
    mr::device_memory_resource *to_;
    resource ours_;
};

} // namespace detail
ALLUVION_COMPAT_RMM_END

#endif

#endif
