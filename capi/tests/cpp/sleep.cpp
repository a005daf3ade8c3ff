// Do stacks sleep and wake: by a tag, as a whole, with contents and without?
#include <alluvion.hpp>
#include <alluvion/containers.hpp>

#include "expect.hpp"

#include <cstddef>
#include <type_traits>
#include <utility>

using alluvion::sleeper;

static_assert(std::is_nothrow_move_constructible_v<sleeper> && std::is_nothrow_move_assignable_v<sleeper>);
static_assert(!std::is_copy_constructible_v<sleeper> && std::is_nothrow_destructible_v<sleeper>);
static_assert(!std::is_convertible_v<alluvion::resource, sleeper>);

namespace {

void sleeps_by_a_tag_and_as_a_whole() {
    test::sim const sim;
    alluvion::resource const stack("stats | tracking | pool | mapped");
    alluvion::host_device_resource const host("pool | pinned");
    alluvion::stream const stream;
    auto const of_tag = [&](char const *tag, std::size_t count, int value) {
        alluvion::tag_scope const scope(tag);
        alluvion::device_uvector<int> made(count, stream, stack);
        made.set_element(count - 1, value, stream);
        return made;
    };
    alluvion::device_uvector<int> const weights = of_tag("weights", 1 << 20, 42);
    int const *const address = weights.data();

    sleeper asleep(stack, host, "weights");
    EXPECT(asleep.is_asleep() && asleep.figures().blocks == 1 && asleep.figures().kept_bytes == std::size_t{4} << 20);
    alluvion::device_uvector<int> const beside = of_tag("cache", 1000, 7);
    asleep.wake();
    asleep.wake();
    EXPECT(!asleep.is_asleep() && weights.data() == address);
    EXPECT(weights.element((1 << 20) - 1, stream) == 42 && beside.element(999, stream) == 7);

    {
        void *const block = stack.allocate(stream, 1 << 20);
        sleeper one(stack, block, stream, host);
        EXPECT(one.is_asleep() && one.figures().blocks == 1);
        one.wake();
        sleeper again(stack, block, stream);
        EXPECT(again.figures().kept_bytes == 0);
        stack.deallocate(stream, block, 1 << 20);
    }

    sleeper all(stack, host);
    EXPECT(all.figures().blocks == 2);
    EXPECT(test::throws<alluvion::error>([&] { alluvion::buffer(1000, stream, stack); },
                                         [](auto const &thrown) { return thrown.status() == ALV_ASLEEP; }));
    sleeper moved(std::move(all));
    moved.wake();
    EXPECT(weights.element((1 << 20) - 1, stream) == 42);
    EXPECT(test::throws<alluvion::error>([&] { all.wake(); },
                                         [](auto const &thrown) { return thrown.status() == ALV_INVALID_ARGUMENT; }));
    moved = sleeper(stack);
    EXPECT(moved.figures().kept_bytes == 0);
    moved.wake();
}

void reads_what_is_kept_while_it_sleeps() {
    test::sim const sim;
    alluvion::resource const stack("pool | mapped");
    alluvion::host_device_resource const host("pool | pinned");
    alluvion::stream const stream;
    alluvion::device_uvector<int> weights(1 << 20, stream, stack);
    weights.set_element(1000, 42, stream);
    sleeper asleep(stack, host);
    int value = 0;
    asleep.read_kept(weights.data() + 1000, &value, sizeof value);
    EXPECT(value == 42 && asleep.is_asleep());
    auto const refuses = [&](sleeper const &of, void const *from, void *into) {
        return test::throws<alluvion::error>([&] { of.read_kept(from, into, sizeof value); },
                                             [](auto const &thrown) { return thrown.status() == ALV_INVALID_ARGUMENT; });
    };
    EXPECT(refuses(asleep, weights.data() + (1 << 20), &value));
    EXPECT(refuses(asleep, nullptr, &value) && refuses(asleep, weights.data(), nullptr));
    asleep.wake();
    EXPECT(refuses(asleep, weights.data(), &value));
    EXPECT(weights.element(1000, stream) == 42);
    sleeper lost(stack);
    EXPECT(refuses(lost, weights.data(), &value) && value == 42);
    lost.wake();
    sleeper const moved(std::move(lost));
    EXPECT(refuses(lost, weights.data(), &value));
}

void refuses_what_has_no_pages() {
    test::sim const sim;
    EXPECT(test::throws<alluvion::error>([] { sleeper(alluvion::resource("pool | cuda")); },
                                         [](auto const &thrown) { return thrown.status() == ALV_UNSUPPORTED; }));
}

} // namespace

int main() {
    sleeps_by_a_tag_and_as_a_whole();
    reads_what_is_kept_while_it_sleeps();
    refuses_what_has_no_pages();
    return test::failures == 0 ? 0 : 1;
}
