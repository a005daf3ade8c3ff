// What the programs in this folder share: a check that names its line, and a simulated machine that must end without a mistake.
#ifndef ALLUVION_TESTS_EXPECT_HPP
#define ALLUVION_TESTS_EXPECT_HPP

#include <alluvion.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace test {

inline int failures = 0;

inline void expect(bool held, char const *text, char const *file, int line) {
    if (!held) {
        std::fprintf(stderr, "%s:%d: does not hold: %s (%s)\n", file, line, text, alv_last_error_message());
        ++failures;
    }
}

/// A simulated machine that bare numbers of devices mean while it lives.
class sim {
public:
    explicit sim(unsigned devices = 1, std::size_t memory_bytes = std::size_t{1} << 30, bool leaves_pools_alone = false) {
        alv_sim_options options = ALV_INIT(alv_sim_options);
        options.devices = devices;
        options.memory_bytes = memory_bytes;
        options.seed = 7;
        options.leaves_pools_alone = leaves_pools_alone;
        if (alv_machine_sim(&options, &machine_) != ALV_OK || alv_set_machine(machine_) != ALV_OK) {
            std::fprintf(stderr, "no simulated machine: %s\n", alv_last_error_message());
            std::abort();
        }
    }
    sim(sim const &) = delete;
    sim &operator=(sim const &) = delete;

    /// Every block is back by now, and no access was without order.
    ~sim() {
        expect(report().empty(), "no mistake and no leak on the simulated machine", __FILE__, __LINE__);
        alv_set_machine(nullptr);
        alv_machine_release(machine_);
    }

    /// The mistakes so far, and the blocks that are out. A device keeps streams and events of its own until the machine goes, and
    /// the pool of its current resource: those lines are left out.
    [[nodiscard]] std::string report() const {
        std::string all;
        auto const write = [](void *user, char const *bytes, std::size_t count) -> int {
            static_cast<std::string *>(user)->append(bytes, count);
            return 0;
        };
        expect(alv_sim_report(machine_, write, &all, nullptr) == ALV_OK, "the report", __FILE__, __LINE__);
        std::string kept;
        for (std::size_t at = 0; at < all.size();) {
            std::size_t const end = std::min(all.find('\n', at), all.size());
            std::string const line = all.substr(at, end - at);
            bool const of_the_device =
                line.rfind("leak: stream ", 0) == 0 || line.rfind("leak: event ", 0) == 0 || line.rfind("leak: pool ", 0) == 0;
            kept += of_the_device ? "" : line + "\n";
            at = end + 1;
        }
        std::fputs(kept.c_str(), stderr);
        return kept;
    }

    [[nodiscard]] alv_machine *handle() const { return machine_; }

    void fail(char const *call, std::uint64_t nth, int code) const {
        expect(alv_sim_fail(machine_, call, nth, code) == ALV_OK, "a fault is injected", __FILE__, __LINE__);
    }

    [[nodiscard]] std::uint64_t calls() const { return alv_sim_calls(machine_); }

private:
    alv_machine *machine_ = nullptr;
};

/// What `body` throws of type `Thrown`, or nothing.
template <class Thrown, class Body, class Look>
bool throws(Body const &body, Look const &look) {
    try {
        body();
    } catch (Thrown const &thrown) {
        return look(thrown);
    } catch (...) {
        return false;
    }
    return false;
}

template <class Thrown, class Body>
bool throws(Body const &body) {
    return throws<Thrown>(body, [](Thrown const &) { return true; });
}

inline bool contains(std::string const &text, char const *part) { return text.find(part) != std::string::npos; }

} // namespace test

#define EXPECT(held) ::test::expect(static_cast<bool>(held), #held, __FILE__, __LINE__)

#endif
