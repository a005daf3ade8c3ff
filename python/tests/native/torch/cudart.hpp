// What a test says to the runtime without a device, and asks it.
#ifndef ALLUVION_TESTS_CUDART_HPP
#define ALLUVION_TESTS_CUDART_HPP

#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace fake {

struct state {
    std::mutex mutex;
    std::size_t total = std::size_t{1} << 30;
    std::size_t used = 0;
    std::size_t events = 0;
    std::map<void *, std::size_t> memory;
    std::map<cudaEvent_t, cudaStream_t> recorded;
    std::vector<cudaStream_t> streams;
    std::set<cudaStream_t> busy;
    std::set<cudaStream_t> capturing;
    cudaError_t last = cudaSuccess;
    bool refuses_events = false;
    // Captures that a call has broken, frees of what was not allocated, and waits for the device.
    int broken = 0;
    int wrong_frees = 0;
    int waits = 0;
};

state &the();

} // namespace fake

#endif
