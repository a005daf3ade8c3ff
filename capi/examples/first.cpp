// A pool of a GPU's memory, a vector in it, and what the pool has counted.
//
//     export PKG_CONFIG_PATH=/opt/alluvion/lib/pkgconfig
//     c++ -std=c++17 first.cpp $(pkg-config --cflags --libs calluvion) -Wl,-rpath,"$(pkg-config --variable=libdir calluvion)" -o first_in_cpp && ./first_in_cpp
//
// Without a GPU the same runs on a simulated one.
#include <alluvion.hpp>
#include <alluvion/containers.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>

int main() try {
    // Only because there may be no GPU: a program that needs one leaves this out.
    alv_machine *machine = nullptr;
    std::int32_t devices = 0;
    if (alv_device_count(&devices) != ALV_OK || devices == 0) {
        std::puts("no GPU: a simulated one");
        if (alv_machine_sim(nullptr, &machine) != ALV_OK || alv_set_machine(machine) != ALV_OK) return 1;
    }
    {
        alluvion::resource pool("stats | auto");
        alluvion::stream stream;
        alluvion::device_uvector<int> numbers(1000, stream, pool);
        numbers.set_element(7, 42, stream);
        std::printf("number 7: %d\n", numbers.element(7, stream));
        try {
            alluvion::buffer large(std::size_t{1} << 50, stream, pool);
        } catch (alluvion::out_of_memory const &failure) {
            std::printf("%s\n", failure.what());
        }
        if (auto counts = pool.stats()) {
            std::printf("blocks: %lld\n", static_cast<long long>(counts->allocations.total));
        }
    }
    alv_machine_release(machine);
    return 0;
} catch (std::exception const &failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
}
