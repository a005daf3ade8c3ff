/* Compiled twice into one program, as two files of a program may be: for the device's default stream, and for the thread's. In C++
 * the macros are templates, of which a linker keeps one for both files. */
#ifdef OF_THE_THREAD
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1
#define CALLS legacy_of_the_thread
#else
#define CALLS legacy_of_the_device
#endif

#include "legacy.h"

static rmmError_t by_macros(cudaStream_t stream) {
    float *block = NULL;
#ifdef __cplusplus
    RMM_TRY(RMM_ALLOC(&block, 400, stream));
    RMM_TRY(RMM_REALLOC(&block, 800, stream));
#else
    RMM_TRY(RMM_ALLOC((void **)&block, 400, stream));
    RMM_TRY(RMM_REALLOC((void **)&block, 800, stream));
#endif
    RMM_TRY(RMM_FREE(block, stream));
    return RMM_SUCCESS;
}

static rmmError_t by_names(cudaStream_t stream) {
    void *block = NULL;
    rmmError_t (*freed)(void *, cudaStream_t, const char *, unsigned int) = rmmFree;
    RMM_TRY(rmmAlloc(&block, 400, stream, __FILE__, __LINE__));
    RMM_TRY(rmmRealloc(&block, 800, stream, __FILE__, __LINE__));
    return freed(block, stream, __FILE__, __LINE__);
}

/* Declared `extern` in the header, so other files see it in C++, too. */
const legacy_calls CALLS = {by_macros, by_names};
