/* A program as they were written for the first RMM, and what it is answered. */
#include "legacy.h"

/* As in the oldest examples: nothing initializes. */
static rmmError_t lenient(void) {
    HOLDS(!rmmIsInitialized(NULL));
    int *numbers = NULL;
    RMM_TRY(RMM_ALLOC((void **)&numbers, 100 * sizeof(int), 0));
    HOLDS(numbers != NULL);
    RMM_TRY(RMM_FREE(numbers, 0));
    return RMM_SUCCESS;
}

static rmmError_t in_order(rmmAllocationMode_t mode) {
    rmmOptions_t options = {mode, (size_t)8 << 20, true}, in_force;
    RMM_TRY(rmmInitialize(&options));
    HOLDS(rmmIsInitialized(&in_force));
    HOLDS(in_force.allocation_mode == mode && in_force.initial_pool_size == (size_t)8 << 20 && in_force.enable_logging);

    alv_stream *owner = NULL;
    HOLDS(alv_stream_create(0, &owner) == ALV_OK);
    const cudaStream_t stream = alv_stream_handle(owner);
    double *values = NULL;
    size_t free_bytes = 0, total_bytes = 0;
    offset_t offset = -1;
    RMM_TRY(RMM_ALLOC((void **)&values, 1000 * sizeof(double), stream));
    const int line = __LINE__ - 1;
    RMM_TRY(rmmGetAllocationOffset(&offset, values, stream));
    HOLDS(offset >= 0);
    RMM_TRY(rmmGetInfo(&free_bytes, &total_bytes, stream));
    HOLDS(free_bytes > 0 && free_bytes <= total_bytes);
    RMM_TRY(RMM_REALLOC((void **)&values, 2000 * sizeof(double), stream));
    RMM_TRY(RMM_FREE(values, stream));

    /* The line of the caller. */
    const size_t size = rmmLogSize();
    char *log = (char *)calloc(size + 1, 1), expected[64];
    HOLDS(log != NULL);
    RMM_TRY(rmmGetLog(log, size));
    snprintf(expected, sizeof expected, "legacy_program.c:%d\nRealloc,", line);
    HOLDS(strstr(log, expected) != NULL);
    const char *header = "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current Allocs,"
                         "Start,End,Elapsed,Location\n";
    HOLDS(strncmp(log, header, strlen(header)) == 0);
    HOLDS(strstr(log, "\nFree,0,0x") != NULL);
    free(log);
    HOLDS(rmmWriteLog("/nowhere/at/all") == RMM_ERROR_IO);
    alv_stream_release(owner);
    return rmmFinalize();
}

/* RMM_TRY ends the function that it stands in. */
static rmmError_t fails(int *passed) {
    void *block = NULL;
    *passed = 1;
    RMM_TRY(RMM_ALLOC(&block, (size_t)1 << 50, 0));
    *passed = 2;
    return RMM_SUCCESS;
}

static void strict(void) {
    void *block = &block;
    HOLDS(RMM_ALLOC(&block, 8, 0) == RMM_ERROR_NOT_INITIALIZED);
    HOLDS(block == NULL);
    HOLDS(RMM_ALLOC(&block, 0, 0) == RMM_SUCCESS);
    HOLDS(RMM_FREE(NULL, 0) == RMM_SUCCESS);
    HOLDS(strcmp(rmmGetErrorString(RMM_ERROR_NOT_INITIALIZED), "RMM_ERROR_NOT_INITIALIZED") == 0);
    HOLDS(strcmp(rmmGetErrorString(RMM_SUCCESS), "RMM_SUCCESS") == 0);
    HOLDS(rmmGetErrorString(N_RMM_ERROR) != NULL);
}

int main(void) {
    alv_machine *machine = NULL;
    HOLDS(alv_machine_sim(NULL, &machine) == ALV_OK);
    HOLDS(alv_set_machine(machine) == ALV_OK);
    HOLDS(lenient() == RMM_SUCCESS);
    for (int mode = 0; mode < 4; mode++) {
        HOLDS(in_order((rmmAllocationMode_t)mode) == RMM_SUCCESS);
        strict();
    }
    int passed = 0;
    HOLDS(rmmInitialize(NULL) == RMM_SUCCESS);
    HOLDS(fails(&passed) == RMM_ERROR_OUT_OF_MEMORY && passed == 1);
    HOLDS(rmmFinalize() == RMM_SUCCESS);

    size_t mistakes = 1;
    HOLDS(alv_sim_report(machine, NULL, NULL, &mistakes) == ALV_OK && mistakes == 0);
    HOLDS(alv_set_machine(NULL) == ALV_OK);
    alv_machine_release(machine);
    return 0;
}
