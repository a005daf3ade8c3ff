// A function that was written for RMM, as it was, over Alluvion: only the folder that its headers come from is another one.
//
//     export PKG_CONFIG_PATH=/opt/alluvion/lib/pkgconfig
//     c++ -std=c++17 from_rmm.cpp $(pkg-config --cflags --libs alluvion-compat) -Wl,-rpath,"$(pkg-config --variable=libdir calluvion)" -o from_rmm && ./from_rmm
//
// A program that keeps RMM, and wants its memory from Alluvion, includes <alluvion/rmm.hpp> instead.
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/resource_ref.hpp>

// What the program has of its own besides: a recipe in the place of resources on resources.
#include <alluvion.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>

// As libraries over RMM declare their functions.
rmm::device_uvector<int> squares(std::size_t count, rmm::cuda_stream_view stream = rmm::cuda_stream_default,
                                 rmm::device_async_resource_ref mr = rmm::mr::get_current_device_resource_ref()) {
    rmm::device_uvector<int> made(count, stream, mr);
    for (std::size_t i = 0; i < count; i++) {
        int const square = static_cast<int>(i * i);
        made.set_element(i, square, stream);
    }
    return made;
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
        alluvion::resource pool("stats | pool(initial=16MiB) | cuda-async");
        alluvion::resource before = alluvion::set_current_resource(pool);
        rmm::cuda_stream stream;
        rmm::device_uvector<int> numbers = squares(10, stream.view());
        std::printf("the last of %zu: %d\n", numbers.size(), numbers.back_element(stream.view()));
        int const value = 42;
        rmm::device_scalar<int> answer(value, stream.view());
        std::printf("the answer: %d\n", answer.value(stream.view()));
        if (auto counts = pool.stats()) {
            std::printf("blocks from the pool: %lld\n", static_cast<long long>(counts->allocations.total));
        }
        alluvion::set_current_resource(before);
    }
    alv_machine_release(machine);
    return 0;
} catch (std::exception const &failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
}
