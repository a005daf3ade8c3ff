/* Stream 0 is the default stream as the calling file was compiled. The log says which one the library got. */
#include "legacy.h"

/* Runs `call` on a stream, and expects that each row of the log names that stream so. */
static void on(rmmError_t (*call)(cudaStream_t), cudaStream_t stream, const char *expected) {
    rmmOptions_t options = {PoolAllocation, 1 << 20, true};
    HOLDS(rmmInitialize(&options) == RMM_SUCCESS);
    HOLDS(call(stream) == RMM_SUCCESS);
    const size_t size = rmmLogSize();
    char *log = (char *)calloc(size + 1, 1);
    HOLDS(log != NULL && rmmGetLog(log, size) == RMM_SUCCESS);
    int rows = 0;
    for (char *row = strchr(log, '\n') + 1; *row != 0; row = strchr(row, '\n') + 1) {
        char name[64] = "";
        HOLDS(sscanf(row, "%*[^,],%*[^,],%*[^,],%63[^,],", name) == 1);
        if (strcmp(name, expected) != 0) {
            fprintf(stderr, "on %s, and not on %s: %s", name, expected, log);
            abort();
        }
        rows++;
    }
    HOLDS(rows == 3);
    free(log);
    HOLDS(rmmFinalize() == RMM_SUCCESS);
}

int main(void) {
    alv_machine *machine = NULL;
    HOLDS(alv_machine_sim(NULL, &machine) == ALV_OK);
    HOLDS(alv_set_machine(machine) == ALV_OK);
    const cudaStream_t legacy = (cudaStream_t)1, per_thread = (cudaStream_t)2;
    on(legacy_of_the_device.by_macros, NULL, "0");
    on(legacy_of_the_device.by_names, NULL, "0");
    on(legacy_of_the_thread.by_macros, NULL, "0x2");
    on(legacy_of_the_thread.by_names, NULL, "0x2");
    on(legacy_of_the_device.by_macros, per_thread, "0x2");
    on(legacy_of_the_thread.by_macros, legacy, "0x1");
    on(legacy_of_the_thread.by_names, legacy, "0x1");
    size_t mistakes = 1;
    HOLDS(alv_sim_report(machine, NULL, NULL, &mistakes) == ALV_OK && mistakes == 0);
    HOLDS(alv_set_machine(NULL) == ALV_OK);
    alv_machine_release(machine);
    return 0;
}
