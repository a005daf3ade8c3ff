// Does each file of a program keep the default stream that it was compiled for, when a linker has put them together?
#include "modes.hpp"

#include "../expect.hpp"

int main() {
    test::sim sim;
    auto const per_thread = reinterpret_cast<alv_cuda_stream>(2);
    auto const is_legacy = [](alv_cuda_stream stream) {
        return stream == nullptr || stream == reinterpret_cast<alv_cuda_stream>(1);
    };
    seen const legacy = in_a_legacy_file();
    EXPECT(is_legacy(legacy.of_a_call) && is_legacy(legacy.of_a_buffer) && is_legacy(legacy.of_an_erased_call));
    EXPECT(legacy.is_legacy && !legacy.is_per_thread && legacy.legacy_stays_legacy);

    seen const of_the_thread = in_a_per_thread_file();
    EXPECT(of_the_thread.of_a_call == per_thread && of_the_thread.of_a_buffer == per_thread);
    EXPECT(of_the_thread.of_an_erased_call == per_thread);
    EXPECT(!of_the_thread.is_legacy && of_the_thread.is_per_thread && of_the_thread.legacy_stays_legacy);
    return test::failures == 0 ? 0 : 1;
}
