// What of a request reaches a resource of the program's, and what of its answer comes back? Sizes, alignments, addresses, exceptions.
#include <rmm/cuda_stream.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/aligned_resource_adaptor.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>

#include "expect.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr rmm::cuda_stream_view on_default{};
constexpr std::size_t mib = std::size_t{1} << 20;

/// The exceptions of a program, by numbers.
[[noreturn]] void throw_number(int number) {
    switch (number) {
    case 0:
        throw std::bad_alloc();
    case 1:
        throw rmm::bad_alloc("refused");
    case 2:
        throw rmm::out_of_memory("full");
    case 3:
        throw rmm::cuda_error("of the device");
    default:
        throw std::range_error("of the program");
    }
}

rmm::mr::callback_memory_resource throwing(int number) {
    return {[number](std::size_t, rmm::cuda_stream_view, void *) -> void * { throw_number(number); },
            [](void *, std::size_t, rmm::cuda_stream_view, void *) {}};
}

// What is thrown by `number` comes out of a resource: without more, the exception itself.
template <class Resource>
void comes_out(char const *what, Resource resource, int number) {
    bool held = false;
    std::string said;
    try {
        static_cast<void>(resource.allocate(on_default, 64, 256));
    } catch (rmm::out_of_memory const &failure) {
        said = failure.what();
        held = number == 0 || number == 2;
    } catch (rmm::bad_alloc const &failure) {
        said = failure.what();
        held = number == 1 && said == "std::bad_alloc: refused";
    } catch (rmm::cuda_error const &failure) {
        said = failure.what();
        held = number == 3 && said == "of the device";
    } catch (std::range_error const &failure) {
        said = failure.what();
        held = number == 4 && said == "of the program";
    } catch (std::exception const &failure) {
        said = failure.what();
    }
    if (!held) {
        std::fprintf(stderr, "%s: exception %d does not come out as it is: %s\n", what, number, said.c_str());
        ++test::failures;
    }
}

template <class Make>
void each_comes_out(Make const &make) {
    using namespace rmm::mr;
    for (int number = 0; number < 5; ++number) {
        comes_out("statistics", statistics_resource_adaptor{make(number)}, number);
        comes_out("two layers", tracking_resource_adaptor{statistics_resource_adaptor{make(number)}}, number);
        comes_out("limiting", limiting_resource_adaptor{make(number), mib}, number);
        comes_out("thread safe", thread_safe_resource_adaptor{make(number)}, number);
        comes_out("binning", binning_memory_resource{make(number)}, number);
        int asked = 0;
        auto const once = [](std::size_t, void *asked) { return ++*static_cast<int *>(asked) < 2; };
        // Asked where memory runs out, and nowhere else.
        comes_out("failure callback", failure_callback_resource_adaptor<>{make(number), once, &asked}, number);
        EXPECT(asked == (number == 0 || number == 2 ? 2 : 0));
        // One that catches more is asked about more.
        asked = 0;
        comes_out("wide failure callback", failure_callback_resource_adaptor<rmm::bad_alloc>{make(number), once, &asked}, number);
        EXPECT(asked == (number <= 2 ? 2 : 0));
    }
}

// The exception of an earlier request is not that of a later one.
void exceptions_do_not_mix() {
    rmm::mr::callback_memory_resource first = throwing(4);
    rmm::mr::callback_memory_resource second = throwing(1);
    rmm::mr::statistics_resource_adaptor counted{second};
    for (int round = 0; round < 3; ++round) {
        comes_out("first", first, 4);
        comes_out("second", counted, 1);
        comes_out("without memory", throwing(2), 2);
    }
    // A failure that no function has led to is what the library says.
    EXPECT(test::throws<rmm::logic_error>([&] { static_cast<void>(first.push_stats()); }));
}

// Alignments that nothing can serve.
void alignments() {
    rmm::cuda_stream stream;
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::callback_memory_resource called([](std::size_t, rmm::cuda_stream_view, void *) { return reinterpret_cast<void *>(4096); },
                                             [](void *, std::size_t, rmm::cuda_stream_view, void *) {});
    rmm::mr::fixed_size_memory_resource fixed{cuda, 1024, 4};
    for (std::size_t const align : {std::size_t{3}, std::size_t{768}, std::size_t{1} << 40}) {
        EXPECT(test::throws<rmm::bad_alloc>([&] { static_cast<void>(cuda.allocate(stream.view(), 64, align)); }));
        EXPECT(test::throws<rmm::bad_alloc>([&] { static_cast<void>(cuda.allocate_sync(64, align)); }));
        EXPECT(test::throws<rmm::bad_alloc>([&] { static_cast<void>(called.allocate(stream.view(), 64, align)); }));
        EXPECT(test::throws<rmm::bad_alloc>([&] { static_cast<void>(fixed.allocate(stream.view(), 64, align)); }));
        rmm::mr::pool_memory_resource pool{cuda, mib};
        EXPECT(test::throws<rmm::bad_alloc>([&] { static_cast<void>(pool.allocate(stream.view(), 64, align)); }));
    }
    EXPECT(test::throws<rmm::bad_alloc>([&] { rmm::device_buffer none(64, std::size_t{512}, stream, cuda); }));
    struct alignas(512) wide {
        int value;
    };
    EXPECT(test::throws<rmm::bad_alloc>([&] { rmm::device_uvector<wide> none(1, stream, cuda); }));
    EXPECT(test::throws<rmm::bad_alloc>([&] { rmm::device_uvector<wide> none(1, stream, called); }));
    // Where RMM's pool refuses, ours serves.
    rmm::mr::pool_memory_resource pool{cuda, mib};
    rmm::device_uvector<wide> served(3, stream, pool);
    EXPECT(reinterpret_cast<std::uintptr_t>(served.data()) % 512 == 0);
}

// A callback is told no alignment, so its addresses are what they are.
void any_address() {
    std::vector<std::size_t> freed;
    rmm::mr::callback_memory_resource odd([](std::size_t, rmm::cuda_stream_view, void *) { return reinterpret_cast<void *>(123); },
                                          [&freed](void *block, std::size_t bytes, rmm::cuda_stream_view, void *) {
                                              freed.push_back(reinterpret_cast<std::uintptr_t>(block) + bytes);
                                          });
    rmm::mr::statistics_resource_adaptor counted{odd};
    rmm::mr::tracking_resource_adaptor tracked{counted};
    void *const block = tracked.allocate(on_default, 5);
    EXPECT(reinterpret_cast<std::uintptr_t>(block) == 123 && tracked.get_allocated_bytes() == 5);
    tracked.deallocate(on_default, block, 5);
    EXPECT(freed == std::vector<std::size_t>{128} && counted.get_bytes_counter().value == 0);
    // Memory that is carved up must be aligned.
    rmm::mr::pool_memory_resource pool{counted, 0};
    EXPECT(test::throws<rmm::logic_error>([&] { static_cast<void>(pool.allocate(on_default, 5)); }));
    EXPECT(counted.get_bytes_counter().value == 0);
}

#if ALLUVION_COMPAT_RMM_CCCL

/// A resource of the program's own that writes down what it is asked, and answers what it is told to.
struct noted_resource {
    struct call {
        char what;
        std::uintptr_t block;
        std::size_t bytes;
        std::size_t align;

        bool operator==(call const &other) const {
            return what == other.what && block == other.block && bytes == other.bytes && align == other.align;
        }
    };
    struct state {
        std::vector<call> calls;
        std::uintptr_t answer = 0;
        int throws = -1;
    };
    std::shared_ptr<state> shared = std::make_shared<state>();

    void *allocate(cuda::stream_ref, std::size_t bytes, std::size_t align) {
        if (shared->throws >= 0) {
            throw_number(shared->throws);
        }
        shared->calls.push_back({'a', shared->answer, bytes, align});
        return reinterpret_cast<void *>(shared->answer);
    }
    void deallocate(cuda::stream_ref, void *block, std::size_t bytes, std::size_t align) noexcept {
        shared->calls.push_back({'d', reinterpret_cast<std::uintptr_t>(block), bytes, align});
    }
    void *allocate_sync(std::size_t bytes, std::size_t align) { return allocate(cuda::stream_ref{cudaStream_t{}}, bytes, align); }
    void deallocate_sync(void *block, std::size_t bytes, std::size_t align) noexcept {
        deallocate(cuda::stream_ref{cudaStream_t{}}, block, bytes, align);
    }
    friend bool operator==(noted_resource const &first, noted_resource const &second) { return first.shared == second.shared; }
    [[maybe_unused]] friend bool operator!=(noted_resource const &first, noted_resource const &second) { return first.shared != second.shared; }
    [[maybe_unused]] friend constexpr void get_property(noted_resource const &, cuda::mr::device_accessible) noexcept {}

    /// The calls since the last time.
    std::vector<call> take() { return std::exchange(shared->calls, {}); }
};

using calls = std::vector<noted_resource::call>;

template <class Resource>
std::uintptr_t allocated_and_freed(Resource resource, std::size_t bytes, std::size_t align) {
    void *const block = resource.allocate(on_default, bytes, align);
    resource.deallocate(on_default, block, bytes, align);
    return reinterpret_cast<std::uintptr_t>(block);
}

void own_resources() {
    using namespace rmm::mr;
    noted_resource own;
    each_comes_out([&own](int number) {
        own = noted_resource{};
        own.shared->throws = number;
        return own;
    });
    own = noted_resource{};

    // The alignment of a request reaches both calls below, and so does an address that is aligned to nothing.
    for (std::size_t const align : {std::size_t{256}, std::size_t{512}, std::size_t{4096}}) {
        own.shared->answer = align == 256 ? 123 : 8192;
        calls const both{{'a', own.shared->answer, 100, align}, {'d', own.shared->answer, 100, align}};
        EXPECT(allocated_and_freed(statistics_resource_adaptor{own}, 100, align) == own.shared->answer && own.take() == both);
        EXPECT(allocated_and_freed(tracking_resource_adaptor{own}, 100, align) == own.shared->answer && own.take() == both);
        EXPECT(allocated_and_freed(limiting_resource_adaptor{own, mib}, 100, align) == own.shared->answer && own.take() == both);
        EXPECT(allocated_and_freed(thread_safe_resource_adaptor{own}, 100, align) == own.shared->answer && own.take() == both);
        EXPECT(allocated_and_freed(binning_memory_resource{own}, 100, align) == own.shared->answer && own.take() == both);
        failure_callback_resource_adaptor<> asking{own, [](std::size_t, void *) { return false; }, nullptr};
        EXPECT(allocated_and_freed(asking, 100, align) == own.shared->answer && own.take() == both);
    }
    // Zero bytes are a request of the smallest bin like any other, and of the upstream where there is no bin.
    own.shared->answer = 123;
    calls const nothing{{'a', 123, 0, 64}, {'d', 123, 0, 64}};
    binning_memory_resource without_bins{own};
    EXPECT(allocated_and_freed(without_bins, 0, 64) == 123 && own.take() == nothing);
    noted_resource larger;
    noted_resource smaller;
    smaller.shared->answer = 123;
    binning_memory_resource bins{own};
    bins.add_bin(4096, rmm::device_async_resource_ref{larger});
    bins.add_bin(512, rmm::device_async_resource_ref{smaller});
    EXPECT(allocated_and_freed(bins, 0, 64) == 123 && smaller.take() == nothing && larger.take().empty() && own.take().empty());
    void *const none = bins.allocate_sync(0, 64);
    bins.deallocate_sync(none, 0, 64);
    EXPECT(smaller.take() == nothing);
    // A bin of ours has nothing for no bytes.
    binning_memory_resource powers{cuda_memory_resource{}, 10, 12};
    EXPECT(allocated_and_freed(powers, 0, 256) == 0);

    // What is aligned asks for room, and for what is aligned already for none; both are given back as they were asked for.
    aligned_resource_adaptor aligned{own, 4096, 65536};
    EXPECT(allocated_and_freed(aligned, 3, 256) == 123);
    EXPECT((own.take() == calls{{'a', 123, 3, 256}, {'d', 123, 3, 256}}));
    own.shared->answer = 4096;
    EXPECT(allocated_and_freed(aligned, 65536, 256) == 4096);
    EXPECT((own.take() == calls{{'a', 4096, 69376, 256}, {'d', 4096, 69376, 256}}));
    own.shared->answer = 256;
    EXPECT(allocated_and_freed(aligned, 65536, 256) == 4096);
    EXPECT((own.take() == calls{{'a', 256, 69376, 256}, {'d', 256, 69376, 256}}));
    // What is moved within its memory, or carved up, must begin at a multiple of 256: it would end beyond it.
    own.shared->answer = 123;
    EXPECT(test::throws<rmm::logic_error>([&] { static_cast<void>(aligned.allocate(on_default, 65536)); }));
    EXPECT((own.take() == calls{{'a', 123, 69376, 256}, {'d', 123, 69376, 256}}));
    EXPECT(test::throws<std::exception>([&] { pool_memory_resource{own, mib}; }));
}

#endif

} // namespace

int main() {
    test::sim sim;
    each_comes_out(throwing);
    for (int number = 0; number < 5; ++number) {
        comes_out("callback", throwing(number), number);
    }
    exceptions_do_not_mix();
    alignments();
    any_address();
#if ALLUVION_COMPAT_RMM_CCCL
    own_resources();
#endif
    return test::failures == 0 ? 0 : 1;
}
