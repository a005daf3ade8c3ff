// What is a handle of C++ good for? Every member, on a simulated machine, with and without CCCL on the path.
#include <alluvion.hpp>

#include "expect.hpp"

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <vector>

using alluvion::resource;
using alluvion::stream_view;

static_assert(sizeof(resource) == sizeof(void *));
static_assert(std::is_nothrow_copy_constructible_v<resource> && std::is_nothrow_move_constructible_v<resource>);
static_assert(std::is_nothrow_copy_assignable_v<resource> && std::is_nothrow_move_assignable_v<resource>);
static_assert(!std::is_default_constructible_v<resource>);
static_assert(!std::is_convertible_v<char const *, resource>, "a recipe is no resource by itself");

namespace {

template <class First, class = void>
constexpr bool takes = false;
template <class First>
constexpr bool takes<First, std::void_t<decltype(std::declval<resource const &>().allocate(std::declval<First>(), std::size_t{4096}))>> =
    true;

// `allocate(0, 4096)` looks like a stream and a size. It was 0 bytes with an alignment, and so a null pointer.
static_assert(!takes<int> && !takes<long> && !takes<std::nullptr_t>);
static_assert(takes<stream_view> && takes<alluvion::stream const &> && takes<alv_cuda_stream> && takes<std::size_t>);

bool aligned(void *block, std::size_t align) { return reinterpret_cast<std::uintptr_t>(block) % align == 0; }

void handles() {
    test::sim sim;
    resource first("stats | pool | cuda-async", 0);
    EXPECT(first);
    resource copy(first);
    EXPECT(copy == first && copy.native_handle() == first.native_handle());
    resource other("cuda-async");
    EXPECT(other != first);
    other = first;
    EXPECT(other == first);
    resource &self = other;
    other = self;
    EXPECT(other == first);
    resource moved(std::move(other));
    EXPECT(!other && moved == first && other != first);
    other = std::move(moved);
    EXPECT(other == first && !moved);
    other = std::move(self);
    EXPECT(other == first);

    alv_resource *counted = alv_resource_retain(first.native_handle());
    EXPECT(resource::adopt(counted) == first);
    EXPECT(resource::retain(first.native_handle()) == first);
    resource given("cuda");
    resource taken = resource::adopt(given.release());
    EXPECT(!given && taken);
}

void moved_from() {
    test::sim sim;
    resource gone("cuda");
    resource here(std::move(gone));
    EXPECT(test::throws<std::logic_error>([&] { static_cast<void>(gone.allocate(stream_view{}, 8)); }));
    EXPECT(test::throws<std::logic_error>([&] { static_cast<void>(gone.allocate_sync(8)); }));
    EXPECT(test::throws<std::logic_error>([&] { static_cast<void>(gone.describe()); }));
    EXPECT(test::throws<std::logic_error>([&] { static_cast<void>(gone.stats()); }));
    EXPECT(test::throws<std::logic_error>([&] { static_cast<void>(gone.device()); }));
    EXPECT(test::throws<std::logic_error>([&] { static_cast<void>(resource::over("stats", gone)); }));
    void *block = here.allocate_sync(8);
    gone.deallocate_sync(block, 8);
    gone.deallocate(stream_view{}, block, 8);
    here.deallocate_sync(block, 8);
    resource copy(gone);
    EXPECT(!copy && copy == gone);
}

void calls() {
    // It sees no wrong free, of which there is one here.
    test::sim sim{1, std::size_t{1} << 30, true};
    resource pool("stats | pool | cuda-async");
    alluvion::stream stream;
    alv_cuda_stream const raw = stream.value();
    std::vector<void *> blocks{
        pool.allocate(stream.view(), 100),        pool.allocate(stream.view(), 100, 16), pool.allocate(raw, 100, 256),
        pool.allocate(stream, 100),               pool.allocate(stream, 100, 64),        pool.allocate_async(100, 16, raw),
        pool.allocate_async(100, stream.view()),
    };
    for (void *block : blocks) {
        EXPECT(block != nullptr && aligned(block, 256));
    }
    EXPECT(pool.stats()->allocations.value == 7 && pool.stats()->bytes.value == 700);
    // Alignments up to 256 are one.
    pool.deallocate(stream.view(), blocks[0], 100, 1);
    pool.deallocate(stream.view(), blocks[1], 100);
    pool.deallocate(raw, blocks[2], 100, 16);
    pool.deallocate(stream, blocks[3], 100);
    pool.deallocate(stream, blocks[4], 100, 64);
    pool.deallocate_async(blocks[5], 100, 16, raw);
    pool.deallocate_async(blocks[6], 100, stream.view());
    EXPECT(pool.stats()->allocations.value == 0);

    void *block = pool.allocate(100);
    pool.deallocate(block, 100);
    block = pool.allocate_sync(4096, 4096);
    EXPECT(aligned(block, 4096));
    pool.deallocate(block, 4096, 4096);
    block = pool.allocate_sync(100, 32);
    pool.deallocate_sync(block, 100, 32);

    EXPECT(pool.refused_frees() == 0);
    resource const watched("tracking | cuda");
    watched.deallocate_sync(watched.allocate_sync(100), 50);
    EXPECT(watched.refused_frees() == 1 && resource(watched).refused_frees() == 1);
    watched.outstanding([&](alv_block const &left) { watched.deallocate_sync(left.address, left.bytes); });

    EXPECT(pool.allocate(stream, 0) == nullptr && pool.allocate_sync(0) == nullptr);
    pool.deallocate(stream, nullptr, 100);
    pool.deallocate_sync(nullptr, 0);
    stream.synchronize();
}

void questions() {
    test::sim sim(2);
    resource pool("stats | pool | cuda-async", 1);
    EXPECT(pool.device() == 1 && pool.device() != alluvion::device_id(0));
    EXPECT(pool.describe().rfind("Stats(", 0) == 0 && test::contains(pool.describe(), "Pool("));
    EXPECT(pool.max_align() >= 256);
    void *block = pool.allocate_sync(1000);
    EXPECT(pool.stats()->bytes.value == 1000);
    EXPECT(pool.status()->live_blocks == 1);
    EXPECT(pool.memory_info().total_bytes >= pool.memory_info().available_bytes);
    EXPECT(pool.memory_info().total_bytes > 0);
    EXPECT(test::contains(pool.metrics("mine"), "mine"));
    EXPECT(test::contains(pool.snapshot(), "{"));
    pool.deallocate_sync(block, 1000);
    EXPECT(pool.trim() > 0);
    EXPECT(pool.status()->reserved_bytes == 0);
    pool.flush_log();

    resource bare("cuda-async", 1);
    EXPECT(!bare.stats() && !bare.status());
    EXPECT(test::throws<alluvion::error>([&] { static_cast<void>(bare.push_stats()); },
                                         [](auto &thrown) { return thrown.status() == ALV_UNSUPPORTED; }));
    EXPECT(test::throws<alluvion::error>([&] { bare.snapshot("/nowhere/at/all"); }));
    EXPECT(test::throws<alluvion::error>([&] { pool.snapshot("/no such folder/snapshot.json"); },
                                         [](auto &thrown) { return thrown.status() == ALV_UNWRITABLE; }));
    EXPECT(test::throws<alluvion::error>([&] { pool.snapshot(std::string("a\0b", 3)); },
                                         [](auto &thrown) { return thrown.status() == ALV_INVALID_ARGUMENT; }));
}

void scopes() {
    test::sim sim;
    resource pool("stats | tracking | pool | cuda-async");
    void *before = pool.allocate_sync(10);
    void *within = nullptr;
    {
        alluvion::stats_scope scope(pool);
        alluvion::tag_scope outer("outer");
        alluvion::tag_scope inner("inner");
        within = pool.allocate_sync(1000);
        EXPECT(scope.so_far().bytes.value == 1000);
        int seen = 0;
        pool.outstanding([&](alv_block const &block) {
            ++seen;
            if (block.address == within) {
                EXPECT(test::contains(block.tag, "outer") && test::contains(block.tag, "inner"));
                EXPECT(block.bytes == 1000);
            }
        });
        EXPECT(seen == 2);
        seen = 0;
        pool.outstanding([&](alv_block const &) { return ++seen < 1; });
        EXPECT(seen == 1);
        EXPECT(test::throws<int>([&] { pool.outstanding([](alv_block const &) { throw 7; }); },
                                 [](int thrown) { return thrown == 7; }));
    }
    EXPECT(pool.stats()->bytes.value == 1010);
    EXPECT(test::throws<alluvion::error>([] { alluvion::tag_scope scope(std::string_view("a\0b", 3)); }));
    pool.deallocate_sync(before, 10);
    pool.deallocate_sync(within, 1000);
}

void layers() {
    test::sim sim;
    resource source("cuda-async");
    resource over = resource::over("stats | pool", source);
    EXPECT(test::contains(over.describe(), "CudaAsync"));
    EXPECT(test::throws<alluvion::invalid_recipe>([&] { static_cast<void>(resource::over("stats | nothing", source)); },
                                                  [](auto &thrown) { return thrown.column() == 9; }));

    EXPECT(alluvion::current_resource() == alluvion::current_resource(0));
    resource before = alluvion::current_resource();
    EXPECT(alluvion::set_current_resource(over) == before);
    EXPECT(alluvion::current_resource() == over && resource::current() == over);
    EXPECT(alluvion::reset_current_resource() == over);
    EXPECT(alluvion::current_resource() == before);
}

void buffers() {
    test::sim sim;
    resource pool("stats | pool | cuda-async");
    alluvion::stream stream;
    {
        alluvion::buffer empty;
        alluvion::buffer bytes(1000, stream, pool);
        EXPECT(bytes.size() == 1000 && bytes.data() != nullptr && !bytes.is_empty());
        EXPECT(bytes.memory_resource() == pool && bytes.stream() == stream.view());
        std::vector<unsigned char> from(1000, 5), back(1000, 0);
        pool.copy(bytes.data(), from.data(), from.size(), stream);
        pool.fill(bytes.data(), 9, 10, stream);
        pool.copy(back.data(), bytes.data(), back.size(), stream);
        pool.synchronize(stream);
        EXPECT(back[0] == 9 && back[9] == 9 && back[10] == 5 && back[999] == 5);

        alluvion::buffer moved(std::move(bytes));
        EXPECT(bytes.is_empty() && bytes.data() == nullptr && moved.size() == 1000);
        empty = std::move(moved);
        EXPECT(empty.size() == 1000 && pool.stats()->allocations.value == 1);
        void *block = empty.release();
        EXPECT(empty.is_empty() && pool.stats()->allocations.value == 1);
        alluvion::buffer adopted = alluvion::buffer::adopt(block, 1000, stream, pool);
        EXPECT(adopted.size() == 1000);
        alluvion::buffer none(0, stream, pool);
        EXPECT(none.data() == nullptr && none.is_empty());
    }
    EXPECT(pool.stats()->allocations.value == 0);
    EXPECT(test::throws<alluvion::bad_alloc>([&] { alluvion::buffer huge(SIZE_MAX, stream, pool); }));
}

} // namespace

void many() {
    test::sim sim;
    resource const pool("stats | pool(maximum=4MiB) | cuda");
    std::vector<std::size_t> const sizes{1 << 20, 1000, 2 << 20};
    auto const blocks = pool.allocate_many(stream_view{}, sizes);
    EXPECT(blocks.size() == 3 && pool.stats()->allocations.value == 3);
    EXPECT(test::throws<alluvion::out_of_memory>([&] { static_cast<void>(pool.allocate_many(stream_view{}, sizes)); }));
    EXPECT(test::throws<std::invalid_argument>([&] { pool.deallocate_many(stream_view{}, blocks, {1 << 20}); }));
    EXPECT(pool.stats()->allocations.value == 3);
    pool.deallocate_many(stream_view{}, blocks, sizes);
    EXPECT(pool.stats()->allocations.value == 0 && pool.allocate_many(stream_view{}, {}).empty());
    EXPECT(alv_synchronize(pool.native_handle(), nullptr) == ALV_OK);
    pool.defragment();
    EXPECT(pool.status()->largest_free_bytes >= 2 << 20);
    EXPECT(test::throws<alluvion::error>([] { resource("cuda").defragment(); }));
}

void found_by_a_guard() {
    test::sim sim;
    resource const guarded("guard | cuda");
    int told = 0;
    guarded.on_violation([&told](alv_violation const &found) {
        told += found.kind == ALV_VIOLATION_WRONG_LAYOUT ? 1 : 100;
        throw std::runtime_error("nobody hears this");
    });
    void *block = guarded.allocate(stream_view{}, 1000);
    guarded.deallocate(stream_view{}, block, 999);
    int listed = 0;
    guarded.violations([&listed](alv_violation const &found) {
        EXPECT(found.bytes == 1000 && std::strstr(found.text, "as one of 999 bytes") != nullptr);
        ++listed;
    });
    EXPECT(told == 1 && listed == 1);
    EXPECT(test::throws<std::runtime_error>([&] {
        guarded.violations([](alv_violation const &) { throw std::runtime_error("this one is thrown on"); });
    }));
    EXPECT(test::throws<alluvion::error>([] { resource("cuda").on_violation([](alv_violation const &) {}); }));
}

int main() {
    handles();
    moved_from();
    calls();
    questions();
    scopes();
    layers();
    buffers();
    many();
    found_by_a_guard();
    return test::failures == 0 ? 0 : 1;
}
