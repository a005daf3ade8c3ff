// Which memory may the host use, and what can `std::pmr` do with it?
#include <alluvion.hpp>
#include <alluvion/pmr.hpp>

#include "expect.hpp"

#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

using alluvion::host_device_resource;
using alluvion::resource;

static_assert(std::is_convertible_v<host_device_resource, resource>);
static_assert(!std::is_convertible_v<resource, host_device_resource>, "a check that may throw is asked for");
static_assert(std::is_constructible_v<host_device_resource, resource const &>);
static_assert(!std::is_assignable_v<host_device_resource &, resource>);
static_assert(sizeof(host_device_resource) == sizeof(void *) && std::is_nothrow_copy_constructible_v<host_device_resource>);

namespace {

void access() {
    test::sim sim;
    for (char const *recipe : {"pinned", "stats | pool | pinned", "managed"}) {
        host_device_resource host(recipe);
        EXPECT(host.host_accessible());
        auto *block = static_cast<unsigned char *>(host.allocate_sync(100));
        block[99] = 7;
        EXPECT(block[99] == 7);
        resource plain = host;
        EXPECT(plain == host && host == plain && plain.host_accessible());
        plain.deallocate_sync(block, 100);
        host_device_resource again(plain);
        EXPECT(again == host);
    }
    auto const refused = [](alluvion::error const &thrown) {
        return thrown.status() == ALV_UNSUPPORTED && test::contains(thrown.what(), "CudaAsync");
    };
    EXPECT(test::throws<alluvion::error>([] { host_device_resource none("pool | cuda-async"); }, refused));
    resource device("cuda-async");
    EXPECT(!device.host_accessible());
    EXPECT(test::throws<alluvion::error>([&] { host_device_resource none(device); }, refused));
    EXPECT(test::throws<alluvion::error>([&] { static_cast<void>(host_device_resource::retain(device.native_handle())); },
                                         refused));
    EXPECT(test::throws<alluvion::error>([] { static_cast<void>(host_device_resource::current()); }, refused));
    host_device_resource over = host_device_resource::over("stats", host_device_resource("pinned"));
    EXPECT(over.host_accessible());
    host_device_resource relieved = over.with_oom_handler([](alluvion::oom_report const &) { return false; });
    EXPECT(relieved.host_accessible());
    host_device_resource moved(std::move(over));
    EXPECT(moved && !over && !over.host_accessible());
    EXPECT(!host_device_resource::adopt(nullptr));
}

void containers_of_std() {
    test::sim sim;
    host_device_resource pinned("stats | pool | pinned");
    alluvion::pmr_resource memory(pinned), same(pinned);
    alluvion::pmr_resource other{host_device_resource("pinned")};
    EXPECT(memory == same && !(memory == other) && !(memory == *std::pmr::new_delete_resource()));
    EXPECT(memory.upstream() == pinned);
    {
        std::pmr::vector<int> numbers(&memory);
        numbers.resize(1000);
        std::iota(numbers.begin(), numbers.end(), 0);
        EXPECT(std::accumulate(numbers.begin(), numbers.end(), 0) == 999 * 500 && pinned.stats()->bytes.value >= 4000);
        std::pmr::string text("a text that is too long for the place within the string itself", &memory);
        EXPECT(pinned.stats()->allocations.value == 2);
    }
    void *none = memory.allocate(0), *another = memory.allocate(0);
    EXPECT(none != nullptr && none != another);
    memory.deallocate(none, 0);
    memory.deallocate(another, 0);
    EXPECT(pinned.stats()->allocations.value == 0);
    EXPECT(test::throws<std::bad_alloc>([&] { static_cast<void>(memory.allocate(std::size_t{1} << 60)); }));
}

} // namespace

int main() {
    access();
    containers_of_std();
    return test::failures == 0 ? 0 : 1;
}
