// What a C++ caller sees of the functions for PyTorch: usage: throws <module file> <bytes>. PyTorch loads them the same way.
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <new>

struct Watched {
    ~Watched() { std::puts("unwound"); }
};

// Also for a process of Python, which has the interpreter that the module names.
extern "C" int look(const char *module, const char *bytes) {
    void *library = dlopen(module, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    auto allocate = reinterpret_cast<void *(*)(size_t, int, void *)>(dlsym(library, "alluvion_torch_allocate_or_throw"));
    if (!allocate) return 3;
    try {
        Watched watched;
        // Without a driver each request fails.
        void *block = allocate(std::strtoull(bytes, nullptr, 10), 0, nullptr);
        std::printf("block %p\n", block);
    } catch (const std::bad_alloc &) {
        std::puts("bad_alloc");
    }
    std::fflush(stdout);
    return 0;
}

int main(int, char **arguments) {
    return look(arguments[1], arguments[2]);
}
