/* What the programs for the first RMM share. They are C and C++. */
#ifndef LEGACY_H
#define LEGACY_H

#include <alluvion.h>
#include <alluvion/rmm_legacy.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLDS(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, alv_last_error_message()); \
            abort(); \
        } \
    } while (0)

/* The calls of a file that is compiled for default streams of one kind: see legacy_file.c. */
typedef struct {
    rmmError_t (*by_macros)(cudaStream_t stream);
    rmmError_t (*by_names)(cudaStream_t stream);
} legacy_calls;

extern const legacy_calls legacy_of_the_device;
extern const legacy_calls legacy_of_the_thread;

#endif
