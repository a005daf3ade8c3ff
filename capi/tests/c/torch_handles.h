/*
 * What PyTorch does to share a tensor: it asks the allocator for the driver's allocation that a block lies in, makes a handle of that,
 * and sends how far into it the block begins.
 */
#ifndef TORCH_HANDLES_H
#define TORCH_HANDLES_H

#include <dlfcn.h>

#include "other_process.h"

/* Of CUDA's header, which is not here: a CUipcMemHandle. */
typedef struct {
    char bytes[64];
} memory_handle;

typedef struct {
    memory_handle handle;
    uint64_t offset;
    uint64_t bytes;
} torch_handle;

static inline void *symbol(const char *name) {
    static void *driver;
    if (driver == NULL) driver = dlopen("libcuda.so.1", RTLD_NOW);
    EXPECT(driver != NULL);
    void *found = dlsym(driver, name);
    EXPECT(found != NULL);
    return found;
}

/* A call of the driver: its type of function, its name, and what it gets. Each answers 0. */
#define DRIVER(name, types, arguments) \
    do { \
        int(*call) types; \
        *(void **)&call = symbol(name); \
        const int code = call arguments; \
        if (code != 0) fprintf(stderr, "%s answered %d\n", name, code); \
        EXPECT(code == 0); \
    } while (0)

/* The first device's own context, as the runtime of CUDA has it. */
static inline void make_current(void) {
    void *context = NULL;
    DRIVER("cuInit", (unsigned), (0));
    DRIVER("cuDevicePrimaryCtxRetain", (void **, int), (&context, 0));
    DRIVER("cuCtxSetCurrent", (void *), (context));
}

static inline void share_as_torch(int socket) {
    make_current();
    alv_resource *pool = NULL;
    OK(alv_resource_from_recipe("pool(initial=8MiB) | cuda", 0, &pool));
    void *blocks[2] = {NULL, NULL}, *start_of[2] = {NULL, NULL};
    size_t sizes[2] = {0, 0};
    for (int at = 0; at < 2; at++) {
        OK(alv_allocate(pool, BYTES, 0, NULL, &blocks[at]));
        start_of[at] = alluvion_torch_base_alloc(blocks[at], &sizes[at]);
    }
    /* Both lie in one allocation, and so one of them not at its start. */
    EXPECT(start_of[0] == start_of[1] && sizes[0] == sizes[1] && sizes[0] == (size_t)8 << 20);
    char *block = blocks[blocks[0] == start_of[0] ? 1 : 0], *start = start_of[0];
    EXPECT(block > start && block + BYTES <= start + sizes[0]);
    torch_handle sent = {.offset = (uint64_t)(block - start), .bytes = BYTES};
    OK(alv_fill(pool, block, 0x5C, BYTES, NULL));
    OK(alv_synchronize(pool, NULL));
    DRIVER("cuIpcGetMemHandle", (memory_handle *, uint64_t), (&sent.handle, (uint64_t)(uintptr_t)start));
    EXPECT(send(socket, &sent, sizeof sent, MSG_NOSIGNAL) == sizeof sent);
    EXPECT(wait_for_step(socket) == 'D');
    for (int at = 0; at < 2; at++) alv_deallocate(pool, blocks[at], BYTES, 0, NULL);
    alv_resource_release(pool);
}

static inline void open_as_torch(int socket) {
    torch_handle received;
    EXPECT(recv(socket, &received, sizeof received, 0) == sizeof received);
    make_current();
    uint64_t start = 0;
    /* By value, and lazily, as the runtime does. */
    DRIVER("cuIpcOpenMemHandle_v2", (uint64_t *, memory_handle, unsigned), (&start, received.handle, 1));
    unsigned char *bytes = malloc(received.bytes);
    EXPECT(bytes != NULL && received.bytes == BYTES);
    DRIVER("cuMemcpyDtoH_v2", (void *, uint64_t, size_t), (bytes, start + received.offset, received.bytes));
    for (size_t at = 0; at < received.bytes; at++) EXPECT(bytes[at] == 0x5C);
    free(bytes);
    DRIVER("cuIpcCloseMemHandle", (uint64_t), (start));
    tell(socket, 'D');
}

#endif
