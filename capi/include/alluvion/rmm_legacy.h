/*
 * The first RMM in C, as of its versions 0.4 to 0.12, over Alluvion: for programs that were written for it.
 *
 *     rmmOptions_t options = {PoolAllocation, 1 << 30, false};
 *     RMM_TRY(rmmInitialize(&options));
 *     float *numbers = NULL;
 *     RMM_TRY(RMM_ALLOC((void **)&numbers, count * sizeof(float), stream));
 *     ...
 *     RMM_TRY(RMM_FREE(numbers, stream));
 *     RMM_TRY(rmmFinalize());
 *
 * The functions are declared, and described, in alluvion/rmm_legacy_cdef.h.
 *
 * Stream 0 is the default stream as the calling file was compiled: that of the thread under CUDA_API_PER_THREAD_DEFAULT_STREAM, and
 * else the legacy one. ALV_NO_INLINE leaves the translation out; 0 is the legacy stream then.
 *
 * - RMM_NO_OFFSET_T, defined before, leaves the name offset_t to others: then the type is rmmOffset_t.
 * - RMM_TRY, defined before, stays as it is.
 *
 * C99 and later, C++11 and later. No header of CUDA is needed; one that comes before or after does no harm, but in C99, which
 * allows a typedef once, it has to come before.
 */
#ifndef ALLUVION_RMM_LEGACY_H
#define ALLUVION_RMM_LEGACY_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* C99 allows a typedef once. The header of CUDA that has this one says so by a macro; the type is the same by another name. */
#ifdef __DRIVER_TYPES_H__
#define cudaStream_t rmmCudaStream_t
#endif
#ifdef RMM_NO_OFFSET_T
#define offset_t rmmOffset_t
#endif

#include "rmm_legacy_cdef.h"

#ifdef __DRIVER_TYPES_H__
#undef cudaStream_t
#endif
#ifdef RMM_NO_OFFSET_T
#undef offset_t
#endif

#ifdef __cplusplus
} /* extern "C" */
#endif

#if !defined(ALV_NO_INLINE) && \
    (defined(CUDA_API_PER_THREAD_DEFAULT_STREAM) || defined(__CUDA_API_PER_THREAD_DEFAULT_STREAM))
#define ALV_RMM_PER_THREAD 1
#endif

/*
 * The stream that a handle means in this file. Static, not merely inline: a program may have files that were compiled in both
 * ways, and a linker would keep one of two inline functions. So are all functions below that call it.
 */
static inline struct CUstream_st *alv_rmm_stream_of_this_file(struct CUstream_st *stream) {
#ifdef ALV_RMM_PER_THREAD
#ifdef __cplusplus
    return stream == NULL ? reinterpret_cast<struct CUstream_st *>(2) : stream;
#else
    return stream == NULL ? (struct CUstream_st *)2 : stream;
#endif
#else
    return stream;
#endif
}

#ifdef __cplusplus

namespace alluvion {
namespace rmm_legacy {

/*
 * For a pointer of any type. Their streams are translated already, so that they are one function in all files. Their names stand in
 * parentheses because a program may have macros with arguments that are called alike, as checkers of leaks have.
 */

inline rmmError_t (alloc)(void **ptr, size_t size, CUstream_st *stream, const char *file, unsigned int line) {
    return rmmAlloc(ptr, size, stream, file, line);
}

template <class T>
inline rmmError_t (alloc)(T **ptr, size_t size, CUstream_st *stream, const char *file, unsigned int line) {
    if (ptr == nullptr) {
        return rmmAlloc(nullptr, size, stream, file, line);
    }
    void *block = nullptr;
    const rmmError_t answer = rmmAlloc(&block, size, stream, file, line);
    *ptr = static_cast<T *>(block);
    return answer;
}

inline rmmError_t (realloc)(void **ptr, size_t size, CUstream_st *stream, const char *file, unsigned int line) {
    return rmmRealloc(ptr, size, stream, file, line);
}

template <class T>
inline rmmError_t (realloc)(T **ptr, size_t size, CUstream_st *stream, const char *file, unsigned int line) {
    if (ptr == nullptr) {
        return rmmRealloc(nullptr, size, stream, file, line);
    }
    void *block = const_cast<void *>(static_cast<const volatile void *>(*ptr));
    const rmmError_t answer = rmmRealloc(&block, size, stream, file, line);
    *ptr = static_cast<T *>(block);
    return answer;
}

inline rmmError_t (free)(const volatile void *ptr, CUstream_st *stream, const char *file, unsigned int line) {
    return rmmFree(const_cast<void *>(ptr), stream, file, line);
}

} // namespace rmm_legacy
} // namespace alluvion

#define ALV_RMM_CALL(of_cpp, of_c) (::alluvion::rmm_legacy::of_cpp)
#else
#define ALV_RMM_CALL(of_cpp, of_c) of_c
#endif

/* Allocates, reallocates and frees; the log gets the line of the caller. In C++ the first argument may be a T **. */
#define RMM_ALLOC(ptr, size, stream) \
    ALV_RMM_CALL(alloc, rmmAlloc)((ptr), (size), alv_rmm_stream_of_this_file(stream), __FILE__, __LINE__)
#define RMM_REALLOC(ptr, new_size, stream) \
    ALV_RMM_CALL(realloc, rmmRealloc)((ptr), (new_size), alv_rmm_stream_of_this_file(stream), __FILE__, __LINE__)
#define RMM_FREE(ptr, stream) \
    ALV_RMM_CALL(free, rmmFree)((ptr), alv_rmm_stream_of_this_file(stream), __FILE__, __LINE__)

/* Returns the error of a call from the calling function. */
#ifndef RMM_TRY
#define RMM_TRY(call)                                \
    do {                                             \
        const rmmError_t alv_rmm_answer_ = (call);   \
        if (alv_rmm_answer_ != RMM_SUCCESS) {        \
            return alv_rmm_answer_;                  \
        }                                            \
    } while (0)
#endif

/* What the names of the functions mean in a file whose stream 0 is that of the thread, as CUDA does it with its own. */
#ifdef ALV_RMM_PER_THREAD

static inline rmmError_t alv_rmm_alloc_of_this_file(void **ptr, size_t size, struct CUstream_st *stream,
                                                    const char *file, unsigned int line) {
    return rmmAlloc(ptr, size, alv_rmm_stream_of_this_file(stream), file, line);
}

static inline rmmError_t alv_rmm_realloc_of_this_file(void **ptr, size_t new_size, struct CUstream_st *stream,
                                                      const char *file, unsigned int line) {
    return rmmRealloc(ptr, new_size, alv_rmm_stream_of_this_file(stream), file, line);
}

static inline rmmError_t alv_rmm_free_of_this_file(void *ptr, struct CUstream_st *stream, const char *file,
                                                   unsigned int line) {
    return rmmFree(ptr, alv_rmm_stream_of_this_file(stream), file, line);
}

#define rmmAlloc alv_rmm_alloc_of_this_file
#define rmmRealloc alv_rmm_realloc_of_this_file
#define rmmFree alv_rmm_free_of_this_file

#endif /* ALV_RMM_PER_THREAD */

#endif /* ALLUVION_RMM_LEGACY_H */
