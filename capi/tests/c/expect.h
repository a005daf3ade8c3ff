/* What the test programs in C and C++ say when something is not as it must be, and a machine for them. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <alluvion.h>

#define EXPECT(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

#define EXPECT_STATUS(call, expected) \
    do { \
        const alv_status answered = (call); \
        if (answered != (expected)) { \
            fprintf(stderr, "%s:%d: %s answered %s, and not %s: %s\n", __FILE__, __LINE__, #call, alv_status_name(answered), \
                    alv_status_name(expected), alv_last_error_message()); \
            abort(); \
        } \
    } while (0)

#define OK(call) EXPECT_STATUS(call, ALV_OK)

/* A machine with two simulated GPUs of 1 GiB, which is chosen. If it leaves pools alone, it sees no wrong free there. */
static inline alv_machine *simulated_that(unsigned leaves_pools_alone) {
    alv_sim_options options = ALV_INIT(alv_sim_options);
    options.devices = 2;
    options.memory_bytes = (size_t)1 << 30;
    options.leaves_pools_alone = leaves_pools_alone;
    alv_machine *machine = NULL;
    OK(alv_machine_sim(&options, &machine));
    OK(alv_set_machine(machine));
    return machine;
}

static inline alv_machine *simulated(void) {
    return simulated_that(0);
}

static inline int to_stderr(void *user, const char *bytes, size_t n) {
    (void)user;
    return fwrite(bytes, 1, n, stderr) == n ? 0 : 1;
}

/* That the machine has seen no mistake and that everything was given back to it; lets go of it. */
static inline void clean(alv_machine *machine) {
    size_t count = 1;
    OK(alv_sim_report(machine, to_stderr, NULL, &count));
    EXPECT(count == 0);
    OK(alv_set_machine(NULL));
    alv_machine_release(machine);
}

static inline alv_resource *stack(const char *recipe) {
    alv_resource *resource = NULL;
    OK(alv_resource_from_recipe(recipe, 0, &resource));
    EXPECT(resource != NULL);
    return resource;
}

#endif
