// The door to PyTorch beside PyTorch's own native allocator, over a runtime without a device and a simulated machine of ours. Functions
// that Python calls: each is a test, and answers null, or what was wrong.
#include "cudart.hpp"

#include "allocator.hpp"

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

// Exported, and in no header that is installed.
namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*body)(DeviceIndex));
}

namespace {

using namespace alluvion_torch;

std::string said;

struct wrong : std::runtime_error {
    using std::runtime_error::runtime_error;
};

#define REQUIRE(condition) \
    if (!(condition)) throw wrong(std::string(#condition) + " does not hold in line " + std::to_string(__LINE__))

template <typename Body> char const *test(Body body) {
    try {
        body();
        return nullptr;
    } catch (std::exception const &error) {
        said = error.what();
        return said.c_str();
    }
}

alv_door_handle *stack_;

int64_t live() {
    alv_door_stats stats;
    REQUIRE(table()->stats(stack_, &stats) == ALV_DOOR_OK);
    return stats.current_count;
}

void install() {
    table()->retain(stack_);
    allocator::the().install({{0, stack_}});
}

allocator::in_use uninstall() {
    std::vector<alv_door_handle *> stacks;
    auto const used = allocator::the().uninstall(stacks);
    for (auto *const stack : stacks) table()->release(stack);
    return used;
}

c10::DataPtr tensor(std::size_t bytes) { return get()->allocate(bytes); }

unsigned long long pools = 0;

// As `torch.cuda.use_mem_pool`: for this thread.
struct use_pool {
    explicit use_pool(pool_id id) : id(id) {
        auto const here = std::this_thread::get_id();
        get()->beginAllocateToPool(0, id, [here](cudaStream_t) { return std::this_thread::get_id() == here; });
    }
    ~use_pool() {
        get()->endAllocateToPool(0, id);
        get()->releasePool(0, id);
    }
    pool_id id;
};

// As `torch.cuda.graph`, on the current stream.
struct capture {
    explicit capture(pool_id id) : id(id), stream(c10::cuda::getCurrentCUDAStream(0).stream()) {
        cudaStream_t const on = stream;
        get()->beginAllocateToPool(0, id, [on](cudaStream_t each) { return each == on; });
        std::lock_guard<std::mutex> const lock(fake::the().mutex);
        fake::the().capturing.insert(stream);
    }
    ~capture() {
        {
            std::lock_guard<std::mutex> const lock(fake::the().mutex);
            fake::the().capturing.erase(stream);
        }
        get()->endAllocateToPool(0, id);
    }
    pool_id id;
    cudaStream_t stream;
};

std::int64_t stat(c10::CachingAllocator::StatArray const &figure) { return figure[0].current; }

struct on_side {
    explicit on_side(int = 0) : side(c10::cuda::getStreamFromPool(false, 0)), guard(side) {}
    c10::cuda::CUDAStream side;
    c10::cuda::CUDAStreamGuard guard;
};

} // namespace

extern "C" {

void host_begin(alv_door_table const *functions, alv_door_handle *stack, void **streams, std::size_t count) {
    table() = functions;
    stack_ = stack;
    for (std::size_t at = 0; at < count; ++at) fake::the().streams.push_back(static_cast<cudaStream_t>(streams[at]));
    // What another library of PyTorch's sets.
    c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
    get()->init(1);
}

char const *host_tensors() {
    return test([] {
        auto early = tensor(1000);
        install();
        REQUIRE(get() == &allocator::the() && allocator::the().is_installed());
        auto const before = live();
        {
            auto one = tensor(1000), two = tensor(5 << 20);
            REQUIRE(live() == before + 2 && one.get() == one.get_context());
            auto const stats = get()->getDeviceStats(0);
            REQUIRE(stat(stats.allocated_bytes) == 512 + 1024 + (5 << 20) + 512);
            REQUIRE(stat(stats.reserved_bytes) >= (5 << 20));
            REQUIRE(tensor(0).get() == nullptr);
        }
        REQUIRE(live() == before && uninstall().any() == false && !allocator::the().is_installed());
        auto plain = tensor(1000);
        REQUIRE(live() == before && get() == &allocator::the());
    });
}

char const *host_pools() {
    return test([] {
        {
            // Installed while a pool is open, which ends after it.
            use_pool const use({0, ++pools});
            install();
        }
        REQUIRE(!uninstall().any());
        pool_id const old{0, ++pools};
        get()->createOrIncrefPool(0, old);
        install();
        auto const before = live();
        {
            pool_id const id{0, ++pools};
            get()->createOrIncrefPool(0, id);
            REQUIRE(get()->getPoolUseCount(0, id) == 1);
            c10::DataPtr inside;
            {
                use_pool const use(id);
                inside = tensor(3 << 20);
                REQUIRE(uninstall().pools == 1 && allocator::the().is_installed());
                std::thread([] { REQUIRE(tensor(100).get() != nullptr); }).join();
            }
            REQUIRE(live() == before + 1 && uninstall().segments == 1);
            get()->releasePool(0, id);
            inside.clear();
            get()->emptyCache(id);
            REQUIRE(live() == before);
        }
        {
            // A pool of before keeps PyTorch's own memory, and its record of streams.
            use_pool const use(old);
            auto const inside = tensor(3 << 20);
            REQUIRE(live() == before);
            on_side const side;
            {
                std::lock_guard<std::mutex> const lock(fake::the().mutex);
                fake::the().busy.insert(side.side.stream());
            }
            get()->recordStream(inside, side.side);
        }
        auto const waiting = get()->getDeviceStats(0);
        REQUIRE(stat(waiting.active_bytes) >= (3 << 20));
        {
            std::lock_guard<std::mutex> const lock(fake::the().mutex);
            fake::the().busy.clear();
        }
        pool_id const late{0, ++pools};
        get()->createOrIncrefPool(0, late);
        REQUIRE(!uninstall().any());
        {
            // Without a stack its segments are the driver's.
            use_pool const use(late);
            auto const inside = tensor(3 << 20);
            REQUIRE(inside.get() != nullptr && live() == before);
        }
        get()->releasePool(0, late);
        get()->releasePool(0, old);
        get()->emptyCache({0, 0});
        REQUIRE(fake::the().wrong_frees == 0);
    });
}

char const *host_captures() {
    return test([] {
        install();
        auto const before = live();
        pool_id const id{++pools, 0};
        // A pool that is over, whose segments PyTorch gives back at the next occasion: within the capture.
        pool_id const over{0, ++pools};
        {
            use_pool const use(over);
            auto const inside = tensor(3 << 20);
        }
        on_side const side;
        auto given = tensor(1 << 20), user = tensor(2 << 20);
        get()->recordStream(user, c10::cuda::getDefaultCUDAStream(0));
        c10::DataPtr result;
        {
            capture const graph(id);
            result = tensor(1 << 20);
            auto const live_within = live();
            given.clear();
            user.clear();
            REQUIRE(live() == live_within && stat(get()->getDeviceStats(0).active_bytes) >= (4 << 20));
            // Another thread goes on, gives PyTorch's memory back, and breaks nothing.
            std::thread([] {
                auto other = tensor(4 << 20);
                get()->emptyCache({0, 0});
            }).join();
        }
        REQUIRE(live() <= before + 2 && fake::the().broken == 0);
        result.clear();
        get()->releasePool(0, id);
        get()->emptyCache({0, 0});
        REQUIRE(live() == before && !uninstall().any());
    });
}

char const *host_streams() {
    return test([] {
        install();
        auto const before = live();
        on_side const side;
        auto block = tensor(1 << 20);
        void *const address = block.get();
        auto const user = c10::cuda::getDefaultCUDAStream(0);
        get()->recordStream(block, user);
        {
            std::lock_guard<std::mutex> const lock(fake::the().mutex);
            fake::the().busy.insert(user.stream());
        }
        block.clear();
        auto other = tensor(1 << 20);
        REQUIRE(live() == before + 2 && other.get() != address);
        {
            std::lock_guard<std::mutex> const lock(fake::the().mutex);
            fake::the().busy.clear();
        }
        auto third = tensor(100);
        REQUIRE(live() == before + 2);
        other.clear();
        third.clear();
        REQUIRE(live() == before);
        // An event that cannot be recorded leaves the block where it is, and the stack cannot go.
        auto lost = tensor(1 << 20);
        get()->recordStream(lost, user);
        fake::the().refuses_events = true;
        lost.clear();
        fake::the().refuses_events = false;
        REQUIRE(live() == before + 1 && uninstall().blocks == 1);
    });
}

char const *host_limits() {
    return test([] {
        install();
        auto const refused = [](std::size_t bytes) {
            try {
                auto const block = tensor(bytes);
                return std::string();
            } catch (c10::OutOfMemoryError const &error) {
                return std::string(error.what());
            }
        };
        auto const text = refused(std::size_t{1} << 45);
        REQUIRE(text.find("Tried to allocate 32768.00 GiB") != text.npos && text.find("Pool of gpu 0 refused") != text.npos);
        REQUIRE(refused(std::size_t{1} << 61).find("1EB") != text.npos);
        // Whoever is told of it may ask for the stacks to go, and hears why they cannot.
        std::string heard;
        get()->attachOutOfMemoryObserver([&heard](int64_t, std::size_t, std::size_t, std::size_t) {
            try {
                (void)uninstall();
            } catch (c10::Error const &error) {
                heard = error.what();
            }
        });
        REQUIRE(!refused(std::size_t{1} << 45).empty() && heard.find("cannot take the stacks away") != heard.npos);
        get()->setMemoryFraction(0.01, 0);
        REQUIRE(refused(32 << 20).find("set_per_process_memory_fraction") != text.npos);
        get()->setMemoryFraction(1.0, 0);
        REQUIRE(refused(32 << 20).empty() && get()->getDeviceStats(0).num_ooms >= 2);
        // A wrong free is PyTorch's own exception, and a second one too.
        void *const bare = get()->raw_alloc(1000);
        get()->raw_delete(bare);
        for (int turn = 0; turn < 2; ++turn) {
            bool is_refused = false;
            try {
                get()->raw_delete(bare);
            } catch (c10::Error const &) {
                is_refused = true;
            }
            REQUIRE(is_refused);
        }
        // Memory that PyTorch has cached goes back as such, whatever the setting is by then.
        c10::DataPtr cached;
        pool_id const id{0, ++pools};
        get()->createOrIncrefPool(0, id);
        {
            use_pool const use(id);
            cached = tensor(1000);
        }
        get()->enable(false);
        cached.clear();
        get()->enable(true);
        get()->releasePool(0, id);
        // Memory that PyTorch does not cache keeps its own deleter.
        get()->enable(false);
        auto plain = tensor(1000);
        get()->enable(true);
        plain.clear();
        REQUIRE(fake::the().wrong_frees == 0);
    });
}

char const *host_snapshots() {
    return test([] {
        install();
        get()->recordHistory(true, [] { return std::shared_ptr<c10::GatheredContext>(); }, 4, RecordContext::ALL, false, {});
        std::vector<c10::DataPtr> kept;
        for (std::size_t size = 1; size < 20; ++size) kept.push_back(tensor(size * 100'000));
        kept.erase(kept.begin() + 3);
        auto const snapshot = get()->snapshot({0, 0}, true);
        auto const stats = get()->getDeviceStats(0);
        std::int64_t allocated = 0, reserved = 0;
        for (auto const &segment : snapshot.segments) {
            std::size_t sum = 0;
            for (auto const &block : segment.blocks) {
                REQUIRE(block.size < (std::size_t{1} << 40));
                sum += block.size;
            }
            REQUIRE(sum == segment.total_size);
            allocated += static_cast<std::int64_t>(segment.allocated_size);
            reserved += static_cast<std::int64_t>(segment.total_size);
        }
        REQUIRE(allocated == stat(stats.allocated_bytes) && reserved == stat(stats.reserved_bytes));
        REQUIRE(snapshot.device_traces.at(0).size() == 4);
        // What was asked for, and not the length of the block: as PyTorch's own.
        REQUIRE(snapshot.device_traces.at(0).at(1).size_ == 1'900'000);
        REQUIRE(snapshot.device_traces.at(0).at(2).size_ == 400'000 && snapshot.device_traces.at(0).at(3).size_ == 400'000);
        REQUIRE(get()->snapshot({0, 0}, false).segments.size() < snapshot.segments.size());
        get()->recordHistory(false, nullptr, 1, RecordContext::NEVER, true, {});
    });
}

// Threads that allocate, beside one that installs and uninstalls.
char const *host_threads() {
    return test([] {
        std::atomic<bool> is_over{false};
        std::vector<std::thread> threads;
        std::atomic<int> failed{0};
        for (int seed = 0; seed < 4; ++seed)
            threads.emplace_back([&is_over, &failed, seed] {
                std::vector<c10::DataPtr> kept;
                for (std::size_t turn = 0; !is_over.load(); ++turn) {
                    kept.push_back(tensor(1 + (turn * 7919 + static_cast<std::size_t>(seed) * 104729) % 300'000));
                    if (kept.back().get() == nullptr) ++failed;
                    if (kept.size() > 8) kept.clear();
                }
            });
        int uninstalled = 0;
        for (int turn = 0; turn < 300; ++turn) {
            install();
            for (int attempt = 0; attempt < 20 && allocator::the().is_installed(); ++attempt) uninstalled += !uninstall().any();
        }
        is_over.store(true);
        for (auto &each : threads) each.join();
        if (allocator::the().is_installed()) REQUIRE(!uninstall().any());
        REQUIRE(failed.load() == 0 && fake::the().wrong_frees == 0 && live() == 0);
    });
}

// Pools that come and go in a thread with the interpreter, which Python calls while another thread asks for figures.
char const *host_pools_come_and_go(int turns) {
    return test([turns] {
        for (int turn = 0; turn < turns; ++turn) {
            pool_id const id{0, ++pools};
            get()->createOrIncrefPool(0, id);
            {
                use_pool const use(id);
                auto const inside = tensor(3 << 20);
            }
            get()->releasePool(0, id);
            get()->emptyCache(id);
        }
    });
}

std::int64_t host_allocated() { return stat(get()->getDeviceStats(0).allocated_bytes); }

void host_install() { install(); }

double host_pair_ns(std::size_t bytes, int native) {
    auto *const from = native ? &allocator::the().native() : get();
    double best = 1e18;
    for (int run = 0; run < 7; ++run) {
        auto const begin = std::chrono::steady_clock::now();
        for (int turn = 0; turn < 20000; ++turn) auto const block = from->allocate(bytes);
        best = std::min(best, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / 20000);
    }
    return best;
}
}
