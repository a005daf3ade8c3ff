// What is thrown, with which figures, and by which policy?
#include <alluvion.hpp>

#include "expect.hpp"

#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>

using alluvion::basic_resource;
using alluvion::resource;
using alluvion::stream_view;

static_assert(std::is_base_of_v<std::runtime_error, alluvion::error>);
static_assert(std::is_base_of_v<alluvion::error, alluvion::invalid_recipe>);
static_assert(std::is_base_of_v<std::bad_alloc, alluvion::bad_alloc>);
static_assert(std::is_base_of_v<alluvion::bad_alloc, alluvion::out_of_memory>);
static_assert(std::is_nothrow_copy_constructible_v<alluvion::error> && std::is_nothrow_copy_constructible_v<alluvion::bad_alloc>);
static_assert(std::is_nothrow_copy_constructible_v<alluvion::out_of_memory>);

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

/// The exceptions of a program.
struct own_error {
    alv_status status;
    std::string message;
};
struct own_errors {
    [[noreturn]] static void raise(alv_status status, alv_error_info const &info, char const *message) {
        EXPECT(info.status == status);
        throw own_error{status, message};
    }
};
using own_resource = basic_resource<own_errors>;

bool begins(char const *text, char const *with) { return std::strncmp(text, with, std::strlen(with)) == 0; }

void memory() {
    test::sim sim;
    resource pool("limiting(64MiB) | pool(maximum=8MiB) | cuda-async");
    EXPECT(test::throws<alluvion::out_of_memory>(
        [&] { static_cast<void>(pool.allocate(stream_view{}, 16 * mib)); },
        [](alluvion::out_of_memory const &thrown) {
            return begins(thrown.what(), "std::bad_alloc: out_of_memory: ") && thrown.status() == ALV_OUT_OF_MEMORY &&
                   thrown.requested_bytes() == 16 * mib && thrown.report() && thrown.report()->requested_bytes == 16 * mib &&
                   thrown.report()->maximum_bytes == 8 * mib && std::string(thrown.report()->refused_by) == "Pool";
        }));
    EXPECT(test::throws<std::bad_alloc>([&] { static_cast<void>(pool.allocate_sync(16 * mib)); }));
    // The report is of its own request, also when another fails later.
    try {
        static_cast<void>(pool.allocate_sync(16 * mib));
    } catch (alluvion::out_of_memory const &thrown) {
        alluvion::out_of_memory const copy(thrown);
        EXPECT(test::throws<std::bad_alloc>([&] { static_cast<void>(pool.allocate_sync(32 * mib)); }));
        EXPECT(copy.requested_bytes() == 16 * mib && test::contains(copy.what(), "16"));
        EXPECT(std::string(copy.what()) == thrown.what());
    }

    auto const status = [](alv_status expected) {
        return [expected](alluvion::bad_alloc const &thrown) {
            return thrown.status() == expected && begins(thrown.what(), "std::bad_alloc: ") &&
                   !test::contains(thrown.what(), "out_of_memory");
        };
    };
    for (std::size_t bytes : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX - 100}) {
        EXPECT(test::throws<alluvion::bad_alloc>([&] { static_cast<void>(pool.allocate(stream_view{}, bytes)); },
                                                 status(ALV_SIZE_OVERFLOW)));
    }
    EXPECT(test::throws<alluvion::bad_alloc>([&] { static_cast<void>(pool.allocate(stream_view{}, 8, 48)); },
                                             status(ALV_INVALID_ALIGNMENT)));
    resource driver("cuda");
    EXPECT(test::throws<alluvion::bad_alloc>([&] { static_cast<void>(driver.allocate(stream_view{}, 8, std::size_t{1} << 40)); },
                                             status(ALV_UNSUPPORTED_ALIGNMENT)));
    // Every size may be asked for at 0.
    driver.deallocate_sync(driver.allocate_sync(8, 0), 8, 0);
}

void others() {
    test::sim sim;
    EXPECT(test::throws<alluvion::invalid_recipe>([] { resource none("pool | nothing"); }, [](auto const &thrown) {
        return thrown.column() == 8 && thrown.status() == ALV_MALFORMED && test::contains(thrown.what(), "nothing");
    }));
    EXPECT(test::throws<alluvion::error>([] { resource none("cuda", 7); },
                                         [](auto const &thrown) { return thrown.status() == ALV_NO_DEVICE; }));
    EXPECT(test::throws<alluvion::error>([] { resource none(std::string_view("cuda\0| x", 8)); },
                                         [](auto const &thrown) { return thrown.status() == ALV_INVALID_ARGUMENT; }));

    resource driver("cuda-async");
    sim.fail("cuMemAllocFromPoolAsync", 1, 999);
    EXPECT(test::throws<alluvion::error>([&] { static_cast<void>(driver.allocate(stream_view{}, 8)); }, [](auto const &thrown) {
        return thrown.status() == ALV_DRIVER && thrown.cuda_code() == 999 &&
               test::contains(thrown.what(), "cuMemAllocFromPoolAsync");
    }));
    sim.fail("cuMemAllocFromPoolAsync", 1, 2);
    EXPECT(test::throws<alluvion::out_of_memory>([&] { static_cast<void>(driver.allocate(stream_view{}, 24)); },
                                                 [](auto const &thrown) { return thrown.requested_bytes() == 24; }));
    void *block = driver.allocate(stream_view{}, 8);
    driver.deallocate(stream_view{}, block, 8);
}

void policies() {
    test::sim sim;
    resource const ours("pool(maximum=8MiB) | cuda-async");
    own_resource own = ours;
    EXPECT(own.native_handle() == ours.native_handle() && own == ours && ours == own && !(own != ours));
    EXPECT(test::throws<own_error>([&] { static_cast<void>(own.allocate(stream_view{}, 16 * mib)); }, [](auto const &thrown) {
        return thrown.status == ALV_OUT_OF_MEMORY && !begins(thrown.message.c_str(), "std::") && !thrown.message.empty();
    }));
    EXPECT(test::throws<own_error>([] { own_resource none("nothing"); }));
    EXPECT(test::throws<own_error>([] { own_resource none(std::string_view("\0", 1)); }));
    EXPECT(test::throws<own_error>([&] { static_cast<void>(own_resource::over("stats | nothing", own)); }));
    EXPECT(test::throws<own_error>([&] { static_cast<void>(own_resource::current(7)); }));
    EXPECT(test::throws<own_error>([&] { static_cast<void>(own.push_stats()); }));
    alv_resource *handle = own.native_handle();
    resource back(std::move(own));
    EXPECT(!own && back.native_handle() == handle);
    EXPECT(test::throws<std::logic_error>([&] { static_cast<void>(own.allocate_sync(8)); }));
    EXPECT(test::throws<std::logic_error>([&] { alluvion::set_current_resource(own); }));
    // A block of one goes back by the other.
    void *block = own_resource(back).allocate_sync(8);
    back.deallocate_sync(block, 8);
}

} // namespace

int main() {
    alluvion::check_version();
    memory();
    others();
    policies();
    return test::failures == 0 ? 0 : 1;
}
