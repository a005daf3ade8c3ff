/* The calls of a file that is compiled for default streams of one kind: see null_stream.c. */
#ifndef NULL_STREAM_H
#define NULL_STREAM_H

#include <alluvion.h>

typedef struct {
    alv_status (*allocate)(const alv_resource *, alv_cuda_stream, void **);
    void (*deallocate)(const alv_resource *, void *, alv_cuda_stream);
    alv_stream *(*wrap)(alv_cuda_stream);
    void (*round_trip)(const alv_resource *, alv_cuda_stream);
} null_stream_calls;

extern const null_stream_calls of_the_device;
extern const null_stream_calls of_the_thread;

#endif
