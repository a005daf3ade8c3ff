// The one text that both files are compiled from. It is not guarded by a namespace of its own: what differs by file is in names of
// the library, which is what is tested.
#include <alluvion/containers.hpp>

#include "modes.hpp"

#include <functional>

/// Erases a resource as other libraries do: by a template over its type, of which the linker keeps one for each name.
template <class Resource>
struct erasing {
    static void *allocate(void *resource, std::size_t bytes) {
        return static_cast<Resource *>(resource)->allocate(alluvion::stream_view{}, bytes);
    }
    static void deallocate(void *resource, void *block, std::size_t bytes) {
        static_cast<Resource *>(resource)->deallocate(alluvion::stream_view{}, block, bytes);
    }
};

static seen look() {
    seen found;
    alv_cuda_stream raw = nullptr;
    // Written in C, so that what arrives is what the library was told.
    alv_source functions = ALV_INIT(alv_source);
    functions.user = &raw;
    functions.allocate = [](void *user, std::size_t, std::size_t, alv_cuda_stream stream, void **out) -> alv_status {
        *static_cast<alv_cuda_stream *>(user) = stream;
        static char memory[4096];
        *out = memory + (256 - reinterpret_cast<std::size_t>(memory) % 256);
        return ALV_OK;
    };
    functions.deallocate = [](void *, void *, std::size_t, std::size_t, alv_cuda_stream) {};
    alv_resource *handle = nullptr;
    if (alv_resource_from_source(0, &functions, &handle) != ALV_OK) {
        return found;
    }
    alluvion::resource source = alluvion::resource::adopt(handle);
    void *block = source.allocate(alluvion::stream_view{}, 64);
    found.of_a_call = raw;
    source.deallocate(alluvion::stream_view{}, block, 64);
    {
        alluvion::device_buffer buffer(64, alluvion::stream_view{}, source);
        found.of_a_buffer = raw;
    }
    void *(*allocate)(void *, std::size_t) = &erasing<alluvion::resource>::allocate;
    block = allocate(&source, 64);
    found.of_an_erased_call = raw;
    erasing<alluvion::resource>::deallocate(&source, block, 64);

    found.is_per_thread = alluvion::stream_view{}.is_per_thread_default();
    found.is_legacy = alluvion::stream_view{}.is_default();

    bool legacy = false;
    alluvion::resource of_the_file = alluvion::resource::from_source(alluvion::source_functions{
        [&](alluvion::stream_view stream, std::size_t bytes, std::size_t align) {
            legacy = stream.is_default() && !stream.is_per_thread_default();
            return source.allocate(stream, bytes, align);
        },
        [&](alluvion::stream_view stream, void *gone, std::size_t bytes, std::size_t align) {
            source.deallocate(stream, gone, bytes, align);
        }});
    block = nullptr;
    if (alv_allocate_raw(of_the_file.native_handle(), 64, 0, nullptr, &block) == ALV_OK) {
        alv_deallocate_raw(of_the_file.native_handle(), block, 64, 0, nullptr);
        found.legacy_stays_legacy = legacy;
    }
    return found;
}
