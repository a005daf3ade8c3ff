// What a C++ caller sees of the functions for PyTorch: usage: throws <module file> <bytes>. PyTorch loads them the same way.
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <new>

struct Watched {
    ~Watched() { std::puts("unwound"); }
};

int main(int, char **arguments) {
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    auto allocate = reinterpret_cast<void *(*)(size_t, int, void *)>(dlsym(library, "alluvion_torch_allocate_or_throw"));
    if (!allocate) return 3;
    try {
        Watched watched;
        // Without a driver each request fails.
        void *block = allocate(std::strtoull(arguments[2], nullptr, 10), 0, nullptr);
        std::printf("block %p\n", block);
    } catch (const std::bad_alloc &) {
        std::puts("bad_alloc");
    }
}
