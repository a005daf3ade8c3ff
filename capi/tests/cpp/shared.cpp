// Memory that processes share: two processes of a simulated machine, of which one at a time is chosen.
#include <alluvion.hpp>

#include "expect.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

using alluvion::buffer;
using alluvion::imported;
using alluvion::message;
using alluvion::resource;
using alluvion::shared;
using alluvion::stream_view;

static_assert(std::is_nothrow_move_constructible_v<shared> && std::is_nothrow_move_assignable_v<shared>);
static_assert(!std::is_copy_constructible_v<shared> && std::is_nothrow_destructible_v<shared>);
static_assert(std::is_nothrow_move_constructible_v<imported> && std::is_nothrow_move_assignable_v<imported>);
static_assert(!std::is_copy_constructible_v<imported> && std::is_nothrow_destructible_v<imported>);
static_assert(!std::is_convertible_v<buffer, shared>);

namespace {

/// Another process on a simulated machine, and its end without a mistake.
class process {
public:
    explicit process(test::sim const &first) : first_(first) {
        EXPECT(alv_sim_process(first.handle(), &machine_) == ALV_OK);
    }
    process(process const &) = delete;
    process &operator=(process const &) = delete;
    ~process() {
        std::size_t mistakes = 1;
        EXPECT(alv_sim_report(machine_, nullptr, nullptr, &mistakes) == ALV_OK && mistakes == 0);
        alv_machine_release(machine_);
    }

    /// Bare numbers mean its devices while `body` runs.
    template <class Body>
    auto within(Body const &body) const {
        EXPECT(alv_set_machine(machine_) == ALV_OK);
        struct back {
            alv_machine *machine;
            ~back() { alv_set_machine(machine); }
        } const again{first_.handle()};
        return body();
    }

private:
    test::sim const &first_;
    alv_machine *machine_ = nullptr;
};

std::vector<unsigned char> copied(void const *from, std::size_t bytes, alluvion::stream const &on, resource const &by) {
    std::vector<unsigned char> out(bytes);
    by.copy(out.data(), from, bytes, on);
    on.synchronize();
    return out;
}

bool all(std::vector<unsigned char> const &bytes, unsigned char value) {
    return std::all_of(bytes.begin(), bytes.end(), [=](unsigned char byte) { return byte == value; });
}

void reads_and_writes(char const *recipe) {
    test::sim sim;
    process other(sim);
    alluvion::stream stream;
    resource pool(recipe);
    buffer block(3000, stream, pool);
    void const *const place = block.data();
    pool.fill(block.data(), 5, 3000, stream);

    alluvion::share_options how;
    how.writable = true;
    shared lent(std::move(block), how);
    EXPECT(block.is_empty() && lent.block().data() == place && lent.importers() == 0);
    message const sent = lent.message();
    alluvion::message_info const said = alluvion::read_message(sent);
    EXPECT(said.bytes == 3000 && said.visible_bytes >= 3000 && (said.flags & ALV_MESSAGE_WRITABLE) != 0);
    EXPECT(((said.flags & ALV_MESSAGE_NEEDS_DESCRIPTOR) != 0) == (lent.descriptor() >= 0));

    other.within([&] {
        alluvion::stream its_stream;
        resource its_memory("cuda");
        alluvion::open_options options;
        options.writable = true;
        imported opened(sent, lent.descriptor(), its_stream, options);
        EXPECT(opened.size() == 3000 && opened.is_writable() && opened.visible_bytes() >= 3000 && opened.device() == 0);
        EXPECT(all(copied(opened.data(), 3000, its_stream, its_memory), 5));
        its_memory.fill(opened.writable_data(), 6, 3000, its_stream);
        EXPECT(alluvion::sharing_of().imports == 1 && lent.importers() == 1);
        EXPECT(!lent.try_end() && !lent.try_end(std::chrono::milliseconds(1)) && !lent.try_end(std::chrono::milliseconds(-1)));

        // What was moved from has nothing, and a second import ends the first that it is assigned to.
        imported moved(std::move(opened));
        EXPECT(opened.is_empty() && opened.data() == nullptr && !opened.is_writable() && moved.size() == 3000);
        opened = imported(sent, lent.descriptor(), its_stream.view());
        EXPECT(!opened.is_writable() && opened.writable_data() == nullptr && opened.data() == moved.data());
        moved = std::move(opened);
        EXPECT(lent.importers() == 1 && alluvion::sharing_of().imports == 1);
    });
    EXPECT(lent.importers() == 0);
    block = lent.end();
    EXPECT(block.data() == place && block.size() == 3000 && lent.block().is_empty() && lent.descriptor() == -1);
    EXPECT(all(copied(block.data(), 3000, stream, pool), 6));
    EXPECT(test::throws<alluvion::error>([&] { static_cast<void>(lent.end()); }));
    EXPECT(test::throws<alluvion::error>([&] { static_cast<void>(lent.message()); }));
    other.within([&] {
        alluvion::stream its_stream;
        // The descriptor has gone with the end.
        bool const needs_descriptor = (said.flags & ALV_MESSAGE_NEEDS_DESCRIPTOR) != 0;
        EXPECT(test::throws<alluvion::error>([&] { imported late(sent, -1, its_stream); }, [&](auto const &thrown) {
            return thrown.status() == (needs_descriptor ? ALV_INVALID_ARGUMENT : ALV_STALE);
        }));
        EXPECT(test::throws<alluvion::invalid_recipe>([&] { imported none(message{}, -1, its_stream); }));
    });
}

/// A share that goes while others have the buffer leaves it to the library.
void parks() {
    test::sim sim;
    process other(sim);
    alluvion::stream stream;
    resource pool("stats | pool | cuda");
    auto const live = [&] { return pool.stats()->allocations.value; };

    // Nobody has it.
    { shared lent(buffer(3000, stream, pool)); }
    EXPECT(live() == 0 && alluvion::sharing_of().parked == 0);

    other.within([&] {
        alluvion::stream its_stream;
        auto lent = std::make_unique<shared>(buffer(3000, stream, pool));
        imported opened(lent->message(), -1, its_stream);
        lent.reset();
        EXPECT(live() == 1);
        alv_sharing figures = ALV_INIT(alv_sharing);
        EXPECT(alv_sharing_of(sim.handle(), 0, &figures) == ALV_OK && figures.parked == 1 && figures.parked_bytes == 3000);
    });
    EXPECT(alluvion::sweep_shared() == 1 && live() == 0 && alluvion::sharing_of().parked == 0);

    // Assigned over, which ends the one before.
    shared first(buffer(100, stream, pool)), second(buffer(200, stream, pool));
    first = std::move(second);
    EXPECT(live() == 1 && first.block().size() == 200 && second.block().is_empty());
}

void refuses() {
    test::sim sim;
    alluvion::stream stream;
    resource pinned("pinned");
    buffer block(3000, stream, pinned);
    void const *const place = block.data();
    EXPECT(test::throws<alluvion::error>([&] { shared lent(std::move(block)); },
                                         [](auto const &thrown) { return thrown.status() == ALV_UNSUPPORTED; }));
    EXPECT(block.data() == place && block.size() == 3000);
    alluvion::share_options how;
    how.directory = "/no/such/folder";
    resource cuda("cuda");
    buffer other(3000, stream, cuda);
    EXPECT(test::throws<alluvion::error>([&] { shared lent(std::move(other), how); },
                                         [](auto const &thrown) { return thrown.status() == ALV_UNWRITABLE; }));
    EXPECT(other.size() == 3000);
    EXPECT(test::throws<alluvion::invalid_recipe>([] { static_cast<void>(alluvion::read_message({1, 2, 3})); }));

    // In the process itself.
    shared lent(std::move(other));
    EXPECT(test::throws<alluvion::error>([&] { imported own(lent.message(), -1, stream); },
                                         [](auto const &thrown) { return thrown.status() == ALV_OWN_PROCESS; }));
}

void for_every_device() {
    test::sim sim(3);
    auto const stacks = alluvion::per_device("stats | pool(initial=1MiB) | cuda");
    EXPECT(stacks.size() == 3);
    for (int number = 0; number < 3; ++number) {
        EXPECT(stacks[static_cast<std::size_t>(number)].device() == number);
    }
    sim.fail("cuMemAlloc", 2, 2);
    EXPECT(test::throws<alluvion::out_of_memory>([] { static_cast<void>(alluvion::per_device("pool(initial=1MiB) | cuda")); },
                                                 [](auto const &thrown) { return test::contains(thrown.what(), "gpu 1"); }));
}

} // namespace

int main() {
    for (char const *recipe : {"cuda", "pool | cuda", "pool | cuda-async(handles=fd)", "mapped(handles=fd)"}) {
        reads_and_writes(recipe);
    }
    parks();
    refuses();
    for_every_device();
    return test::failures == 0 ? 0 : 1;
}
