/* What processes and devices lend each other: a part of stand_in.c. A handle travels to the machine and back as eight numbers. */

static uint64_t word(const void *handle, int at) {
    uint64_t number;
    memcpy(&number, (const char *)handle + 8 * at, sizeof number);
    return number;
}

#define WORDS(handle)                                                                                                                    \
    word(handle, 0), word(handle, 1), word(handle, 2), word(handle, 3), word(handle, 4), word(handle, 5), word(handle, 6), word(handle, 7)

API(IpcGetMemHandle)(N(IpcMemHandle_t) *handle, void *pointer) {
    uint64_t words[8] = {0};
#ifndef CUDART
    /* HIP's handle is of what begins there. */
    uint64_t range[2] = {0, 0};
    if (ASK(AddressRange, range, U(pointer)) != 0 || range[0] != U(pointer)) return end(17);
#endif
    uint32_t code = ASK(MemoryHandle, words, (uint64_t)here(), U(pointer));
    if (code == 0) memcpy(handle, words, sizeof *handle);
    return end(code);
}

API(IpcOpenMemHandle)(void **pointer, N(IpcMemHandle_t) handle, unsigned int flags) {
    uint64_t answer = 0;
    if (flags != N(IpcMemLazyEnablePeerAccess)) return end(1);
    uint32_t code = ASK(MemoryOpen, &answer, (uint64_t)here(), WORDS(&handle));
#ifndef CUDART
    if (code == 1) code = 17;
#endif
    *pointer = (void *)(uintptr_t)(answer + (uint64_t)number_from("STAND_IN_SHIFT", 0));
    return end(code);
}

API(IpcCloseMemHandle)(void *pointer) {
    uint64_t address = U(pointer) - (uint64_t)number_from("STAND_IN_SHIFT", 0);
    return end(ASK(MemoryClose, NULL, (uint64_t)here(), address));
}

#if defined HIP
/* A handle of an event is the name of a file. */
#define NAMES 4096
static pthread_mutex_t naming = PTHREAD_MUTEX_INITIALIZER;
static uint64_t named[NAMES][8];
static unsigned int names;

static void to_name(char *name, const uint64_t *words) {
    pthread_mutex_lock(&naming);
    unsigned int number = names++ % NAMES;
    memcpy(named[number], words, sizeof *named);
    pthread_mutex_unlock(&naming);
    memset(name, 0, 64);
    snprintf(name, 64, "/hip_%d_%u", (int)getpid(), number);
}

static int from_name(const char *name, uint64_t *words) {
    int process;
    unsigned int number;
    if (sscanf(name, "/hip_%d_%u", &process, &number) != 2 || number >= NAMES) return 0;
    pthread_mutex_lock(&naming);
    memcpy(words, named[number], sizeof *named);
    pthread_mutex_unlock(&naming);
    return 1;
}
#endif

API(IpcGetEventHandle)(N(IpcEventHandle_t) *handle, N(Event_t) event) {
    uint64_t words[8] = {0};
    uint32_t code = ASK(EventHandle, words, (uint64_t)here(), U(event));
    if (code != 0) return end(code);
#if defined HIP
    to_name(handle->reserved, words);
#else
    memcpy(handle, words, sizeof *handle);
#endif
    return end(0);
}

API(IpcOpenEventHandle)(N(Event_t) *event, N(IpcEventHandle_t) handle) {
    uint64_t answer = 0, words[8] = {0};
#if defined HIP
    if (!from_name(handle.reserved, words)) return end(1);
#else
    memcpy(words, &handle, sizeof words);
#endif
    uint32_t code = ASK(EventOpen, &answer, (uint64_t)here(), WORDS(words));
    *event = (N(Event_t))(uintptr_t)answer;
    return end(code);
}

/* What is imported, for the machine: a descriptor, or the numbers of a fabric handle. */
static uint32_t import(uint32_t call, uint64_t *answer, handle_type_t type, int descriptor, const void *fabric) {
    if (type == N(MemHandleTypePosixFileDescriptor))
        return back(call, (const uint64_t[]){(uint64_t)here(), type, (uint64_t)descriptor}, answer);
    if (type != N(MemHandleTypeFabric)) return 1;
    return back(call, (const uint64_t[]){(uint64_t)here(), type, WORDS(fabric)}, answer);
}

#if defined CUDART
API(MemPoolExportToShareableHandle)(void *handle, cudaMemPool_t pool, handle_type_t type, unsigned int flags) {
    uint64_t answers[8] = {0};
    if (flags) return end(1);
    uint32_t code = ASK(PoolExport, answers, (uint64_t)here(), U(pool), (uint64_t)type);
    if (code == 0 && type == cudaMemHandleTypePosixFileDescriptor) *(int *)handle = (int)*answers;
    if (code == 0 && type == cudaMemHandleTypeFabric) memcpy(handle, answers, sizeof answers);
    return end(code);
}

API(MemPoolImportFromShareableHandle)(cudaMemPool_t *pool, void *handle, handle_type_t type, unsigned int flags) {
    uint64_t answer = 0;
    if (flags) return end(1);
    uint32_t code = import(CALL_PoolImport, &answer, type, (int)(intptr_t)handle, handle);
    *pool = (cudaMemPool_t)(uintptr_t)answer;
    return end(code);
}

API(MemPoolExportPointer)(struct cudaMemPoolPtrExportData *handle, void *pointer) {
    uint64_t words[8] = {0};
    uint32_t code = ASK(PoolExportPointer, words, (uint64_t)here(), U(pointer));
    if (code == 0) memcpy(handle, words, sizeof *handle);
    return end(code);
}

API(MemPoolImportPointer)(void **pointer, cudaMemPool_t pool, struct cudaMemPoolPtrExportData *handle) {
    uint64_t answer = 0;
    uint32_t code = ASK(PoolImportPointer, &answer, (uint64_t)here(), U(pool), WORDS(handle));
    *pointer = (void *)(uintptr_t)answer;
    return end(code);
}

typedef struct cudaMemAccessDesc pool_access_t;
#else
typedef N(MemAccessDesc) pool_access_t;
#endif

API(MemPoolSetAccess)(N(MemPool_t) pool, const pool_access_t *access, size_t count) {
    if (count != 1 || access->location.type != N(MemLocationTypeDevice)) return end(1);
    if (!is_there(access->location.id)) return end(101);
    return end(ASK(PoolSetAccess, NULL, (uint64_t)here(), U(pool), (uint64_t)access->location.id, (uint64_t)access->flags));
}

DRIVER(MemImportFromShareableHandle)(memory_t *memory, void *handle, handle_type_t type) {
    uint64_t answer = 0;
#if defined HIP && MAJOR < 7
    int descriptor = *(int *)handle;
#else
    int descriptor = (int)(intptr_t)handle;
#endif
    uint32_t code = import(CALL_MemoryImport, &answer, type, descriptor, handle);
    *memory = (memory_t)answer;
    return done(code);
}

/* Imported memory is of this device, unless the test says otherwise. */
DRIVER(MemGetAllocationPropertiesFromHandle)(allocation_properties_t *properties, memory_t memory) {
    if (!memory) return done(1);
    memset(properties, 0, sizeof *properties);
    properties->type = N(MemAllocationTypePinned);
    properties->location.type = N(MemLocationTypeDevice);
    properties->location.id = number_from("STAND_IN_HOME", here());
    return done(0);
}

#if defined CUDART
typedef CUuuid uuid_t;
#else
typedef N(UUID) uuid_t;
#endif

/* A device of AMD without a number of its own says this of itself. */
DRIVER(DeviceGetUuid)(uuid_t *uuid, int device) {
    uint64_t answers[2] = {0, 0};
    if (!is_there(device)) return done(101);
    if (getenv("STAND_IN_NO_UUID")) return memcpy(uuid, "XX\0\0\0\0\0\0\0\0\0\0\0\0\0", sizeof *uuid), done(0);
    uint32_t code = ASK(DeviceUuid, answers, (uint64_t)device);
    if (code == 0) memcpy(uuid, answers, sizeof *uuid);
    return done(code);
}

/* Which device this thread's process has let in. */
static _Thread_local unsigned char let_in[64][64];

API(DeviceCanAccessPeer)(int *can, int device, int peer) {
    uint64_t answer = 0;
    if (!is_there(device) || !is_there(peer)) return end(101);
    uint32_t code = device == peer ? 0 : ASK(CanReach, &answer, (uint64_t)device, (uint64_t)peer);
    *can = (int)answer;
    return end(code);
}

API(DeviceEnablePeerAccess)(int peer, unsigned int flags) {
    int device = here();
    if (flags != 0) return end(1);
    if (!is_there(peer) || peer == device) return end(101);
    uint32_t code = ASK(Reach, NULL, (uint64_t)device, (uint64_t)peer);
    if (code == 0 && let_in[device][peer]) return end(704);
    let_in[device][peer] |= code == 0;
    return end(code);
}
