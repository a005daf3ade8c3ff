/* Compiled twice into one program, as two files of a program may be: for the device's default stream, and for the thread's. */
#ifdef OF_THE_THREAD
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1
#define CALLS of_the_thread
#else
#define CALLS of_the_device
#endif

#include "null_stream.h"

#include "expect.h"

static alv_status allocate(const alv_resource *resource, alv_cuda_stream stream, void **out) {
    return alv_allocate(resource, 4096, 0, stream, out);
}

static void deallocate(const alv_resource *resource, void *block, alv_cuda_stream stream) {
    alv_deallocate(resource, block, 4096, 0, stream);
}

static alv_stream *wrap(alv_cuda_stream stream) {
    alv_stream *wrapped = NULL;
    OK(alv_stream_wrap(0, stream, &wrapped));
    return wrapped;
}

static void round_trip(const alv_resource *resource, alv_cuda_stream stream) {
    void *block = NULL;
    char given[64], got[64];
    OK(allocate(resource, stream, &block));
    memset(given, 0x33, sizeof given);
    OK(alv_fill(resource, block, 0x44, sizeof got, stream));
    OK(alv_copy(resource, block, given, sizeof given / 2, stream));
    OK(alv_copy(resource, got, block, sizeof got, stream));
    OK(alv_synchronize(resource, stream));
    EXPECT(memcmp(got, given, 32) == 0 && got[32] == 0x44 && got[63] == 0x44);
    deallocate(resource, block, stream);
}

const null_stream_calls CALLS = {allocate, deallocate, wrap, round_trip};
