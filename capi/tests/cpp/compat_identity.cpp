// When are two one? Resources, layers, streams, and containers that were moved, as programs for RMM compare them.
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/aligned_resource_adaptor.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/prefetch_resource_adaptor.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>

#include "expect.hpp"

#include <csignal>
#include <cstdio>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

template <class Resource>
void one_and_another(char const *what, Resource const &one, Resource const &another) {
    Resource const copy = one;
    if (!(one == one) || one != one || !(copy == one) || copy != one) {
        std::fprintf(stderr, "%s: one is not its copy\n", what);
        ++test::failures;
    }
    if (one == another || !(one != another)) {
        std::fprintf(stderr, "%s: one is another\n", what);
        ++test::failures;
    }
    // A handle is sliced off it where there is no CCCL, and knows whose blocks it frees, and nothing else.
#if ALLUVION_COMPAT_RMM_CCCL
    Resource first = one;
    Resource second = another;
    EXPECT(rmm::device_async_resource_ref{first} == rmm::device_async_resource_ref{first});
    EXPECT(rmm::device_async_resource_ref{first} != rmm::device_async_resource_ref{second});
#endif
}

// Layers of one kind are two, over one upstream and over two.
template <class Make>
void layer(char const *what, Make const &make) {
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::managed_memory_resource managed;
    one_and_another(what, make(cuda), make(cuda));
    one_and_another(what, make(cuda), make(managed));
}

void resources() {
    test::sim sim;
    using namespace rmm::mr;
    using any = rmm::detail::any_resource;
    EXPECT(cuda_memory_resource{} == cuda_memory_resource{} && !(cuda_memory_resource{} != cuda_memory_resource{}));
    EXPECT(managed_memory_resource{} == managed_memory_resource{});
    auto const no_memory = [](std::size_t, rmm::cuda_stream_view, void *) -> void * { return nullptr; };
    auto const no_free = [](void *, std::size_t, rmm::cuda_stream_view, void *) {};
    one_and_another("callback", callback_memory_resource(no_memory, no_free), callback_memory_resource(no_memory, no_free));

    layer("aligned", [](any upstream) { return aligned_resource_adaptor{std::move(upstream), 4096}; });
    layer("arena", [](any upstream) { return arena_memory_resource{std::move(upstream), 4 * mib}; });
    layer("binning", [](any upstream) { return binning_memory_resource{std::move(upstream)}; });
    layer("failure callback", [](any upstream) {
        return failure_callback_resource_adaptor<>{std::move(upstream), [](std::size_t, void *) { return false; }, nullptr};
    });
    layer("fixed size", [](any upstream) { return fixed_size_memory_resource{std::move(upstream), 1024, 4}; });
    layer("limiting", [](any upstream) { return limiting_resource_adaptor{std::move(upstream), mib}; });
    layer("pool", [](any upstream) { return pool_memory_resource{std::move(upstream), mib}; });
    layer("prefetch", [](any upstream) { return prefetch_resource_adaptor{std::move(upstream)}; });
    layer("statistics", [](any upstream) { return statistics_resource_adaptor{std::move(upstream)}; });
    layer("thread safe", [](any upstream) { return thread_safe_resource_adaptor{std::move(upstream)}; });
    layer("tracking", [](any upstream) { return tracking_resource_adaptor{std::move(upstream)}; });
}

void streams() {
    test::sim sim;
    rmm::cuda_stream first;
    rmm::cuda_stream const second;
    rmm::cuda_stream_view const view = first.view();
    EXPECT(first == first && !(first != first));
    EXPECT(first != second && !(first == second) && first != rmm::cuda_stream());
    EXPECT(first == view && view == first && !(first != view) && !(view != first));
#if ALLUVION_CCCL
    cuda::stream_ref const reference = first;
    EXPECT(view == reference && reference == view && !(view != reference) && !(reference != view));
    EXPECT(first == reference && reference == first && second != reference && reference != second && !(second == reference));
    EXPECT(alluvion::stream_view(reference) == reference && rmm::cuda_stream_default != reference);
#endif
    EXPECT(second != view && view != second && first != rmm::cuda_stream_view{} && rmm::cuda_stream_default != first);
    rmm::cuda_stream const moved = std::move(first);
    EXPECT(moved == view && !first.is_valid());
    // A stream goes where an alignment, or a value, goes before it.
    EXPECT(rmm::device_buffer(64, 512, moved, rmm::detail::resource("aligned(512) | cuda")).alignment() == 512);
    int const seven = 7;
    EXPECT(rmm::device_scalar<int>(seven, moved).stream() == moved);
}

// The resource and the alignment that a container was made with, wherever it goes, and as it was asked for before.
// A stream that cannot be waited for, as none can in a forked child, ends a process that has asserts.
void asserts() {
    test::sim sim;
    rmm::cuda_stream const stream;
    rmm::cuda_stream_view const view = stream.view();
    stream.synchronize_no_throw();
    view.synchronize_no_throw();
    for (bool const by_view : {false, true}) {
        pid_t const child = fork();
        if (child == 0) {
            // What it writes is expected.
            static_cast<void>(std::freopen("/dev/null", "w", stderr));
            by_view ? view.synchronize_no_throw() : stream.synchronize_no_throw();
            _exit(0);
        }
        int status = 0;
        EXPECT(waitpid(child, &status, 0) == child);
#ifdef NDEBUG
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
#else
        EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#endif
    }
}

void moved_containers() {
    test::sim sim;
    rmm::cuda_stream stream;
    rmm::mr::pool_memory_resource pool{rmm::mr::cuda_memory_resource{}, 0};
    rmm::mr::statistics_resource_adaptor counted{pool};
    rmm::mr::aligned_resource_adaptor wide{counted, 1024};
    {
        rmm::device_buffer buffer(1000, std::size_t{512}, stream, wide);
        rmm::device_async_resource_ref const before = buffer.memory_resource();
        EXPECT(before == rmm::device_async_resource_ref{wide} && buffer.alignment() == 512);
        void const *const where = buffer.data();

        rmm::device_buffer made(std::move(buffer));
        EXPECT(made.data() == where && made.memory_resource() == before && made.alignment() == 512);
        EXPECT(made.memory_resource() == rmm::device_async_resource_ref{wide});
        EXPECT(buffer.data() == nullptr && buffer.size() == 0 && buffer.capacity() == 0 && buffer.stream() == rmm::cuda_stream_default);
        EXPECT(buffer.memory_resource() == before && buffer.alignment() == 512);

        rmm::device_buffer assigned(64, stream, counted);
        assigned = std::move(made);
        EXPECT(assigned.data() == where && assigned.memory_resource() == before && assigned.alignment() == 512);
        EXPECT(made.data() == nullptr && made.memory_resource() == before);
        EXPECT(counted.get_allocations_counter().value == 1);
        // What was moved from goes on where it was.
        made.resize(100, stream);
        EXPECT(made.data() != nullptr && counted.get_allocations_counter().value == 2);
    }
    {
        rmm::device_uvector<double> vector(10, stream, counted);
        rmm::device_async_resource_ref const before = vector.memory_resource();
        rmm::device_uvector<double> made(std::move(vector));
        EXPECT(made.memory_resource() == before && vector.memory_resource() == before);
        rmm::device_uvector<double> assigned(1, stream);
        assigned = std::move(made);
        EXPECT(assigned.memory_resource() == rmm::device_async_resource_ref{counted} && assigned.size() == 10);
        rmm::device_buffer const released = assigned.release();
        EXPECT(released.alignment() == alignof(double) && released.size() == 10 * sizeof(double));
        EXPECT(assigned.memory_resource() == before);

        rmm::device_scalar<int> scalar(stream, counted);
        rmm::device_scalar<int> other(std::move(scalar));
        EXPECT(other.memory_resource() == rmm::device_async_resource_ref{counted});
    }
    EXPECT(counted.get_bytes_counter().value == 0);
}

} // namespace

int main() {
    resources();
    streams();
    asserts();
    moved_containers();
    return test::failures == 0 ? 0 : 1;
}
