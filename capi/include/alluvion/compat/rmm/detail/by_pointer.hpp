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
namespace detail {
class by_pointer;
template <class>
class object_of;
template <class>
class object_of_each_device;
} // namespace detail
namespace mr {

/// The base of every resource: the program's derive from it, and ours do. It frees what it allocated, and outlives all that points to it.
class device_memory_resource {
public:
    device_memory_resource() = default;
    device_memory_resource(device_memory_resource const &) = default;
    device_memory_resource(device_memory_resource &&) noexcept = default;
    device_memory_resource &operator=(device_memory_resource const &) = default;
    device_memory_resource &operator=(device_memory_resource &&) noexcept = default;
    virtual ~device_memory_resource() = default;

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

    [[nodiscard]] bool operator==(device_memory_resource const &other) const noexcept { return do_is_equal(other); }
    [[nodiscard]] bool operator!=(device_memory_resource const &other) const noexcept { return !do_is_equal(other); }

    // What resources of RMM 23 and before were asked.

    [[nodiscard]] virtual bool supports_streams() const noexcept { return true; }
    [[nodiscard]] virtual bool supports_get_mem_info() const noexcept { return false; }
    /// The free and the total bytes; zeros where a resource cannot tell.
    [[nodiscard]] std::pair<std::size_t, std::size_t> get_mem_info(cuda_stream_view stream) const { return do_get_mem_info(stream); }

#if ALLUVION_CCCL
    friend void get_property(device_memory_resource const &, ::cuda::mr::device_accessible) noexcept {}
#endif

private:
    friend class ::rmm::detail::by_pointer;
    template <class>
    friend class ::rmm::detail::object_of;
    template <class>
    friend class ::rmm::detail::object_of_each_device;

    virtual void *do_allocate(std::size_t bytes, cuda_stream_view stream) = 0;
    virtual void do_deallocate(void *block, std::size_t bytes, cuda_stream_view stream) = 0;
    [[nodiscard]] virtual bool do_is_equal(device_memory_resource const &other) const noexcept { return this == &other; }
    [[nodiscard]] virtual std::pair<std::size_t, std::size_t> do_get_mem_info(cuda_stream_view) const { return {0, 0}; }

    /// The handle in a resource of ours, on the current device; null in one of the program's.
    [[nodiscard]] virtual alv_resource *alluvion_handle() const { return nullptr; }
};

} // namespace mr
namespace detail {

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

    [[nodiscard]] static bool is_same(resource const &handle, mr::device_memory_resource const &other) noexcept {
        try {
            alv_resource *const theirs = other.alluvion_handle();
            return theirs != nullptr && alv_resource_equal(handle.native_handle(), theirs);
        } catch (...) {
            return false;
        }
    }

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
        return is_same(handle_, other);
    }
    [[nodiscard]] alv_resource *alluvion_handle() const noexcept final { return handle_.native_handle(); }
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

protected:
    object_of_each_device() = default;
    object_of_each_device(object_of_each_device const &) noexcept : mr::device_memory_resource() {}
    object_of_each_device &operator=(object_of_each_device const &) noexcept { return *this; }

private:
    void *do_allocate(std::size_t bytes, cuda_stream_view stream) final { return handle().allocate(stream, bytes); }
    void do_deallocate(void *block, std::size_t bytes, cuda_stream_view stream) final { handle().deallocate(stream, block, bytes); }
    [[nodiscard]] bool do_is_equal(mr::device_memory_resource const &other) const noexcept final {
        if (dynamic_cast<object_of_each_device const *>(&other) != nullptr) {
            return true;
        }
        try {
            alv_resource *const theirs = other.alluvion_handle();
            return theirs != nullptr && alv_resource_equal(handle().native_handle(), theirs);
        } catch (...) {
            return false;
        }
    }
    [[nodiscard]] alv_resource *alluvion_handle() const final { return handle().native_handle(); }

    mutable std::mutex lock_;
    // References stay.
    mutable std::map<int, Handle> by_device_;
};

/// A handle that came from elsewhere: from C, or from `alluvion.hpp`.
class object_of_handle final : public object_of<resource> {
public:
    explicit object_of_handle(resource handle) : object_of(of{}, std::move(handle)) {}
};

/// What is called as CCCL called resources in RMM 23.12 to 25.12, and is no `device_memory_resource`: pointed to, as by a reference of CCCL's.
template <class Other>
class object_of_program final : public mr::device_memory_resource {
public:
    explicit object_of_program(Other &other) noexcept : other_(&other) {}

private:
    template <class Asked, class = void>
    struct takes_stream_first : std::false_type {};
    template <class Asked>
    struct takes_stream_first<Asked, std::void_t<decltype(std::declval<Asked &>().allocate(std::declval<cuda_stream_view>(), std::size_t{},
                                                                                           std::size_t{}))>> : std::true_type {};

    void *do_allocate(std::size_t bytes, cuda_stream_view stream) override {
        if constexpr (takes_stream_first<Other>::value) {
            return other_->allocate(stream, bytes, CUDA_ALLOCATION_ALIGNMENT);
        } else {
            return other_->allocate_async(bytes, CUDA_ALLOCATION_ALIGNMENT, stream);
        }
    }
    void do_deallocate(void *block, std::size_t bytes, cuda_stream_view stream) override {
        if constexpr (takes_stream_first<Other>::value) {
            other_->deallocate(stream, block, bytes, CUDA_ALLOCATION_ALIGNMENT);
        } else {
            other_->deallocate_async(block, bytes, CUDA_ALLOCATION_ALIGNMENT, stream);
        }
    }
    [[nodiscard]] bool do_is_equal(mr::device_memory_resource const &other) const noexcept override {
        auto const *const same = dynamic_cast<object_of_program const *>(&other);
        return same != nullptr && (same->other_ == other_ || *same->other_ == *other_);
    }

    Other *other_;
};

template <class Other, class = void>
inline constexpr bool is_called_as_resource = false;
template <class Other>
inline constexpr bool is_called_as_resource<
    Other, std::void_t<decltype(std::declval<Other &>().allocate_async(std::size_t{}, std::size_t{}, std::declval<cuda_stream_view>()))>> =
    !std::is_base_of_v<mr::device_memory_resource, Other>;
template <>
inline constexpr bool is_called_as_resource<by_pointer> = false;
template <>
inline constexpr bool is_called_as_resource<by_pointer const> = false;

/// A pointer to a resource, in every parameter that takes one, and in what containers keep.
///
/// It does not keep the object, which must outlive it, as in RMM. Of a resource of ours it keeps the handle: blocks go back also after the
/// object has gone.
class by_pointer {
public:
    by_pointer(mr::device_memory_resource *to) : by_pointer(required(to), nullptr) {}
    by_pointer(mr::device_memory_resource &to) : by_pointer(&to, nullptr) {}
    by_pointer(std::nullptr_t) = delete;

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
