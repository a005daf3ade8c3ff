/*
 * A pool of a GPU's memory, a block of it with some work on a stream, and what the pool has counted.
 *
 *     export PKG_CONFIG_PATH=/opt/alluvion/lib/pkgconfig
 *     cc first.c $(pkg-config --cflags --libs calluvion) -Wl,-rpath,"$(pkg-config --variable=libdir calluvion)" -o first && ./first
 *
 * Without a GPU the same runs on a simulated one.
 */
#include <alluvion.h>

#include <stdio.h>
#include <stdlib.h>

static void check(alv_status status, const char *what) {
    if (status != ALV_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, alv_status_name(status), alv_last_error_message());
        exit(1);
    }
}

int main(void) {
    check(alv_check_version(ALV_VERSION), "the library is another one");

    /* Only because there may be no GPU: a program that needs one leaves this out. */
    alv_machine *machine = NULL;
    int32_t devices = 0;
    if (alv_device_count(&devices) != ALV_OK || devices == 0) {
        puts("no GPU: a simulated one");
        check(alv_machine_sim(NULL, &machine), "a simulated machine");
        check(alv_set_machine(machine), "a machine");
    }

    /* Layers over a source. A line says which. */
    alv_resource *pool = NULL;
    check(alv_resource_from_recipe("stats | pool(initial=64MiB) | cuda-async", 0, &pool), "a pool");

    /* A program of CUDA passes its own cudaStream_t or CUstream. */
    alv_stream *stream = NULL;
    check(alv_stream_create(0, &stream), "a stream");
    alv_cuda_stream cuda_stream = alv_stream_handle(stream);

    /* The block may be used by work that is on the stream after this call, and given back as soon as that work was submitted. */
    float sent[256], received[256];
    for (int i = 0; i < 256; i++) sent[i] = (float)i;
    void *block = NULL;
    check(alv_allocate(pool, sizeof sent, 0, cuda_stream, &block), "a block");
    check(alv_copy(pool, block, sent, sizeof sent, cuda_stream), "a copy to the device");
    check(alv_copy(pool, received, block, sizeof received, cuda_stream), "a copy back");
    alv_deallocate(pool, block, sizeof sent, 0, cuda_stream);
    check(alv_stream_synchronize(stream), "the work");
    printf("received: %g to %g\n", received[0], received[255]);

    /* An error has a name and a text. */
    alv_status status = alv_allocate(pool, SIZE_MAX, 0, cuda_stream, &block);
    printf("%s: %s\n", alv_status_name(status), alv_last_error_message());

    alv_counts counts = ALV_INIT(alv_counts);
    check(alv_stats(pool, &counts), "the figures");
    printf("blocks: %lld in all, %lld out; at most %lld bytes\n", (long long)counts.allocations.total,
           (long long)counts.allocations.value, (long long)counts.bytes.peak);

    alv_stream_release(stream);
    alv_resource_release(pool);
    alv_machine_release(machine);
    return 0;
}
