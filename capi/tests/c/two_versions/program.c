/* A program of another interface, `libcalluvion.so.9.9`, that loads a plugin of this one: each calls its own functions. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

uint32_t alv_version(void);

int main(int count, char **arguments) {
    if (count != 2 || alv_version() != UINT32_MAX) {
        fprintf(stderr, "the program got another library than its own: %#x\n", (unsigned)alv_version());
        return 1;
    }
    void *plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*works)(void);
    *(void **)&works = dlsym(plugin, "works");
    return works != NULL && works() ? 0 : 1;
}
