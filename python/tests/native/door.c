/* A door, as another package would have one. Without `Python.h` it is only what needs no interpreter. */
#if defined(WITH_PYTHON)
#include <Python.h>
#endif
#include <alluvion/door.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if !defined(_WIN32)
#define EXPORTED __attribute__((visibility("default")))
#endif

/* What a later version of this door would like to call. */
typedef struct {
    alv_door_table first;
    int32_t (*newer)(void);
} later_table;

EXPORTED int door_size(void) { return (int)sizeof(alv_door_table); }

EXPORTED int door_refuses(alv_door_table const *table) {
    return table->abi_version != ALV_DOOR_ABI_VERSION || !ALV_DOOR_HAS(table, refused_frees);
}

/* A function that the table may lack: -1 where it does. */
EXPORTED int door_newer(alv_door_table const *table) {
    if (table->size < offsetof(later_table, newer) + sizeof(((later_table *)0)->newer)) return -1;
    return ((later_table const *)table)->newer();
}

EXPORTED int door_allocate(alv_door_table const *table, alv_door_handle *handle, size_t bytes, void *stream, void **block) {
    return table->allocate(handle, bytes, 0, stream, block);
}

EXPORTED void door_free(alv_door_table const *table, alv_door_handle *handle, void *block, size_t bytes, void *stream) {
    table->deallocate(handle, block, bytes, 0, stream);
}

EXPORTED void door_message(alv_door_table const *table, char *text, size_t room) {
    strncpy(text, table->last_error_message(), room - 1);
    text[room - 1] = 0;
}

/* What a thread and the end of the process are given. */
static struct {
    alv_door_table const *table;
    alv_door_handle *handle;
    void *block;
    int32_t status;
} given;

static void *allocate_and_free(void *unused) {
    void *block;
    given.status = given.table->allocate(given.handle, 1000, 0, NULL, &block);
    if (given.status == ALV_DOOR_OK) given.table->deallocate(given.handle, block, 1000, 0, NULL);
    return unused;
}

/* Allocates and frees on a thread that has never called Python, and waits for it with whatever the caller holds. */
EXPORTED int door_on_a_thread(alv_door_table const *table, alv_door_handle *handle) {
    pthread_t thread;
    given.table = table, given.handle = handle;
    if (pthread_create(&thread, NULL, allocate_and_free, NULL) != 0) return -1;
    pthread_join(thread, NULL);
    return given.status;
}

static void free_wrongly(void) { given.table->deallocate(given.handle, given.block, 999, 0, NULL); }

/* A free that a layer refuses, once the variables of the main thread have gone. */
EXPORTED int door_at_exit(alv_door_table const *table, alv_door_handle *handle, void *block) {
    given.table = table, given.handle = handle, given.block = block;
    return atexit(free_wrongly);
}

#if defined(WITH_PYTHON)
EXPORTED PyObject *door_table(void) {
    alv_door_table const *const table = alv_door_import();
    return table ? PyLong_FromVoidPtr((void *)table) : NULL;
}

EXPORTED PyObject *door_open(PyObject *stack) {
    alv_door_table const *const table = alv_door_import();
    alv_door_handle *const handle = table ? alv_door_handle_of(table, stack) : NULL;
    return handle ? PyLong_FromVoidPtr(handle) : NULL;
}
#endif
