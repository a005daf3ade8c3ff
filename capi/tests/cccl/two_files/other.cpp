// A container that one file makes and another reads: both must have it of one size.
#include "shared.hpp"

#include "../../cpp/expect.hpp"

int main() {
    test::sim sim;
    rmm::device_buffer buffer(1000, rmm::cuda_stream_view{});
    EXPECT(size_of(buffer) == 1000);
    return test::failures == 0 ? 0 : 1;
}
