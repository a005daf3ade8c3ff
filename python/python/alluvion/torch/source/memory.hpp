// The memory of a device: how much there is, and how it is written.
#ifndef ALLUVION_TORCH_MEMORY_HPP
#define ALLUVION_TORCH_MEMORY_HPP

#include <c10/cuda/CUDAGuard.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>

namespace alluvion_torch {

// The free and the total bytes of a device; none where the driver refuses.
inline std::pair<std::size_t, std::size_t> memory_of(c10::DeviceIndex index) {
    c10::cuda::CUDAGuard const here(index);
    std::size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) (void)cudaGetLastError();
    return {free, total};
}

// The bytes that a fraction of the device's memory are; no bound from 1 on.
inline std::size_t bytes_of(double fraction, c10::DeviceIndex index) {
    if (!(fraction < 1)) return std::numeric_limits<std::size_t>::max();
    return static_cast<std::size_t>(fraction * static_cast<double>(memory_of(index).second));
}

inline std::string shown(std::uint64_t bytes) {
    char text[64];
    char const *const units[] = {"bytes", "KiB", "MiB", "GiB"};
    double size = static_cast<double>(bytes);
    int unit = 0;
    while (size >= 1024 && unit < 3) {
        size /= 1024;
        ++unit;
    }
    (void)std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.2f %s", size, units[unit]);
    return text;
}

} // namespace alluvion_torch

#endif
