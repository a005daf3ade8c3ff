// Do blocks outlive their process in a file, and does what sleeps go to a disk and come back?
#include <alluvion.hpp>
#include <alluvion/containers.hpp>

#include "expect.hpp"

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <type_traits>
#include <unistd.h>
#include <vector>

using alluvion::saved_file;
using alluvion::saver;

static_assert(std::is_nothrow_move_constructible_v<saver> && std::is_nothrow_move_assignable_v<saved_file>);
static_assert(!std::is_copy_constructible_v<saver> && !std::is_copy_constructible_v<saved_file>);

namespace {

/// A folder of this program, which goes with it.
struct folder {
    std::filesystem::path const path =
        std::filesystem::temp_directory_path() / ("alluvion-saved-cpp-" + std::to_string(::getpid()));

    folder() { std::filesystem::create_directories(path); }
    ~folder() { std::filesystem::remove_all(path); }

    [[nodiscard]] std::string file() const { return (path / "model").string(); }
    [[nodiscard]] std::size_t files() const {
        auto const entries = std::filesystem::directory_iterator(path);
        return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
    }
};

void blocks_are_saved_and_restored() {
    folder const here;
    test::sim const sim;
    alluvion::resource const stack("pool | cuda");
    alluvion::stream const stream;
    alluvion::device_uvector<int> weights(3'000'000, stream, stack);
    weights.set_element(0, 7, stream);
    weights.set_element(2'999'999, 42, stream);
    std::size_t const bytes = weights.size() * sizeof(int);
    {
        saver file(here.file());
        file.save("weights", stack, weights.data(), bytes, stream);
        file.save("", stack, nullptr, 0, stream);
        EXPECT(!std::filesystem::exists(here.file()));
        saver moved(std::move(file));
        EXPECT(moved.finish() == std::filesystem::file_size(here.file()));
        EXPECT(test::throws<alluvion::error>([&] { moved.finish(); },
                                             [](auto const &thrown) { return thrown.status() == ALV_INVALID_ARGUMENT; }));
    }
    {
        saver given_up(here.file());
        given_up.save("other", stack, weights.data(), 4, stream);
    }
    EXPECT(here.files() == 1);
    saved_file file(here.file());
    EXPECT((file.names() == std::vector<std::string>{"weights", ""}));
    EXPECT(file.bytes("weights") == bytes && file.bytes("") == 0);
    alluvion::device_uvector<int> restored(weights.size(), stream, stack);
    file.restore("weights", stack, restored.data(), bytes, stream);
    EXPECT(restored.element(0, stream) == 7 && restored.element(2'999'999, stream) == 42);
    file.restore("", stack, nullptr, 0, stream);
    EXPECT(test::throws<alluvion::error>([&] { file.restore("weights", stack, restored.data(), 4, stream); },
                                         [](auto const &thrown) { return thrown.status() == ALV_LENGTH_MISMATCH; }));
    EXPECT(test::throws<alluvion::error>([&] { (void)file.bytes("wieghts"); },
                                         [](auto const &thrown) { return thrown.status() == ALV_INVALID_ARGUMENT; }));
    std::ofstream(here.file()) << "no such file";
    EXPECT(test::throws<alluvion::error>([&] { saved_file again(here.file()); },
                                         [](auto const &thrown) { return thrown.status() == ALV_MALFORMED; }));
}

void what_sleeps_is_kept_on_a_disk() {
    folder const here;
    test::sim const sim;
    alluvion::resource const stack("stats | tracking | pool | mapped");
    alluvion::stream const stream;
    alluvion::device_uvector<int> weights(1 << 20, stream, stack);
    weights.set_element(1'000'000, 42, stream);
    auto asleep = alluvion::sleeper::on_disk(stack, here.path.string());
    EXPECT(asleep.is_asleep() && asleep.figures().kept_bytes == std::size_t{4} << 20 && here.files() == 1);
    asleep.wake();
    EXPECT(weights.element(1'000'000, stream) == 42 && here.files() == 0);
    auto const unwritable = [](auto const &thrown) { return thrown.status() == ALV_UNWRITABLE; };
    EXPECT(test::throws<alluvion::error>([&] { (void)alluvion::sleeper::on_disk(stack, here.file()); }, unwritable));
    EXPECT(weights.element(1'000'000, stream) == 42);
    auto const of_a_tag = alluvion::sleeper::on_disk(stack, here.path.string(), "nobody");
    EXPECT(of_a_tag.figures().blocks == 0 && here.files() == 0);

    auto one = alluvion::sleeper::on_disk(stack, weights.data(), stream, here.path.string());
    EXPECT(one.figures().blocks == 1 && one.figures().kept_bytes == std::size_t{4} << 20 && here.files() == 1);
    one.wake();
    EXPECT(weights.element(1'000'000, stream) == 42 && here.files() == 0);
    EXPECT(test::throws<alluvion::error>([&] { (void)alluvion::sleeper::on_disk(stack, weights.data(), stream, here.file()); },
                                         unwritable));
    EXPECT(test::throws<alluvion::error>([&] { (void)alluvion::sleeper::on_disk(stack, nullptr, stream, here.path.string()); },
                                         [](auto const &thrown) { return thrown.status() == ALV_INVALID_ARGUMENT; }));
}

} // namespace

int main() {
    blocks_are_saved_and_restored();
    what_sleeps_is_kept_on_a_disk();
    return test::failures == 0 ? 0 : 1;
}
