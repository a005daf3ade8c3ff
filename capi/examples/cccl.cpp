// A handle of Alluvion as a memory resource of CCCL, 3.2 or later, and layers over a resource of somebody else.
// (not run: it needs the headers of CUDA; ci/cccl brings them)
//
//     export PKG_CONFIG_PATH=/opt/alluvion/lib/pkgconfig
//     cuda="-I/usr/local/cuda/include/cccl -I/usr/local/cuda/include -L/usr/local/cuda/lib64 -lcudart"
//     c++ -std=c++17 cccl.cpp $cuda $(pkg-config --cflags --libs calluvion) -Wl,-rpath,"$(pkg-config --variable=libdir calluvion)" -o cccl && ./cccl
#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include <alluvion.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>

using device_resource = cuda::mr::any_resource<cuda::mr::device_accessible>;

// A function of a library that knows CCCL alone.
static void *scratch(device_resource &memory, cuda::stream_ref stream, std::size_t bytes) {
    return memory.allocate(stream, bytes, 256);
}

int main() try {
    // Only because there may be no GPU.
    alv_machine *machine = nullptr;
    std::int32_t devices = 0;
    if (alv_device_count(&devices) != ALV_OK) {
        std::puts("no GPU: a simulated one");
        if (alv_machine_sim(nullptr, &machine) != ALV_OK || alv_set_machine(machine) != ALV_OK) return 1;
    }
    {
        alluvion::resource pool("stats | pool | cuda-async");
        alluvion::stream stream;
        // A copy of the handle, which is one pointer with a count, without an allocation.
        device_resource erased = pool;
        void *block = scratch(erased, stream, 1000);
        erased.deallocate(stream, block, 1000, 256);

        // The other way: whatever CCCL takes for a resource becomes the source of a stack.
        alluvion::resource layered = alluvion::resource::over("stats | limiting(1MiB)", alluvion::resource::from_source(erased));
        try {
            alluvion::buffer too_large(2 << 20, stream, layered);
        } catch (alluvion::out_of_memory const &failure) {
            std::printf("%s\n", failure.what());
        }
        std::printf("%s\n", layered.describe().c_str());
        if (auto counts = pool.stats()) {
            std::printf("blocks from the pool: %lld\n", static_cast<long long>(counts->allocations.total));
        }
    }
    alv_machine_release(machine);
    return 0;
} catch (std::exception const &failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
}
