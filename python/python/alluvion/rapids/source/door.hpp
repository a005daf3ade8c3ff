// A stack of Alluvion as a memory resource of the RMM that this is compiled with.
//
// One pointer wide, so that CCCL's types that erase a resource keep it inline. A copy is one more count of the stack: whatever copy
// RMM keeps, in its map of devices or in a buffer, keeps the memory that it frees.
#ifndef ALLUVION_RAPIDS_DOOR_HPP
#define ALLUVION_RAPIDS_DOOR_HPP

#include <alluvion/door.h>

#include <rmm/error.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <utility>

#if defined(ALLUVION_RAPIDS_BASE_CLASS)
#if __has_include(<rmm/mr/device_memory_resource.hpp>)
#include <rmm/mr/device_memory_resource.hpp>
#else
#include <rmm/mr/device/device_memory_resource.hpp>
#endif
#include <rmm/cuda_stream_view.hpp>
#else
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#endif

namespace alluvion_rapids {

// The functions of the package `alluvion` of this process, which the module sets when it is imported.
inline alv_door_table const *&table() noexcept {
    static alv_door_table const *functions = nullptr;
    return functions;
}

[[noreturn]] inline void raise(int32_t status) {
    char const *const message = table()->last_error_message();
    switch (status) {
    case ALV_DOOR_OUT_OF_MEMORY:
        throw ::rmm::out_of_memory(message);
    case ALV_DOOR_SIZE_OVERFLOW:
    case ALV_DOOR_INVALID_ALIGNMENT:
    case ALV_DOOR_UNSUPPORTED_ALIGNMENT:
        throw ::rmm::bad_alloc(message);
    case ALV_DOOR_OUT_OF_RANGE:
        throw ::rmm::out_of_range(message);
    case ALV_DOOR_NO_DEVICE:
    case ALV_DOOR_NO_DRIVER:
    case ALV_DOOR_CAPTURE:
    case ALV_DOOR_CONTEXT_LOST:
    case ALV_DOOR_SHUT_DOWN:
    case ALV_DOOR_DRIVER:
        throw ::rmm::cuda_error(message);
    default:
        throw ::rmm::logic_error(message);
    }
}

// A count of a stack.
class stack {
public:
    explicit stack(void *handle) noexcept : handle_(static_cast<alv_door_handle *>(handle)) { table()->retain(handle_); }
    stack(stack const &other) noexcept : handle_(other.handle_) { table()->retain(handle_); }
    stack(stack &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    stack &operator=(stack other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~stack() {
        if (handle_ != nullptr) table()->release(handle_);
    }

    void *take(std::size_t bytes, std::size_t align, void *stream) const {
        void *block = nullptr;
        int32_t const status = table()->allocate(handle_, bytes, align, stream, &block);
        if (status != ALV_DOOR_OK) raise(status);
        return block;
    }

    void give(void *block, std::size_t bytes, std::size_t align, void *stream) const noexcept {
        table()->deallocate(handle_, block, bytes, align, stream);
    }

    void *take_sync(std::size_t bytes, std::size_t align) const {
        void *block = nullptr;
        int32_t const status = table()->allocate_sync(handle_, bytes, align, &block);
        if (status != ALV_DOOR_OK) raise(status);
        return block;
    }

    void give_sync(void *block, std::size_t bytes, std::size_t align) const noexcept {
        table()->deallocate_sync(handle_, block, bytes, align);
    }

    friend bool operator==(stack const &one, stack const &other) noexcept {
        return table()->equal(one.handle_, other.handle_) != 0;
    }

private:
    alv_door_handle *handle_;
};

#if defined(ALLUVION_RAPIDS_BASE_CLASS)

// For RMM up to 26.04, whose resources derive from a class. RMM holds them by pointers: the object of Python keeps this one.
class resource final : public ::rmm::mr::device_memory_resource {
public:
    explicit resource(void *handle) : stack_(handle) {}

private:
    void *do_allocate(std::size_t bytes, ::rmm::cuda_stream_view stream) override {
        return stack_.take(bytes, 0, stream.value());
    }

    void do_deallocate(void *block, std::size_t bytes, ::rmm::cuda_stream_view stream) noexcept override {
        stack_.give(block, bytes, 0, stream.value());
    }

    [[nodiscard]] bool do_is_equal(::rmm::mr::device_memory_resource const &other) const noexcept override {
        auto const *const same = dynamic_cast<resource const *>(&other);
        return same != nullptr && same->stack_ == stack_;
    }

    stack stack_;
};

#else

// For RMM from 26.06 on, whose resources are what CCCL calls one.
class resource : private stack {
public:
    explicit resource(void *handle) noexcept : stack(handle) {}

    void *allocate(::cuda::stream_ref stream, std::size_t bytes, std::size_t align = 0) {
        return take(bytes, align, stream.get());
    }

    void deallocate(::cuda::stream_ref stream, void *block, std::size_t bytes, std::size_t align = 0) noexcept {
        give(block, bytes, align, stream.get());
    }

    void *allocate_sync(std::size_t bytes, std::size_t align = 0) { return take_sync(bytes, align); }

    void deallocate_sync(void *block, std::size_t bytes, std::size_t align = 0) noexcept { give_sync(block, bytes, align); }

    friend bool operator==(resource const &one, resource const &other) noexcept {
        return static_cast<stack const &>(one) == static_cast<stack const &>(other);
    }
    friend bool operator!=(resource const &one, resource const &other) noexcept { return !(one == other); }

    friend constexpr void get_property(resource const &, ::cuda::mr::device_accessible) noexcept {}
};

static_assert(sizeof(resource) == sizeof(void *), "CCCL keeps it inline");
static_assert(::cuda::mr::resource_with<resource, ::cuda::mr::device_accessible>, "it is a resource for this RMM");

#endif

} // namespace alluvion_rapids

#endif
