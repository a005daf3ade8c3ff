// What is a container's new stream ordered behind? A write that the old stream still has queued must not land in the next life of the
// block, and a read on the new stream must see it.
#include <rmm/cuda_stream.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include "expect.hpp"

#include <utility>
#include <vector>

namespace {

using flags = rmm::cuda_stream::flags;

/// Two streams that nothing orders, and a pool.
struct scene {
    test::sim sim;
    rmm::mr::pool_memory_resource pool{rmm::mr::cuda_memory_resource{}, 1 << 20};
    rmm::cuda_stream first{flags::non_blocking};
    rmm::cuda_stream second{flags::non_blocking};

    /// What was wrong so far.
    [[nodiscard]] std::string mistakes() const { return sim.report(); }
};

void write(void *to, rmm::cuda_stream const &stream) { rmm::detail::fill(rmm::cuda_device_id{0}, to, 7, 64, stream); }

// The simulated machine reports every access that is not ordered, at the end.
template <class Use>
void in_order(char const *what, Use const &use) {
    scene here;
    use(here);
    here.first.synchronize();
    here.second.synchronize();
    std::string const said = here.mistakes();
    if (test::contains(said, "race: ") || test::contains(said, "use ")) {
        std::fprintf(stderr, "%s is not in order\n", what);
        ++test::failures;
    }
}

} // namespace

int main() {
    in_order("a read of a buffer on its new stream", [](scene &here) {
        rmm::device_buffer buffer(64, here.first, here.pool);
        write(buffer.data(), here.first);
        buffer.set_stream(here.second);
        EXPECT(buffer.stream() == here.second);
        rmm::device_buffer const copy(buffer, here.second, here.pool);
    });
    in_order("the next life of a block", [](scene &here) {
        rmm::device_buffer buffer(64, here.first, here.pool);
        write(buffer.data(), here.first);
        void const *const where = buffer.data();
        buffer.set_stream(here.second);
        buffer = rmm::device_buffer();
        // The block was freed on the second stream, and is served there again.
        rmm::device_buffer again(64, here.second, here.pool);
        EXPECT(again.data() == where);
        write(again.data(), here.second);
    });
    in_order("a scalar on its new stream", [](scene &here) {
        long const value = 5;
        rmm::device_scalar<long> scalar(value, here.first, here.pool);
        scalar.set_stream(here.second);
        EXPECT(scalar.value(here.second) == 5);
    });
    in_order("a vector on its new stream", [](scene &here) {
        rmm::device_uvector<long> vector(4, here.first, here.pool);
        vector.set_element_to_zero_async(3, here.first);
        vector.set_stream(here.second);
        EXPECT(vector.back_element(here.second) == 0);
    });
    in_order("a vector that grows on another stream", [](scene &here) {
        rmm::device_uvector<long> vector(4, here.first, here.pool);
        for (std::size_t index = 0; index < 4; ++index) {
            vector.set_element_to_zero_async(index, here.first);
        }
        vector.resize(400, here.second);
        EXPECT(vector.front_element(here.second) == 0);
    });
    {
        // Nothing is asked where nothing changes, or where there is no block.
        scene here;
        rmm::device_buffer buffer(64, here.first, here.pool);
        rmm::device_buffer empty(0, here.first, here.pool);
        auto const before = here.sim.calls();
        buffer.set_stream(here.first);
        empty.set_stream(here.second);
        EXPECT(here.sim.calls() == before);
    }
    return test::failures == 0 ? 0 : 1;
}
