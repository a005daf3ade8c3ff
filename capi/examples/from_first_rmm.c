/*
 * A function that was written for the first RMM, versions 0.4 to 0.12, as it was, over Alluvion.
 *
 *     export PKG_CONFIG_PATH=/opt/alluvion/lib/pkgconfig
 *     cc from_first_rmm.c $(pkg-config --cflags --libs calluvion) -Wl,-rpath,"$(pkg-config --variable=libdir calluvion)" -o from_first_rmm && ./from_first_rmm
 *
 * Without a GPU the same runs on a simulated one.
 */
#include <alluvion/rmm_legacy.h>

/* What the program has of its own besides: only because there may be no GPU. */
#include <alluvion.h>

#include <stdio.h>

static rmmError_t scratch(size_t count, cudaStream_t stream) {
    rmmOptions_t options = {PoolAllocation, (size_t)16 << 20, true};
    float *numbers = NULL;
    RMM_TRY(rmmInitialize(&options));
    RMM_TRY(RMM_ALLOC((void **)&numbers, count * sizeof(float), stream));
    RMM_TRY(RMM_FREE(numbers, stream));
    printf("the log has %zu bytes\n", rmmLogSize());
    return rmmFinalize();
}

int main(void) {
    alv_machine *machine = NULL;
    int32_t devices = 0;
    if (alv_device_count(&devices) != ALV_OK || devices == 0) {
        puts("no GPU: a simulated one");
        if (alv_machine_sim(NULL, &machine) != ALV_OK || alv_set_machine(machine) != ALV_OK) return 1;
    }
    rmmError_t answer = scratch(1000, 0);
    if (answer != RMM_SUCCESS) fprintf(stderr, "%s: %s\n", rmmGetErrorString(answer), alv_last_error_message());
    alv_machine_release(machine);
    return answer == RMM_SUCCESS ? 0 : 1;
}
