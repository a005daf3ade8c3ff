// What of a limit is set aside, and who hears that it is nearly used up?
#include <alluvion.hpp>

#include "expect.hpp"

#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <utility>

using alluvion::reservation;
using alluvion::resource;
using alluvion::stream_view;

static_assert(std::is_nothrow_move_constructible_v<reservation> && std::is_nothrow_move_assignable_v<reservation>);
static_assert(!std::is_copy_constructible_v<reservation>);

namespace {

void reservations() {
    test::sim const sim;
    resource const jobs("limiting(8MiB) | cuda");
    {
        reservation first(jobs, 6 << 20);
        EXPECT(first.bytes() == 6 << 20);
        EXPECT(test::throws<alluvion::out_of_memory>([&] { reservation(jobs, 4 << 20); }));
        EXPECT(test::throws<alluvion::out_of_memory>([&] { static_cast<void>(jobs.allocate_sync(4 << 20)); }));
        reservation second(std::move(first));
        EXPECT(first.bytes() == 0 && second.bytes() == 6 << 20);
        first = std::move(second);
    }
    jobs.deallocate_sync(jobs.allocate_sync(4 << 20), 4 << 20);
    EXPECT(test::throws<alluvion::error>([] { reservation(resource("cuda"), 1); }));
}

void observers() {
    test::sim const sim;
    resource const jobs("budget(8MiB, name=jobs, soft=4MiB) | cuda");
    int heard = 0;
    auto const observe = [&heard](alv_crossing const &crossing) {
        heard += crossing.limit_bytes == 8 << 20 && std::strcmp(crossing.name, "jobs") == 0 ? 1 : 100;
        throw std::runtime_error("nobody hears this");
    };
    jobs.on_soft_limit(observe);
    jobs.deallocate_sync(jobs.allocate_sync(6 << 20), 6 << 20);
    jobs.deallocate_sync(jobs.allocate_sync(2 << 20), 2 << 20);
    EXPECT(heard == 1);
    jobs.on_soft_limit(observe, 1 << 20);
    jobs.deallocate_sync(jobs.allocate_sync(2 << 20), 2 << 20);
    EXPECT(heard == 3);
    EXPECT(test::throws<alluvion::error>([&] { resource("cuda").on_soft_limit(observe); }));
}

} // namespace

int main() {
    reservations();
    observers();
    return test::failures == 0 ? 0 : 1;
}
