// What if the memory, or the help in need, comes from the program, and throws?
#include <alluvion.hpp>

#include "expect.hpp"

#include <atomic>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

using alluvion::oom_report;
using alluvion::resource;
using alluvion::stream_view;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

/// A source over a resource, which counts, and throws what it is told to.
struct counting_source {
    struct record {
        std::atomic<int> allocations{0}, frees{0}, gone{0};
        std::atomic<int> throws{0};
        alv_cuda_stream last_stream = nullptr;
        std::size_t last_align = 0;
    };

    explicit counting_source(record &kept) : upstream("cuda-async"), kept_(&kept, [](record *of) { ++of->gone; }) {}

    void *allocate(stream_view stream, std::size_t bytes, std::size_t align) {
        record &kept = *kept_;
        kept.last_stream = stream.value();
        kept.last_align = align;
        switch (kept.throws.load()) {
        case 1:
            throw std::bad_alloc();
        case 2:
            throw alluvion::bad_alloc(ALV_SIZE_OVERFLOW, 0, "too much");
        case 3:
            throw alluvion::error(ALV_CAPTURE, 0, "not now");
        case 4:
            throw 7;
        case 5:
            return nullptr;
        case 6:
            throw alluvion::error(ALV_OK, 0, "no failure");
        default:
            break;
        }
        ++kept.allocations;
        return upstream.allocate(stream, bytes, align);
    }
    void deallocate(stream_view stream, void *block, std::size_t bytes, std::size_t align) {
        upstream.deallocate(stream, block, bytes, align);
        ++kept_->frees;
        if (kept_->throws == 9) {
            throw std::runtime_error("a free that fails");
        }
    }

    resource upstream;
    // One for all copies.
    std::shared_ptr<record> kept_;
};

void sources() {
    test::sim sim;
    counting_source::record record;
    {
        resource source = resource::from_source(counting_source(record));
        EXPECT(record.gone == 0);
        alluvion::stream stream;
        void *block = source.allocate(stream, 1000, 64);
        EXPECT(block != nullptr && record.allocations == 1 && record.last_stream == stream.value() && record.last_align == 256);
        source.deallocate(stream, block, 1000, 64);
        EXPECT(record.frees == 1);
        block = source.allocate(stream_view{}, 8);
        EXPECT(stream_view(record.last_stream).is_default() && record.last_stream == stream_view{}.value());
        source.deallocate(stream_view{}, block, 8);

        auto const answers = [&](int what, auto &&matches) {
            record.throws = what;
            try {
                static_cast<void>(source.allocate(stream, 8));
            } catch (alluvion::bad_alloc const &thrown) {
                return matches(thrown.status());
            } catch (alluvion::error const &thrown) {
                return matches(thrown.status());
            }
            return false;
        };
        auto const is = [](alv_status expected) { return [expected](alv_status status) { return status == expected; }; };
        EXPECT(answers(1, is(ALV_OUT_OF_MEMORY)));
        EXPECT(answers(2, is(ALV_SIZE_OVERFLOW)));
        EXPECT(answers(3, is(ALV_FOREIGN)));
        EXPECT(answers(4, is(ALV_FOREIGN)));
        EXPECT(answers(5, is(ALV_OUT_OF_MEMORY)));
        EXPECT(answers(6, is(ALV_FOREIGN)));
        record.throws = 0;

        // Layers over it, and a free that throws.
        resource layered = resource::over("stats | pool", source);
        std::vector<void *> blocks;
        for (int number = 0; number < 100; ++number) {
            blocks.push_back(layered.allocate(stream, 1000));
        }
        EXPECT(record.allocations > 2 && record.allocations < 100);
        for (void *block_of_pool : blocks) {
            layered.deallocate(stream, block_of_pool, 1000);
        }
        record.throws = 9;
        static_cast<void>(layered.trim());
        record.throws = 0;
        EXPECT(record.gone == 0);
    }
    EXPECT(record.gone == 1 && record.frees == record.allocations);

    // A source that is refused is destroyed once, too.
    EXPECT(test::throws<alluvion::bad_alloc>([&] { static_cast<void>(resource::from_source(counting_source(record), 0, 300)); }));
    EXPECT(record.gone == 2);
    EXPECT(test::throws<alluvion::error>([&] { static_cast<void>(resource::from_source(counting_source(record), 9)); }));
    EXPECT(record.gone == 3);
}

void two_functions() {
    test::sim sim;
    resource upstream("cuda-async");
    std::size_t live = 0;
    resource source = resource::from_source(alluvion::source_functions{
        [&](stream_view stream, std::size_t bytes, std::size_t align) {
            live += bytes;
            return upstream.allocate(stream, bytes, align);
        },
        [&](stream_view stream, void *block, std::size_t bytes, std::size_t align) {
            live -= bytes;
            upstream.deallocate(stream, block, bytes, align);
        }});
    void *block = source.allocate_sync(512);
    EXPECT(live == 512);
    source.deallocate_sync(block, 512);
    EXPECT(live == 0);
}

void handlers() {
    test::sim sim;
    resource pool("pool(maximum=8MiB) | cuda-async");
    alluvion::stream stream;
    void *held = pool.allocate(stream, 6 * mib);
    int asked = 0;
    auto gone = std::make_shared<int>(0);
    {
        resource relieved = pool.with_oom_handler([&, gone](oom_report const &report) {
            ++asked;
            EXPECT(report.requested_bytes == 6 * mib);
            if (held == nullptr) {
                return false;
            }
            pool.deallocate(stream, std::exchange(held, nullptr), 6 * mib);
            return true;
        });
        EXPECT(gone.use_count() == 2);
        void *block = relieved.allocate(stream, 6 * mib);
        EXPECT(block != nullptr && asked == 1 && held == nullptr);
        EXPECT(test::throws<alluvion::out_of_memory>([&] { static_cast<void>(relieved.allocate(stream, 6 * mib)); }));
        EXPECT(asked == 2);
        relieved.deallocate(stream, block, 6 * mib);
    }
    EXPECT(gone.use_count() == 1);

    // A handler that throws is as one that has freed nothing.
    resource throwing = pool.with_oom_handler([&](oom_report const &) -> bool {
        ++asked;
        throw std::runtime_error("no help");
    });
    asked = 0;
    void *block = throwing.allocate(stream, 6 * mib);
    EXPECT(test::throws<alluvion::out_of_memory>([&] { static_cast<void>(throwing.allocate(stream, 6 * mib)); },
                                                 [](auto const &thrown) { return thrown.requested_bytes() == 6 * mib; }));
    EXPECT(asked == 1);
    throwing.deallocate(stream, block, 6 * mib);

    resource moved(std::move(throwing));
    EXPECT(test::throws<std::logic_error>([&] {
        static_cast<void>(throwing.with_oom_handler([gone](oom_report const &) { return false; }));
    }));
    EXPECT(gone.use_count() == 1);
}

/// Handles of one resource, copied, used and dropped by many threads.
void threads() {
    test::sim sim;
    resource pool("stats | pool | cuda-async");
    std::vector<std::thread> workers;
    for (int number = 0; number < 4; ++number) {
        workers.emplace_back([pool] {
            alluvion::stream stream;
            for (int round = 0; round < 200; ++round) {
                resource copy(pool);
                void *block = copy.allocate(stream, 100);
                resource other(std::move(copy));
                other.deallocate(stream, block, 100);
            }
        });
    }
    for (std::thread &worker : workers) {
        worker.join();
    }
    EXPECT(pool.stats()->allocations.total == 800 && pool.stats()->allocations.value == 0);
}

} // namespace

int main() {
    sources();
    two_functions();
    handlers();
    threads();
    return test::failures == 0 ? 0 : 1;
}
