// Is the handle a memory resource for this CCCL? It is compiled with each version, and never run.
#include <alluvion/containers.hpp>

#include <type_traits>

// In 3.2 and 3.3 this header compiles with a CUDA compiler alone.
#if ALLUVION_CCCL >= 3004000
#include <cuda/buffer>
#endif

#if !ALLUVION_CCCL
#error "this CCCL was not found, or is not used"
#endif

namespace mr = cuda::mr;

namespace {

using alluvion::basic_resource;
using alluvion::resource;
using alluvion::stream_view;

struct other_errors {
    [[noreturn]] static void raise(alv_status status, alv_error_info const &, char const *) { throw status; }
};

template <class Resource>
constexpr bool is_a_resource() {
#if CCCL_VERSION >= 3001000
    return mr::synchronous_resource<Resource> && mr::resource<Resource> &&
           mr::synchronous_resource_with<Resource, mr::device_accessible> &&
           mr::resource_with<Resource, mr::device_accessible>;
#else
    return mr::resource<Resource> && mr::async_resource<Resource> && mr::resource_with<Resource, mr::device_accessible> &&
           mr::async_resource_with<Resource, mr::device_accessible>;
#endif
}

static_assert(is_a_resource<resource>());
static_assert(is_a_resource<basic_resource<other_errors>>());
static_assert(cuda::has_property<resource, mr::device_accessible>);
static_assert(!cuda::has_property<resource, mr::host_accessible>, "device memory is not claimed to be the host's");

using alluvion::host_device_resource;
static_assert(is_a_resource<host_device_resource>());
static_assert(cuda::has_property<host_device_resource, mr::device_accessible> &&
              cuda::has_property<host_device_resource, mr::host_accessible>);

#if CCCL_VERSION >= 3002000
static_assert(std::is_same_v<resource::default_queries, mr::properties_list<mr::device_accessible>>);
#endif
#if CCCL_VERSION >= 3004000
// A buffer of CCCL finds the properties by itself.
[[maybe_unused]] std::size_t buffers(cuda::stream_ref stream, resource &handle) {
    auto numbers = cuda::make_buffer<int>(stream, handle, 10, cuda::no_init);
    return numbers.size();
}
#endif
#if CCCL_VERSION >= 3004000
static_assert(std::is_same_v<decltype(mr::get_memory_resource(std::declval<resource const &>())), resource const &>);
#endif

// Streams go both ways, by every form of initialisation.

[[maybe_unused]] cuda::stream_ref to_ref(stream_view view) {
    cuda::stream_ref copied = view;
    cuda::stream_ref direct(view);
    cuda::stream_ref braced{view};
    return copied.get() == direct.get() ? static_cast<cuda::stream_ref>(view) : braced;
}
[[maybe_unused]] cuda::stream_ref to_ref(alluvion::stream const &stream) {
    cuda::stream_ref direct(stream);
    return direct.get() == nullptr ? direct : static_cast<cuda::stream_ref>(stream);
}
[[maybe_unused]] stream_view from_ref(cuda::stream_ref ref) {
    stream_view direct(ref);
    stream_view braced{ref};
    return direct == braced ? stream_view(ref) : direct;
}
[[maybe_unused]] stream_view from_handle(cudaStream_t handle) { return handle; }
[[maybe_unused]] cudaStream_t to_handle(stream_view view) { return view; }
static_assert(std::is_same_v<cudaStream_t, alv_cuda_stream>);
static_assert(std::is_convertible_v<cuda::stream_ref, stream_view> && std::is_convertible_v<cudaStream_t, stream_view>);
static_assert(!std::is_convertible_v<int, stream_view> && !std::is_convertible_v<decltype(nullptr), stream_view>);

/// A class of somebody else's, as RMM's.
struct foreign_view {
    operator cudaStream_t() const noexcept { return nullptr; }
    operator cuda::stream_ref() const noexcept { return cudaStream_t{}; }
};
struct foreign_ref {
    operator cuda::stream_ref() const noexcept { return cudaStream_t{}; }
};
static_assert(std::is_convertible_v<foreign_view, stream_view> && std::is_convertible_v<foreign_ref, stream_view>);

[[maybe_unused]] void calls(resource &handle, cuda::stream_ref ref, cudaStream_t raw, foreign_view foreign, foreign_ref other) {
    for (void *block : {handle.allocate(ref, 8), handle.allocate(raw, 8, 16), handle.allocate(foreign, 8),
                        handle.allocate(other, 8), handle.allocate_async(8, 16, ref), handle.allocate_async(8, raw), handle.allocate(8),
                        handle.allocate_sync(8, 16)}) {
        handle.deallocate(ref, block, 8, 16);
        handle.deallocate(raw, block, 8);
        handle.deallocate_async(block, 8, 16, ref);
        handle.deallocate_async(block, 8, foreign);
        handle.deallocate(block, 8);
        handle.deallocate(block, 8, 16);
        handle.deallocate_sync(block, 8);
    }
}

[[maybe_unused]] std::size_t spans(alluvion::device_uvector<int> &vector, alluvion::device_uvector<int> const &constant) {
    cuda::std::span<int> copied = vector;
    cuda::std::span<int const> of_constant = constant;
    cuda::std::span<int> direct(vector);
    auto const take = [](cuda::std::span<int const> span) { return span.size(); };
    return copied.size() + of_constant.size() + direct.size() + take(constant);
}

} // namespace
