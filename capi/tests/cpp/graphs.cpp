// Does a captured graph keep the memory that was used inside?
#include <alluvion.hpp>

#include "expect.hpp"

#include <cstddef>
#include <type_traits>
#include <utility>

using alluvion::graph_memory;

static_assert(std::is_nothrow_move_constructible_v<graph_memory> && std::is_nothrow_move_assignable_v<graph_memory>);
static_assert(!std::is_copy_constructible_v<graph_memory>);

int main() {
    {
        alv_machine *machine = nullptr;
        EXPECT(alv_machine_sim(nullptr, &machine) == ALV_OK && alv_set_machine(machine) == ALV_OK);
        {
            alluvion::resource const stack("stats | pool | cuda");
            alluvion::stream const stream;
            alv_cuda_stream const bare = alv_stream_handle(stream.native_handle());
            EXPECT(test::throws<alluvion::error>([&] { graph_memory(stack, stream); }));
            EXPECT(alv_sim_begin_capture(machine, 0, bare) == ALV_OK);
            graph_memory memory(stack, stream);
            void *const block = stack.allocate(stream, 1000);
            stack.deallocate(stream, block, 1000);
            EXPECT(stack.allocate(stream, 1000) == block);
            stack.fill(block, 7, 1000, stream);
            stack.deallocate(stream, block, 1000);
            EXPECT(alv_sim_end_capture(machine, 0, bare) == ALV_OK);
            memory.end();
            EXPECT(memory.bytes() == std::size_t{2} << 20 && stack.status()->graph_bytes == memory.bytes());
            graph_memory moved(std::move(memory));
            EXPECT(moved.release() == std::size_t{2} << 20 && moved.release() == 0 && moved.bytes() == 0);
        }
        std::size_t mistakes = 1;
        EXPECT(alv_sim_report(machine, nullptr, nullptr, &mistakes) == ALV_OK && mistakes == 0);
        EXPECT(alv_set_machine(nullptr) == ALV_OK);
        alv_machine_release(machine);
    }
    return test::failures == 0 ? 0 : 1;
}
