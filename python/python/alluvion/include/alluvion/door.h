/* What a compiled module needs to allocate from the stacks of the Python package `alluvion`. For C99 and C++11; it needs no other header
 * of ours, none of CUDA, and links nothing. `alluvion.get_include()` names the folder that this lies in.
 *
 *     #include <Python.h>
 *     #include <alluvion/door.h>
 *
 *     alv_door_table const *table = alv_door_import();               // Or null, with a Python exception.
 *     alv_door_handle *handle = alv_door_handle_of(table, stack);    // One count of an alluvion.Stack. Or null, with an exception.
 *     void *block;
 *     if (table->allocate(handle, 1000, 0, stream, &block) != ALV_DOOR_OK) puts(table->last_error_message());
 *     table->deallocate(handle, block, 1000, 0, stream);
 *     table->release(handle);
 *
 * The three lines with an interpreter need `Python.h` before this header.
 *
 * **How it grows.** The table gets new members at its end, and nothing that is there changes, within one `abi_version`. A module
 * refuses a table of another version, and asks `ALV_DOOR_HAS(table, member)` for each member that is not of the first table, which ends
 * with `refused_frees`. `alv_door_import` does the first.
 *
 * **Threads.** Every function may be called on any thread, with the interpreter or without. None needs it, but for a function of Python's
 * that the stack has: a handler, or a source that is written in Python. Such a call waits for the interpreter. A caller that has it is
 * without it while the call waits, for the device or for a thread that runs Python. What such a function raises is told in the message.
 *
 * **Lifetimes.** A handle is counted, and keeps the stack, its memory and its device. It holds no object of Python: a handler of a stack
 * (`on_out_of_memory`) is asked while the Python object of that stack lives, and no longer.
 *
 * **Streams** are bare: a `CUstream` or a `cudaStream_t` of the device of the stack. 0 and 1 are the legacy default stream, 2 is the default
 * stream of the calling thread.
 *
 * **A child of a fork** gets ALV_DOOR_SHUT_DOWN for every request, frees nothing, and may release what it has. So does a process that is
 * ending, once the driver has ended.
 */
#ifndef ALLUVION_DOOR_H
#define ALLUVION_DOOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version that this header describes. */
#define ALV_DOOR_ABI_VERSION 1

/* The name of the capsule that has the table, which is an attribute of the module `alluvion._alluvion`, and of those that have handles,
 * which `stack.__alluvion_handle__()` returns. */
#define ALV_DOOR_TABLE_NAME "alluvion._alluvion._C_API"
#define ALV_DOOR_HANDLE_NAME "alluvion.handle"

/* What a call answers: the numbers of `alluvion/raw.h`. There will be more. */
enum {
    ALV_DOOR_OK = 0,
    ALV_DOOR_OUT_OF_MEMORY = 1,
    ALV_DOOR_SIZE_OVERFLOW = 2,
    ALV_DOOR_INVALID_ALIGNMENT = 3,
    ALV_DOOR_UNSUPPORTED_ALIGNMENT = 4,
    ALV_DOOR_DEVICE_MISMATCH = 5,
    ALV_DOOR_OUT_OF_RANGE = 6,
    ALV_DOOR_LENGTH_MISMATCH = 7,
    ALV_DOOR_INVALID_ARGUMENT = 8,
    ALV_DOOR_UNSUPPORTED = 9,
    ALV_DOOR_NO_DEVICE = 10,
    ALV_DOOR_NO_DRIVER = 11,
    ALV_DOOR_CAPTURE = 12,
    ALV_DOOR_CONTEXT_LOST = 13,
    ALV_DOOR_SHUT_DOWN = 14,
    ALV_DOOR_IN_USE = 15,
    ALV_DOOR_MISUSE = 16,
    ALV_DOOR_MALFORMED = 17,
    ALV_DOOR_UNREADABLE = 18,
    ALV_DOOR_UNWRITABLE = 19,
    ALV_DOOR_DRIVER = 20,
    ALV_DOOR_PANIC = 21,
    ALV_DOOR_ASLEEP = 22,
    ALV_DOOR_FOREIGN = 23,
    ALV_DOOR_STALE = 24,
    ALV_DOOR_OWN_PROCESS = 25
};

/* A stack, counted. */
typedef struct alv_door_handle alv_door_handle;

/* A bare stream of CUDA. */
typedef void *alv_door_stream;

/* What the outermost `stats` layer has counted since it was made, or since its last `push`. */
typedef struct alv_door_stats {
    int64_t current_bytes;
    int64_t peak_bytes;
    int64_t total_bytes;
    int64_t current_count;
    int64_t peak_count;
    int64_t total_count;
    uint64_t failures;
} alv_door_stats;

/* What `segments` calls with a piece of memory. */
typedef void (*alv_door_visitor)(void *context, void *address, size_t bytes);

/* What `detached` calls. */
typedef void (*alv_door_body)(void *context);

typedef struct alv_door_table {
    /* The bytes of the table. */
    size_t size;
    uint32_t abi_version;
    uint32_t reserved;

    /* One more count, and one less. Nothing for null. The last one drops the stack, if nothing else has it. */
    void (*retain)(alv_door_handle const *handle);
    void (*release)(alv_door_handle const *handle);

    /* Allocates `bytes` bytes for work on `stream`. `align` is 0, which means 256, or a power of two; up to 256 all are one. `*block` is
     * null for no bytes, and if the call fails. */
    int32_t (*allocate)(alv_door_handle const *handle, size_t bytes, size_t align, alv_door_stream stream, void **block);

    /* Gives a block back, behind the work on `stream`, which comes after all uses of the block; `bytes` and `align` are those of the request.
     * Null is nothing to free. Never fails: what a layer refuses is left alone, and `refused_frees` counts it. */
    void (*deallocate)(alv_door_handle const *handle, void *block, size_t bytes, size_t align, alv_door_stream stream);

    /* The same for a block that every stream may use as soon as the call returns, and for one that no work uses any more. */
    int32_t (*allocate_sync)(alv_door_handle const *handle, size_t bytes, size_t align, void **block);
    void (*deallocate_sync)(alv_door_handle const *handle, void *block, size_t bytes, size_t align);

    /* Why the calling thread's last failed call failed, for people: valid until the next one, and never null. For a stack that is out of
     * memory that is its report. Then the status of that call, and the bytes that it had asked for. */
    char const *(*last_error_message)(void);
    int32_t (*last_error_status)(void);
    size_t (*last_requested_bytes)(void);

    /* The number of the device that the memory belongs to; -1 for null. */
    int32_t (*device_of)(alv_door_handle const *handle);

    /* 1 if each frees the blocks of the other, and 0 if not. */
    int32_t (*equal)(alv_door_handle const *one, alv_door_handle const *other);

    /* The stack on a line. At most `room` bytes are written, ended by 0 if `room` is not 0; the answer is the whole length without the 0. */
    size_t (*describe)(alv_door_handle const *handle, char *buffer, size_t room);

    /* Gives memory that nobody uses back, down to `keep` bytes. `trimmed`, which may be null, gets how many bytes went. */
    int32_t (*trim)(alv_door_handle const *handle, size_t keep, size_t *trimmed);

    /* ALV_DOOR_UNSUPPORTED without a `stats` layer. */
    int32_t (*stats)(alv_door_handle const *handle, alv_door_stats *stats);

    /* The free and the total bytes of the memory that the stack draws on. Either may be null. */
    int32_t (*memory_info)(alv_door_handle const *handle, size_t *free_bytes, size_t *total_bytes);

    /* How many frees through this handle a layer has refused, as that of a block that was free already. */
    uint64_t (*refused_frees)(alv_door_handle const *handle);

    /* The first table ends here. Ask ALV_DOOR_HAS for what follows. */

    /* The bytes that the outermost suballocator has of the layer below it. It takes no lock. ALV_DOOR_UNSUPPORTED without a suballocator. */
    int32_t (*reserved_bytes)(alv_door_handle const *handle, size_t *bytes);

    /* Calls `visit` with `context` and each piece of these bytes, in the order of their addresses, as they were at one moment. The visitor
     * does not throw, and may call the table. */
    int32_t (*segments)(alv_door_handle const *handle, alv_door_visitor visit, void *context);

    /* The driver's allocation that an address lies in: its begin and its bytes. Either may be null. */
    int32_t (*address_range)(alv_door_handle const *handle, void const *address, void **base, size_t *bytes);

    /* Promises that a stream of the device is not destroyed before the process ends. While the handle has a count, no call asks the driver
     * which stream it is, and no event covers what is freed on it. Once for each stream: every call keeps a little more. Nothing for a
     * default stream. */
    int32_t (*keep_stream)(alv_door_handle const *handle, alv_door_stream stream);

    /* Calls `body` with `context`, on this thread. A caller that has the interpreter is without it meanwhile: for a call that takes a lock
     * under which other functions of the table are called. The body does not throw. */
    int32_t (*detached)(alv_door_body body, void *context);
} alv_door_table;

/* Whether a table has a member, which a later version of `alluvion` may have added. */
#define ALV_DOOR_HAS(table, member) \
    ((table)->size >= offsetof(alv_door_table, member) + sizeof(((alv_door_table *)0)->member))

#ifdef __cplusplus
}
#endif

#ifdef Py_PYTHON_H

/* The table. Null, with an ImportError, if the package is not there, or has another version of the table. */
static inline alv_door_table const *alv_door_import(void) {
    PyObject *const module = PyImport_ImportModule("alluvion._alluvion");
    PyObject *const capsule = module ? PyObject_GetAttrString(module, "_C_API") : NULL;
    alv_door_table const *table = NULL;
    Py_XDECREF(module);
    if (capsule) {
        table = (alv_door_table const *)PyCapsule_GetPointer(capsule, ALV_DOOR_TABLE_NAME);
        Py_DECREF(capsule);
    }
    if (table && (table->abi_version != ALV_DOOR_ABI_VERSION || !ALV_DOOR_HAS(table, refused_frees))) {
        PyErr_Format(PyExc_ImportError,
                     "alluvion has version %u of its table of functions with %zu bytes, and this module was built for version %d with %zu "
                     "bytes or more: install another version of one of them, or build the module again",
                     (unsigned)table->abi_version, table->size, ALV_DOOR_ABI_VERSION,
                     offsetof(alv_door_table, refused_frees) + sizeof(table->refused_frees));
        table = NULL;
    }
    return table;
}

/* A count of an `alluvion.Stack`, which the caller releases. Null, with an exception, if it is none, or cannot be used in this process. */
static inline alv_door_handle *alv_door_handle_of(alv_door_table const *table, PyObject *stack) {
    PyObject *const capsule = PyObject_CallMethod(stack, "__alluvion_handle__", NULL);
    alv_door_handle *handle = NULL;
    if (capsule) {
        handle = (alv_door_handle *)PyCapsule_GetPointer(capsule, ALV_DOOR_HANDLE_NAME);
        if (handle) table->retain(handle);
        Py_DECREF(capsule);
    }
    return handle;
}

#endif

#endif
