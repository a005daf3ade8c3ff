// Do the types of CCCL that erase a resource work over the handle? On a simulated machine.
//
// It counts the allocations of the host: a handle goes into `any_resource` without one, and a block comes out without one.
#include <alluvion.hpp>

#include "../cpp/expect.hpp"

#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#if !ALLUVION_CCCL
#error "this CCCL was not found, or is not used"
#endif

namespace {
// What only this thread changes: the library allocates by itself.
long host_allocations = 0;
} // namespace

void *operator new(std::size_t bytes) {
    ++host_allocations;
    if (void *block = std::malloc(bytes == 0 ? 1 : bytes)) {
        return block;
    }
    throw std::bad_alloc();
}
void operator delete(void *block) noexcept { std::free(block); }
void operator delete(void *block, std::size_t) noexcept { std::free(block); }

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
    long const allocated = host_allocations;
    void *block = get(erased, stream, 1000, 256);
    void *other = get(erased, stream, 1000, 16);
    EXPECT(block != nullptr && other != nullptr && handle.stats()->allocations.value == before + 2);
    put(erased, stream, block, 1000, 256);
    put(erased, stream, other, 1000, 16);
    EXPECT(handle.stats()->allocations.value == before && host_allocations == allocated);
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

    // Layers of ours over an erased resource.
    resource over = resource::over("stats", resource::from_source(erased));
    block = over.allocate(stream, 100);
    EXPECT(block != nullptr && over.stats()->bytes.value == 100 && handle.stats()->bytes.value == 100);
    over.deallocate(stream, block, 100);
    EXPECT(over.stats()->bytes.value == 0 && handle.stats()->bytes.value == 0);
    EXPECT(test::throws<alluvion::out_of_memory>([&] { static_cast<void>(over.allocate(stream, std::size_t{1} << 40)); }));
}
#endif

#if CCCL_VERSION >= 3004000
void environments(resource &handle, cuda::stream_ref stream) {
    cuda::std::execution::env env{stream, handle};
    resource const &found = mr::get_memory_resource(env);
    EXPECT(found == handle);
    cuda::std::execution::env by_prop{stream, cuda::std::execution::prop{mr::get_memory_resource_t{}, handle}};
    EXPECT(mr::get_memory_resource(by_prop) == handle);
}
#endif

} // namespace

int main() {
    test::sim sim;
    resource handle("stats | pool(maximum=64MiB) | cuda-async");
    alluvion::stream stream;
    // The first use of a thread, a stream and a size makes what later ones find.
    for (int round = 0; round < 2; ++round) {
        std::vector<void *> blocks;
        for (int number = 0; number < 4; ++number) {
            blocks.push_back(handle.allocate(stream, 1000));
            blocks.push_back(handle.allocate_sync(1000));
        }
        for (std::size_t number = 0; number < blocks.size(); ++number) {
            number % 2 == 0 ? handle.deallocate(stream, blocks[number], 1000) : handle.deallocate_sync(blocks[number], 1000);
        }
    }
    copies_without_an_allocation(handle);
    refs(handle, stream);
#if CCCL_VERSION >= 3002000
    owners(handle, stream);
#endif
#if CCCL_VERSION >= 3004000
    environments(handle, stream);
#endif
    return test::failures == 0 ? 0 : 1;
}
