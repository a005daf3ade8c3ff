// Do hooks hear of segments, may they refuse, and does a frozen stack say so?
#include <alluvion.hpp>
#include <alluvion/containers.hpp>

#include "expect.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

namespace {

constexpr std::size_t SEGMENT = std::size_t{8} << 20;

void hooks_hear_of_each_segment_once() {
    test::sim const sim;
    auto const known = std::make_shared<std::map<void *, std::size_t>>();
    auto const refuses = std::make_shared<bool>(false);
    {
        alluvion::resource const stack("stats | pool(registered=8MiB, initial=8MiB) | mapped");
        alluvion::on_segment(
            stack,
            [known, refuses](alluvion::segment const &of) {
                if (*refuses) throw std::runtime_error("no more can be registered");
                EXPECT(known->emplace(of.address, of.bytes).second && of.device == 0);
            },
            [known](alluvion::segment const &of) { EXPECT(known->erase(of.address) == 1); });
        EXPECT(known->size() == 1 && alluvion::segments(stack).size() == 1);
        EXPECT(known->begin()->second == SEGMENT && known->begin()->first == alluvion::segments(stack)[0].address);
        alluvion::stream const stream;
        alluvion::buffer const first(SEGMENT, stream, stack);
        alluvion::buffer const second(100, stream, stack);
        EXPECT(known->size() == 2 && alluvion::segments(stack).size() == 2);
        *refuses = true;
        auto const is_foreign = [](auto const &thrown) { return thrown.status() == ALV_FOREIGN; };
        EXPECT(test::throws<alluvion::error>([&] { alluvion::buffer(SEGMENT, stream, stack); }, is_foreign));
        EXPECT(known->size() == 2);
        *refuses = false;
        // The one that is set last hears of all that is there, and may throw.
        EXPECT(test::throws<alluvion::error>(
            [&] {
                alluvion::on_segment(
                    stack, [](alluvion::segment const &) { throw std::logic_error("not these"); },
                    [](alluvion::segment const &) {});
            },
            is_foreign));
        known->clear();
    }
    EXPECT(known.use_count() == 1 && refuses.use_count() == 1);
}

void a_frozen_stack_refuses() {
    test::sim const sim;
    alluvion::resource const stack("pool(initial=8MiB) | mapped");
    alluvion::freeze(stack);
    alluvion::stream const stream;
    alluvion::buffer const fits(1000, stream, stack);
    EXPECT(test::throws<alluvion::bad_alloc>([&] { alluvion::buffer(2 * SEGMENT, stream, stack); },
                                             [](auto const &) { return true; }));
    EXPECT(test::throws<alluvion::error>([] { alluvion::freeze(alluvion::resource("cuda")); },
                                         [](auto const &thrown) { return thrown.status() == ALV_UNSUPPORTED; }));
}

} // namespace

int main() {
    hooks_hear_of_each_segment_once();
    a_frozen_stack_refuses();
    return test::failures == 0 ? 0 : 1;
}
