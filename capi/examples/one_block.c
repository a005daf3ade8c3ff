/*
 * The first program of docs/capi/README.md: a pool, and one block of it.
 *
 *     export PKG_CONFIG_PATH=/opt/alluvion/lib/pkgconfig
 *     cc one_block.c $(pkg-config --cflags --libs calluvion) -Wl,-rpath,"$(pkg-config --variable=libdir calluvion)" -o one_block && ./one_block
 */
#include <alluvion.h>
#include <stdio.h>

int main(void) {
    /* A simulated GPU. A program that runs on a real one leaves these two calls out. */
    alv_machine *machine = NULL;
    if (alv_machine_sim(NULL, &machine) != ALV_OK || alv_set_machine(machine) != ALV_OK) return 1;

    alv_resource *pool = NULL;
    if (alv_resource_from_recipe("stats | auto", 0, &pool) != ALV_OK) {
        fprintf(stderr, "%s\n", alv_last_error_message());
        return 1;
    }
    alv_cuda_stream stream = NULL; /* a cudaStream_t or a CUstream of the program's */
    void *block = NULL;
    if (alv_allocate(pool, 1 << 20, 0, stream, &block) == ALV_OK) {
        /* ... work on the stream ... */
        alv_deallocate(pool, block, 1 << 20, 0, stream);
    }
    alv_resource_release(pool);
    alv_machine_release(machine);
    return 0;
}
