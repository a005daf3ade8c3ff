// Do the types of CCCL that erase a resource work over the handle? On a simulated machine.
//
// It counts the allocations of the host, those of the library too: a handle goes into `any_resource` without one, and a block comes
// out of a cache without one.
#include <alluvion/containers.hpp>

#include "../cpp/expect.hpp"

#include <cstddef>
#include <utility>
#include <vector>

#if !ALLUVION_CCCL
#error "this CCCL was not found, or is not used"
#endif

namespace {
/// The allocations of this thread.
thread_local long host_allocations = 0;
} // namespace

// In front of those of glibc, for the library as well.
extern "C" {
void *__libc_malloc(std::size_t);
void *__libc_calloc(std::size_t, std::size_t);
void *__libc_realloc(void *, std::size_t);
void *__libc_memalign(std::size_t, std::size_t);

void *malloc(std::size_t bytes) noexcept {
    ++host_allocations;
    return __libc_malloc(bytes);
}
void *calloc(std::size_t count, std::size_t bytes) noexcept {
    ++host_allocations;
    return __libc_calloc(count, bytes);
}
void *realloc(void *block, std::size_t bytes) noexcept {
    ++host_allocations;
    return __libc_realloc(block, bytes);
}
int posix_memalign(void **out, std::size_t align, std::size_t bytes) noexcept {
    ++host_allocations;
    *out = __libc_memalign(align, bytes);
    return *out == nullptr ? 12 : 0;
}
void *aligned_alloc(std::size_t align, std::size_t bytes) noexcept {
    ++host_allocations;
    return __libc_memalign(align, bytes);
}
}

namespace mr = cuda::mr;
using alluvion::resource;

namespace {

#if CCCL_VERSION >= 3001000
using sync_ref = mr::synchronous_resource_ref<mr::device_accessible>;
using stream_ordered_ref = mr::resource_ref<mr::device_accessible>;

template <class Resource>
void *get_sync(Resource &from, std::size_t bytes, std::size_t align) {
    return from.allocate_sync(bytes, align);
}
template <class Resource>
void put_sync(Resource &to, void *block, std::size_t bytes, std::size_t align) {
    to.deallocate_sync(block, bytes, align);
}
template <class Resource>
void *get(Resource &from, cuda::stream_ref stream, std::size_t bytes, std::size_t align) {
    return from.allocate(stream, bytes, align);
}
template <class Resource>
void put(Resource &to, cuda::stream_ref stream, void *block, std::size_t bytes, std::size_t align) {
    to.deallocate(stream, block, bytes, align);
}
#else
using sync_ref = mr::resource_ref<mr::device_accessible>;
using stream_ordered_ref = mr::async_resource_ref<mr::device_accessible>;

template <class Resource>
void *get_sync(Resource &from, std::size_t bytes, std::size_t align) {
    return from.allocate(bytes, align);
}
template <class Resource>
void put_sync(Resource &to, void *block, std::size_t bytes, std::size_t align) {
    to.deallocate(block, bytes, align);
}
template <class Resource>
void *get(Resource &from, cuda::stream_ref stream, std::size_t bytes, std::size_t align) {
    return from.allocate_async(bytes, align, stream);
}
template <class Resource>
void put(Resource &to, cuda::stream_ref stream, void *block, std::size_t bytes, std::size_t align) {
    to.deallocate_async(block, bytes, align, stream);
}
#endif

/// Every call of a type that erases, and what reaches the handle.
template <class Erased>
void use(Erased &erased, resource const &handle) {
    auto const live = [&] { return handle.stats()->allocations.value; };
    auto const before = live();
    long const allocated = host_allocations;
    void *block = get_sync(erased, 1000, 256);
    void *other = get_sync(erased, 1000, 16);
    EXPECT(block != nullptr && other != nullptr && live() == before + 2);
    put_sync(erased, block, 1000, 256);
    put_sync(erased, other, 1000, 16);
    EXPECT(live() == before && host_allocations == allocated);
}

template <class Erased>
void use_on_streams(Erased &erased, resource const &handle, cuda::stream_ref stream) {
    use(erased, handle);
    auto const before = handle.stats()->allocations.value;
    // At a free on a stream of somebody else's an event is recorded, and the simulator allocates that: no count there.
    for (cuda::stream_ref each : {stream, static_cast<cuda::stream_ref>(alluvion::stream_view{})}) {
        long const allocated = host_allocations;
        void *block = get(erased, each, 1000, 256);
        void *other = get(erased, each, 1000, 16);
        EXPECT(block != nullptr && other != nullptr && handle.stats()->allocations.value == before + 2);
        put(erased, each, block, 1000, 256);
        put(erased, each, other, 1000, 16);
        EXPECT(handle.stats()->allocations.value == before);
        EXPECT(host_allocations == allocated || each == stream);
    }
    EXPECT(get(erased, stream, 0, 256) == nullptr);
    put(erased, stream, nullptr, 0, 256);
    // What is thrown comes through.
    EXPECT(test::throws<alluvion::out_of_memory>([&] { static_cast<void>(get(erased, stream, std::size_t{1} << 40, 256)); },
                                                 [](auto &thrown) { return thrown.requested_bytes() == std::size_t{1} << 40; }));
    EXPECT(handle.stats()->allocations.value == before);
}

void copies_without_an_allocation(resource const &handle) {
    long const allocated = host_allocations;
    {
        resource copy(handle);
        resource moved(std::move(copy));
        copy = handle;
        moved = copy;
    }
    EXPECT(host_allocations == allocated);
}

void containers_without_an_allocation(resource const &handle) {
    long const allocated = host_allocations;
    {
        alluvion::device_uvector<char> vector(1000, alluvion::stream_view{}, handle);
        alluvion::device_uvector<char> moved(std::move(vector));
        alluvion::device_buffer bytes = moved.release();
        alluvion::buffer other(1000, alluvion::stream_view{}, handle);
    }
    EXPECT(host_allocations == allocated);
}

void refs(resource &handle, cuda::stream_ref stream) {
    sync_ref synchronous(handle);
    use(synchronous, handle);
    stream_ordered_ref ordered(handle);
    use_on_streams(ordered, handle, stream);
    stream_ordered_ref again(handle);
    EXPECT(ordered == again);
    resource other("cuda");
    stream_ordered_ref different(other);
    EXPECT(ordered != different);
}

/// Memory of both goes where either is asked for.
void memory_of_both(cuda::stream_ref stream) {
    alluvion::host_device_resource pinned("stats | pool | pinned");
    pinned.deallocate(stream, pinned.allocate(stream, 1000), 1000);
    pinned.deallocate_sync(pinned.allocate_sync(1000), 1000);
#if CCCL_VERSION >= 3001000
    mr::resource_ref<mr::host_accessible, mr::device_accessible> both(pinned);
#else
    mr::async_resource_ref<mr::host_accessible, mr::device_accessible> both(pinned);
#endif
    auto *block = static_cast<int *>(get_sync(both, sizeof(int), alignof(int)));
    *block = 5;
    EXPECT(*block == 5 && pinned.stats()->allocations.value == 1);
    put_sync(both, block, sizeof(int), alignof(int));
    stream_ordered_ref narrowed(both);
    put(narrowed, stream, get(narrowed, stream, 100, 16), 100, 16);
#if CCCL_VERSION >= 3002000
    mr::any_resource<mr::host_accessible, mr::device_accessible> owned(pinned);
    mr::any_resource<mr::device_accessible> of_the_device(owned);
    put(of_the_device, stream, get(of_the_device, stream, 100, 16), 100, 16);
#endif
    EXPECT(pinned.stats()->allocations.value == 0);
}

#if CCCL_VERSION >= 3002000
void owners(resource &handle, cuda::stream_ref stream) {
    using any = mr::any_resource<mr::device_accessible>;
    static_assert(sizeof(any) <= 48);
    long const allocated = host_allocations;
    {
        any erased(handle);
        any copy(erased);
        any moved(std::move(copy));
        copy = moved;
        EXPECT(erased == moved && host_allocations == allocated);
    }
    any erased(handle);
    use_on_streams(erased, handle, stream);
    mr::any_synchronous_resource<mr::device_accessible> synchronous(erased);
    use(synchronous, handle);
    stream_ordered_ref borrowed(erased);
    use_on_streams(borrowed, handle, stream);
    any owned_again(borrowed);
    use_on_streams(owned_again, handle, stream);
    EXPECT(owned_again == erased);
    any of_another(resource("cuda"));
    EXPECT(of_another != erased);

    // The last handle is the erased one.
    any last(resource("stats | pool | cuda-async"));
    void *block = last.allocate(stream, 100, 16);
    last.deallocate(stream, block, 100, 16);
}
#endif

/// Layers of ours over a resource of another library, whose calls have the names of its CCCL.
void layers(resource &handle, cuda::stream_ref stream) {
    stream_ordered_ref borrowed(handle);
    resource over = resource::over("stats", resource::from_source(borrowed));
    void *block = over.allocate(stream, 100);
    EXPECT(block != nullptr && over.stats()->bytes.value == 100 && handle.stats()->bytes.value == 100);
    over.deallocate(stream, block, 100);
    EXPECT(over.stats()->bytes.value == 0 && handle.stats()->bytes.value == 0);
    EXPECT(test::throws<alluvion::out_of_memory>([&] { static_cast<void>(over.allocate(stream, std::size_t{1} << 40)); }));
}

#if CCCL_VERSION >= 3004000
void environments(resource &handle, cuda::stream_ref stream) {
    cuda::std::execution::env env{stream, handle};
    resource const &found = mr::get_memory_resource(env);
    EXPECT(found == handle);
    // What a resource says of its memory when it is asked by a value.
    alluvion::host_device_resource pinned("pinned");
    EXPECT(get_property(mr::resource_ref<mr::device_accessible>(handle), mr::dynamic_accessibility_property{}) !=
           get_property(mr::resource_ref<mr::device_accessible>(pinned), mr::dynamic_accessibility_property{}));
    cuda::std::execution::env by_prop{stream, cuda::std::execution::prop{mr::get_memory_resource_t{}, handle}};
    EXPECT(mr::get_memory_resource(by_prop) == handle);
}
#endif

} // namespace

int main() {
    // What a machine that looks into pools notes takes heap of its own.
    test::sim sim{1, std::size_t{1} << 30, true};
    resource handle("stats | pool(maximum=64MiB) | cuda-async");
    alluvion::stream stream;
    // The first use of a thread, a stream and a size makes what later ones find.
    for (int round = 0; round < 2; ++round) {
        std::vector<void *> blocks;
        for (int number = 0; number < 4; ++number) {
            blocks.push_back(handle.allocate(alluvion::stream_view{}, 1000));
            blocks.push_back(handle.allocate_sync(1000));
        }
        for (std::size_t number = 0; number < blocks.size(); ++number) {
            if (number % 2 == 0) {
                handle.deallocate(alluvion::stream_view{}, blocks[number], 1000);
            } else {
                handle.deallocate_sync(blocks[number], 1000);
            }
        }
    }
    long const before = host_allocations;
    static_cast<void>(handle.describe());
    EXPECT(host_allocations > before);
    copies_without_an_allocation(handle);
    containers_without_an_allocation(handle);
    refs(handle, stream);
    memory_of_both(stream);
    layers(handle, stream);
#if CCCL_VERSION >= 3002000
    owners(handle, stream);
#endif
#if CCCL_VERSION >= 3004000
    environments(handle, stream);
#endif
    return test::failures == 0 ? 0 : 1;
}
