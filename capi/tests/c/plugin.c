/* Functions that frameworks load by name: with the types that they declare, by address, from threads and at the exit. */
#include "expect.h"

#include <dlfcn.h>
#include <pthread.h>

typedef struct CUstream_st *stream_handle;

/* As PyTorch, CuPy, ONNX Runtime and cuStateVec declare them. */
typedef void *(*torch_malloc)(size_t size, int device, stream_handle stream);
typedef void (*torch_free)(void *block, size_t size, int device, stream_handle stream);
typedef void (*torch_init)(int device_count);
typedef void (*torch_reset)(void);
typedef void (*torch_memory_fraction)(double fraction, int device);
typedef void *(*torch_base_alloc)(void *block, size_t *size);
typedef void (*torch_record_stream)(void *block, stream_handle stream);
typedef void *(*cupy_malloc)(void *param, size_t size, int device);
typedef void (*cupy_free)(void *param, void *block, int device);
typedef void *(*ort_alloc)(size_t size);
typedef void (*ort_free)(void *block);
typedef int (*handler_alloc)(void *ctx, void **block, size_t size, stream_handle stream);
typedef int (*handler_free)(void *ctx, void *block, size_t size, stream_handle stream);

/* Each has that type: another one would not compile. */
static const torch_malloc mallocs[] = {alluvion_torch_malloc, alluvion_torch_ledger_malloc};
static const torch_free frees[] = {alluvion_torch_free, alluvion_torch_ledger_free};
static const torch_record_stream records[] = {alluvion_torch_record_stream, alluvion_torch_ledger_record_stream};
static const torch_init init = alluvion_torch_init;
static const torch_reset resets[] = {alluvion_torch_empty_cache, alluvion_ort_empty_cache};
static const torch_memory_fraction memory_fraction = alluvion_torch_memory_fraction;
static const torch_base_alloc base_alloc = alluvion_torch_base_alloc;
static const cupy_malloc of_cupy = alluvion_cupy_malloc;
static const cupy_free to_cupy = alluvion_cupy_free;
static const ort_alloc of_ort = alluvion_ort_alloc;
static const ort_free to_ort = alluvion_ort_free;
static const handler_alloc of_handler = alluvion_handler_alloc;
static const handler_free to_handler = alluvion_handler_free;

static void *in_a_thread(void *unused) {
    (void)unused;
    for (size_t turn = 1; turn <= 100; turn++) {
        for (int kind = 0; kind < 2; kind++) {
            void *block = mallocs[kind](256 * turn, 0, (stream_handle)2);
            EXPECT(block != NULL);
            records[kind](block, NULL);
            frees[kind](block, 256 * turn, 0, (stream_handle)2);
        }
        void *block = of_cupy((void *)2, turn, 0);
        EXPECT(block != NULL);
        to_cupy((void *)2, block, 0);
        EXPECT(of_handler(NULL, &block, turn, NULL) == 0);
        EXPECT(to_handler(NULL, block, turn, NULL) == 0);
        block = of_ort(turn);
        EXPECT(block != NULL);
        to_ort(block);
    }
    return NULL;
}

/* A library of the program that loads ours looks them up. */
static void every_name_is_found(void) {
    static const char *const names[] = {
        "alluvion_torch_malloc", "alluvion_torch_free", "alluvion_torch_init", "alluvion_torch_empty_cache",
        "alluvion_torch_memory_fraction", "alluvion_torch_record_stream", "alluvion_torch_base_alloc",
        "alluvion_torch_ledger_malloc", "alluvion_torch_ledger_free", "alluvion_torch_ledger_record_stream",
        "alluvion_cupy_malloc", "alluvion_cupy_free", "alluvion_handler_alloc", "alluvion_handler_free", "alluvion_handler_init",
        "alluvion_ort_alloc", "alluvion_ort_free", "alluvion_ort_empty_cache", "alluvion_ort_set_stream_raw",
    };
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) EXPECT(dlsym(RTLD_DEFAULT, names[at]) != NULL);
}

static void the_struct_is_in_its_shape(void) {
    alv_device_mem_handler handler;
    OK(alluvion_handler_init(NULL, &handler));
    EXPECT(strcmp(handler.name, "alluvion") == 0 && sizeof handler == 3 * sizeof(void *) + 64);
    void *block = NULL;
    EXPECT(handler.device_alloc(handler.ctx, &block, 1000, NULL) == 0 && block != NULL);
    EXPECT(handler.device_free(handler.ctx, block, 1000, NULL) == 0);
}

static void *kept[2];

static void at_the_exit(void) {
    for (int kind = 0; kind < 2; kind++) frees[kind](kept[kind], 1000, 0, NULL);
}

int main(void) {
    alv_machine *machine = simulated();
    every_name_is_found();
    init(2);
    the_struct_is_in_its_shape();
    memory_fraction(0.5, 0);
    EXPECT(mallocs[0]((size_t)1 << 30, 0, NULL) == NULL);
    EXPECT(strstr(alv_last_error_message(), "memory") != NULL);
    memory_fraction(1.0, 0);
    pthread_t threads[4];
    for (int at = 0; at < 4; at++) EXPECT(pthread_create(&threads[at], NULL, in_a_thread, NULL) == 0);
    for (int at = 0; at < 4; at++) EXPECT(pthread_join(threads[at], NULL) == 0);

    void *block = mallocs[0](1000, 0, NULL);
    size_t bytes = 0;
    void *base = base_alloc(block, &bytes);
    EXPECT((uintptr_t)base <= (uintptr_t)block && (uintptr_t)block < (uintptr_t)base + bytes);
    frees[0](block, 1000, 0, NULL);
    OK(alluvion_ort_set_stream(0, NULL));
    block = of_ort(1000);
    to_ort(block);
    resets[0]();
    resets[1]();
    EXPECT(atexit(at_the_exit) == 0);
    for (int kind = 0; kind < 2; kind++) {
        kept[kind] = mallocs[kind](1000, 0, NULL);
        EXPECT(kept[kind] != NULL);
    }
    alv_machine_release(machine);
    printf("plugin: ok\n");
    return 0;
}
