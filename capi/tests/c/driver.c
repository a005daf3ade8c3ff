/*
 * The library over a driver that it finds at run time: `driver found` with the stand-in for libcuda of tests/cuda_load on the
 * library path, and `driver missing` with files there that are no libraries.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "expect.h"

#include <alluvion/rmm_legacy.h>

static void missing(void) {
    alv_resource *resource = (alv_resource *)&resource;
    EXPECT_STATUS(alv_resource_from_recipe("pool | cuda", 0, &resource), ALV_NO_DRIVER);
    EXPECT(resource == NULL);
    EXPECT(strstr(alv_last_error_message(), "libcuda") != NULL);
    alv_machine *machine = (alv_machine *)&resource;
    EXPECT_STATUS(alv_machine_cuda(&machine), ALV_NO_DRIVER);
    EXPECT(machine == NULL);
    int32_t number = 7;
    EXPECT_STATUS(alv_device_count(&number), ALV_NO_DRIVER);
    EXPECT(number == 0);
    EXPECT_STATUS(alv_current_resource(0, &resource), ALV_NO_DRIVER);
    EXPECT_STATUS(alv_set_current_resource(0, NULL, NULL), ALV_INVALID_ARGUMENT);
    EXPECT_STATUS(alv_set_current_device(0), ALV_NO_DRIVER);
    /* A simulated machine needs none. */
    machine = simulated();
    OK(alv_device_count(&number));
    EXPECT(number == 2);
    alv_resource_release(stack("pool | cuda-async"));
    clean(machine);
}

/* A function of the stand-in, which the library has loaded. */
static void *stand_in(const char *name) {
    void *library = dlopen("libcuda.so", RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL) library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    EXPECT(library != NULL);
    void *found = dlsym(library, name);
    EXPECT(found != NULL);
    return found;
}

static size_t current_context(void) {
    unsigned (*get)(size_t *) = NULL;
    void *found = stand_in("cuCtxGetCurrent");
    memcpy(&get, &found, sizeof found);
    size_t context = 0;
    EXPECT(get(&context) == 0);
    return context;
}

static void push_context(size_t context) {
    unsigned (*push)(size_t) = NULL;
    void *found = stand_in("cuCtxPushCurrent_v2");
    memcpy(&push, &found, sizeof found);
    EXPECT(push(context) == 0);
}

static void pop_context(void) {
    unsigned (*pop)(size_t *) = NULL;
    void *found = stand_in("cuCtxPopCurrent_v2");
    memcpy(&pop, &found, sizeof found);
    size_t popped = 0;
    EXPECT(pop(&popped) == 0 && popped != 0);
}

/* Calls of this library leave nothing current where nothing was; those of the first RMM leave a context, as a runtime of CUDA does. */
static void contexts(void) {
    EXPECT(current_context() == 0);
    alv_resource *pool = stack("pool | cuda");
    void *block = NULL;
    OK(alv_allocate(pool, 1000, 0, NULL, &block));
    alv_deallocate(pool, block, 1000, 0, NULL);
    EXPECT(current_context() == 0);
    alv_ensure_context(pool);
    const size_t primary = current_context();
    EXPECT(primary != 0);
    pop_context();
    alv_ensure_context(NULL);
    EXPECT(current_context() == primary);
    pop_context();
    alv_resource_release(pool);

    rmmOptions_t options = {PoolAllocation, (size_t)4 << 20, false};
    EXPECT(rmmInitialize(&options) == RMM_SUCCESS);
    EXPECT(current_context() == primary);
    pop_context();
    EXPECT(RMM_ALLOC(&block, 1000, NULL) == RMM_SUCCESS);
    EXPECT(current_context() == primary);
    pop_context();
    size_t free_bytes = 0, total_bytes = 0;
    EXPECT(rmmGetInfo(&free_bytes, &total_bytes, NULL) == RMM_SUCCESS);
    EXPECT(current_context() == primary);
    /* One of the program's stays. */
    push_context(0x77);
    EXPECT(RMM_REALLOC(&block, 2000, NULL) == RMM_SUCCESS);
    EXPECT(current_context() == 0x77);
    pop_context();
    pop_context();
    EXPECT(RMM_FREE(block, NULL) == RMM_SUCCESS);
    EXPECT(current_context() == primary);
    pop_context();
    EXPECT(rmmFinalize() == RMM_SUCCESS);
    EXPECT(current_context() == 0);
}

static void found(void) {
    OK(alv_set_machine(NULL));
    int32_t number = 0;
    OK(alv_device_count(&number));
    EXPECT(number == 1);
    /* A context of the program's, which is none that the library works in. */
    push_context(0x77);
    alv_resource *pool = stack("stats | pool(initial=16MiB) | cuda");
    EXPECT(current_context() == 0x77);
    char text[256];
    size_t needed = 0;
    OK(alv_describe(pool, text, sizeof text, &needed));
    EXPECT(needed == strlen(text) && strstr(text, "Pool") != NULL);

    alv_stream *stream = NULL;
    OK(alv_stream_create(0, &stream));
    const alv_cuda_stream streams[] = {NULL, (alv_cuda_stream)1, (alv_cuda_stream)2, alv_stream_handle(stream),
                                       (alv_cuda_stream)0x52};
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        void *block = NULL;
        OK(alv_allocate(pool, 100000, 0, streams[i], &block));
        EXPECT((uintptr_t)block % 256 == 0);
        alv_deallocate(pool, block, 100000, 0, streams[i]);
        EXPECT(current_context() == 0x77);
    }
    void *block = NULL;
    OK(alv_allocate_on(pool, 4096, 0, stream, &block));
    alv_deallocate_on(pool, block, 4096, 0, stream);
    /* A stream of another context than the device's primary one. */
    EXPECT_STATUS(alv_allocate(pool, 100, 0, (alv_cuda_stream)0xF5, &block), ALV_DEVICE_MISMATCH);
    EXPECT(block == NULL);
    EXPECT_STATUS(alv_allocate(pool, (size_t)1 << 45, 0, NULL, &block), ALV_OUT_OF_MEMORY);
    EXPECT(block == NULL);
    alv_oom_report report = ALV_INIT(alv_oom_report);
    OK(alv_last_out_of_memory(&report));
    EXPECT(report.requested_bytes == (size_t)1 << 45);
    size_t available = 0, total = 0;
    OK(alv_memory_info(pool, &available, &total));
    EXPECT(total == (size_t)1 << 31 && available > 0);
    alv_counts counts = ALV_INIT(alv_counts);
    OK(alv_stats(pool, &counts));
    EXPECT(counts.allocations.value == 0 && counts.allocations.total == 6 && counts.failures == 1);
    /* A simulated machine's report is of that machine alone. */
    alv_machine *machine = NULL;
    OK(alv_machine_cuda(&machine));
    EXPECT_STATUS(alv_sim_report(machine, NULL, NULL, NULL), ALV_INVALID_ARGUMENT);
    EXPECT(alv_sim_calls(machine) == 0);
    alv_machine_release(machine);
    alv_stream_release(stream);
    alv_resource_release(pool);
    EXPECT(current_context() == 0x77);
    pop_context();
    contexts();
}

int main(int count, char **arguments) {
    EXPECT(count == 2);
    if (strcmp(arguments[1], "found") == 0) {
        found();
    } else {
        EXPECT(strcmp(arguments[1], "missing") == 0);
        missing();
    }
    printf("driver %s: ok\n", arguments[1]);
    return 0;
}
