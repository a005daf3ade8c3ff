/*
 * The C interface of Alluvion: stream-ordered memory of GPUs, in composable layers.
 *
 *     alv_resource *pool = NULL;
 *     if (alv_resource_from_recipe("stats | pool | cuda-async", 0, &pool) != ALV_OK) {
 *         fprintf(stderr, "%s\n", alv_last_error_message());
 *         return 1;
 *     }
 *     void *block = NULL;
 *     alv_status status = alv_allocate(pool, 1 << 20, 0, stream, &block);
 *     ...
 *     alv_deallocate(pool, block, 1 << 20, 0, stream);
 *     alv_resource_release(pool);
 *
 * Rules
 * - A function that can fail answers an alv_status, and what it gives is written to its last arguments: null or 0 if it fails.
 *   alv_last_error_message() says why, for the calling thread, until its next failing call.
 * - A pointer to a handle comes from a function of this library and is released once for each function that gave or retained it.
 *   Null is ALV_INVALID_ARGUMENT where the text of a function does not allow it, and nothing to do for releases and frees.
 * - A struct with struct_size begins with ALV_INIT(type).
 * - Functions of the program that the library calls must not throw, and may call the library.
 * - A stream is a CUstream or a cudaStream_t of the resource's device. 0 is the default stream as the calling file was compiled: that
 *   of the thread under CUDA_API_PER_THREAD_DEFAULT_STREAM, and else the legacy one. The library cannot see how, so the header
 *   translates: functions with a stream are inline, over those whose names end in _raw, for which 0 is always the legacy stream.
 *   ALV_NO_INLINE leaves the inline functions out, for other languages.
 * - Every function may be called from any thread, and several threads may use one handle at once. Only the last release of a handle
 *   is not beside another use of it.
 * - Each call leaves the current device, the current context and the last error of the CUDA runtime as they were.
 *
 * C99 and later, C++14 and later. No header and no library of CUDA is needed; the driver is looked for when it is used.
 */
#ifndef ALLUVION_H
#define ALLUVION_H

#include "alluvion/raw.h"

/* The version of this header, for alv_check_version and for #if: 0.2.0 is 0x2000. */
#define ALV_VERSION (ALV_VERSION_MAJOR * 0x1000000u + ALV_VERSION_MINOR * 0x1000u + ALV_VERSION_PATCH)
/* The same as text, such as "0.1.0". */
#define ALV_VERSION_STRING \
    ALV_TEXT_OF(ALV_VERSION_MAJOR) "." ALV_TEXT_OF(ALV_VERSION_MINOR) "." ALV_TEXT_OF(ALV_VERSION_PATCH)
#define ALV_TEXT_OF(number) ALV_TEXT_OF_TOKEN(number)
#define ALV_TEXT_OF_TOKEN(token) #token

/*
 * A struct whose fields are 0, but for its size: alv_counts counts = ALV_INIT(alv_counts);
 * It initialises. To assign, name the type: counts = (alv_counts)ALV_INIT(alv_counts);
 */
#ifdef __cplusplus
namespace alluvion_c {
template <class Struct>
inline Struct initial() {
    Struct made = Struct();
    made.struct_size = sizeof(Struct);
    return made;
}
} // namespace alluvion_c
#define ALV_INIT(type) (::alluvion_c::initial<type>())
#else
#define ALV_INIT(type) {.struct_size = sizeof(type)}
#endif

#ifndef ALV_NO_INLINE

/*
 * The stream that a handle means in this file. Static, not merely inline: a program may have files that were compiled in both
 * ways, and a linker would keep one of two inline functions. So write "static inline", too, before functions of your own headers that
 * call one of these.
 */
static inline alv_cuda_stream alv_stream_of_this_file(alv_cuda_stream stream) {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM) || defined(__CUDA_API_PER_THREAD_DEFAULT_STREAM)
#ifdef __cplusplus
    return stream == NULL ? reinterpret_cast<alv_cuda_stream>(2) : stream;
#else
    return stream == NULL ? (alv_cuda_stream)2 : stream;
#endif
#else
    return stream;
#endif
}

/* Each is described in alluvion/raw.h, under its name with _raw. */

ALV_MUST_USE static inline alv_status alv_allocate(const alv_resource *resource, size_t bytes, size_t align, alv_cuda_stream stream,
                                                   void **out) {
    return alv_allocate_raw(resource, bytes, align, alv_stream_of_this_file(stream), out);
}

static inline void alv_deallocate(const alv_resource *resource, void *block, size_t bytes, size_t align,
                                  alv_cuda_stream stream) {
    alv_deallocate_raw(resource, block, bytes, align, alv_stream_of_this_file(stream));
}

ALV_MUST_USE static inline alv_status alv_allocate_many(const alv_resource *resource, const size_t *sizes, size_t count, size_t align,
                                                        alv_cuda_stream stream, void **blocks) {
    return alv_allocate_many_raw(resource, sizes, count, align, alv_stream_of_this_file(stream), blocks);
}

static inline void alv_deallocate_many(const alv_resource *resource, void *const *blocks, const size_t *sizes, size_t count,
                                       size_t align, alv_cuda_stream stream) {
    alv_deallocate_many_raw(resource, blocks, sizes, count, align, alv_stream_of_this_file(stream));
}

ALV_MUST_USE static inline alv_status alv_sleep_block(const alv_resource *stack, void *block, alv_cuda_stream stream,
                                                      const alv_resource *keep_in, alv_sleeper **out) {
    return alv_sleep_block_raw(stack, block, alv_stream_of_this_file(stream), keep_in, out);
}

ALV_MUST_USE static inline alv_status alv_sleep_block_on_disk(const alv_resource *stack, void *block, alv_cuda_stream stream,
                                                              const char *folder, alv_sleeper **out) {
    return alv_sleep_block_on_disk_raw(stack, block, alv_stream_of_this_file(stream), folder, out);
}

ALV_MUST_USE static inline alv_status alv_saver_save(const alv_saver *saver, const alv_resource *resource, const char *name,
                                                     const void *block, size_t bytes, alv_cuda_stream stream) {
    return alv_saver_save_raw(saver, resource, name, block, bytes, alv_stream_of_this_file(stream));
}

ALV_MUST_USE static inline alv_status alv_saved_restore(const alv_saved *saved, const alv_resource *resource, const char *name,
                                                        void *block, size_t bytes, alv_cuda_stream stream) {
    return alv_saved_restore_raw(saved, resource, name, block, bytes, alv_stream_of_this_file(stream));
}

ALV_MUST_USE static inline alv_status alv_capture(const alv_resource *stack, alv_cuda_stream stream, alv_graph_memory **out) {
    return alv_capture_raw(stack, alv_stream_of_this_file(stream), out);
}

ALV_MUST_USE static inline alv_status alv_stream_wrap(int32_t device, alv_cuda_stream stream, alv_stream **out) {
    return alv_stream_wrap_raw(device, alv_stream_of_this_file(stream), out);
}

ALV_MUST_USE static inline alv_status alv_stream_wrap_owned(int32_t device, alv_cuda_stream stream, void *owner, void (*drop)(void *),
                                                            alv_stream **out) {
    return alv_stream_wrap_owned_raw(device, alv_stream_of_this_file(stream), owner, drop, out);
}

ALV_MUST_USE static inline alv_status alv_ledger_allocate(const alv_ledger *ledger, size_t bytes, size_t align, alv_cuda_stream stream,
                                                          void **out) {
    return alv_ledger_allocate_raw(ledger, bytes, align, alv_stream_of_this_file(stream), out);
}

static inline alv_status alv_ledger_free(const alv_ledger *ledger, void *block, alv_cuda_stream stream) {
    return alv_ledger_free_raw(ledger, block, alv_stream_of_this_file(stream));
}

static inline alv_status alv_record_stream(const alv_ledger *ledger, const void *block, alv_cuda_stream stream) {
    return alv_record_stream_raw(ledger, block, alv_stream_of_this_file(stream));
}

static inline alv_status alluvion_ort_set_stream(int device, alv_cuda_stream stream) {
    return alluvion_ort_set_stream_raw(device, alv_stream_of_this_file(stream));
}

static inline alv_status alv_copy(const alv_resource *resource, void *to, const void *from, size_t bytes,
                                  alv_cuda_stream stream) {
    return alv_copy_raw(resource, to, from, bytes, alv_stream_of_this_file(stream));
}

static inline alv_status alv_fill(const alv_resource *resource, void *to, uint8_t value, size_t bytes,
                                  alv_cuda_stream stream) {
    return alv_fill_raw(resource, to, value, bytes, alv_stream_of_this_file(stream));
}

static inline alv_status alv_prefetch(const alv_resource *resource, const void *address, size_t bytes, int32_t to,
                                      alv_cuda_stream stream) {
    return alv_prefetch_raw(resource, address, bytes, to, alv_stream_of_this_file(stream));
}

static inline alv_status alv_synchronize(const alv_resource *resource, alv_cuda_stream stream) {
    return alv_synchronize_raw(resource, alv_stream_of_this_file(stream));
}

static inline alv_status alv_wait_for(const alv_resource *resource, alv_cuda_stream stream, alv_cuda_stream other) {
    return alv_wait_for_raw(resource, alv_stream_of_this_file(stream), alv_stream_of_this_file(other));
}

ALV_MUST_USE static inline alv_status alv_share(const alv_resource *resource, void *block, size_t bytes, size_t align,
                                                const alv_share_options *options, alv_cuda_stream stream, alv_shared **out) {
    return alv_share_raw(resource, block, bytes, align, options, alv_stream_of_this_file(stream), out);
}

ALV_MUST_USE static inline alv_status alv_shared_park(const alv_shared *shared, alv_cuda_stream stream) {
    return alv_shared_park_raw(shared, alv_stream_of_this_file(stream));
}

ALV_MUST_USE static inline alv_status alv_open_shared(int32_t device, const void *message, size_t length, int32_t descriptor,
                                                      const alv_open_options *options, alv_cuda_stream stream, alv_imported **out) {
    return alv_open_shared_raw(device, message, length, descriptor, options, alv_stream_of_this_file(stream), out);
}

#endif /* ALV_NO_INLINE */

#endif /* ALLUVION_H */
