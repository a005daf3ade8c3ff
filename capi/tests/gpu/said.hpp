// What the programs in this folder share: how a check fails, how CUDA fails, and how a part says that it is done.
#ifndef ALLUVION_TESTS_GPU_SAID_HPP
#define ALLUVION_TESTS_GPU_SAID_HPP

#include <alluvion.h>

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

namespace said {

inline std::atomic<int> failures{0};

inline void expect(bool held, char const *text, char const *file, int line) {
    if (!held) {
        std::fprintf(stderr, "%s:%d: does not hold: %s (%s)\n", file, line, text, alv_last_error_message());
        ++failures;
    }
}

/// A call of CUDA that has to work: after a failure nothing that a program measures means anything.
inline void cuda(cudaError_t status, char const *text, char const *file, int line) {
    if (status != cudaSuccess) {
        std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, text, cudaGetErrorString(status));
        std::printf("{\"part\": \"cuda\", \"ok\": false}\n");
        std::fflush(stdout);
        std::_Exit(2);
    }
}

/// Which default stream 0 means in this program.
inline char const *build() {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
    return "per-thread";
#else
    return "legacy";
#endif
}

/// Runs a part of a program, and prints how it went as a line of JSON. `more` is what else to say, as `, "handles": 3`.
template <class Body>
void part(char const *program, char const *name, Body const &body) {
    int const before = failures;
    auto const started = std::chrono::steady_clock::now();
    std::string more;
    try {
        more = body();
    } catch (std::exception const &thrown) {
        std::fprintf(stderr, "%s: %s: thrown: %s\n", program, name, thrown.what());
        ++failures;
    }
    cudaError_t const left = cudaPeekAtLastError();
    if (left != cudaSuccess) {
        std::fprintf(stderr, "%s: %s: the last error of the runtime is %s\n", program, name, cudaGetErrorString(left));
        ++failures;
        static_cast<void>(cudaGetLastError());
    }
    double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    std::printf("{\"program\": \"%s\", \"build\": \"%s\", \"part\": \"%s\", \"ok\": %s, \"seconds\": %.2f%s}\n", program, build(),
                name, failures == before ? "true" : "false", seconds, more.c_str());
    std::fflush(stdout);
}

} // namespace said

#define EXPECT(held) ::said::expect(static_cast<bool>(held), #held, __FILE__, __LINE__)
#define CUDA(call) ::said::cuda((call), #call, __FILE__, __LINE__)

#endif
