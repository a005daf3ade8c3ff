/* A runtime library without a GPU: every function of a vendor's header, which asks the test beside it. Built once for each vendor and
 * version: CUDART, HIP or MACA is defined, and MAJOR. LACKS_REQUIRED and LACKS_OPTIONAL leave functions out; LACKS_DRIVER is a cudart
 * 12.2 over a driver of 12.0. A function whose name is defined as another one is left out, too.
 *
 * What is the library's own business is here: the current device of each thread, cudart's contexts, the last error, the vendor's
 * structures and numbers. The machine behind it is the test's. It is asked by the call's number, with numbers only, and answers with
 * numbers and a code of CUDA's. */
#define _GNU_SOURCE
#include <stdint.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined CUDART
#include "cudart.h"
#define PREFIX cuda
#define cudaAllocHost cudaHostAlloc
#define cudaReleaseHost cudaFreeHost
#elif defined HIP
#include "hip.h"
#define PREFIX hip
#define hipAllocHost hipHostMalloc
#define hipReleaseHost hipHostFree
#else
#include "maca.h"
#define PREFIX mc
#define mcAllocHost mcMallocHost
#define mcReleaseHost mcFreeHost
#endif
#include "calls.h"

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define N(stem) PASTE(PREFIX, stem)
#define OUT __attribute__((visibility("default")))
#define API(stem) OUT N(Error_t) N(stem)

/* Every function returns what this does: it remembers the error for the thread. */
static _Thread_local N(Error_t) last_error;

static N(Error_t) end(uint32_t code) {
    if (code != 0) last_error = (N(Error_t))code;
    return (N(Error_t))code;
}

typedef uint32_t (*machine)(uint32_t call, const uint64_t *arguments, uint64_t *answers);
static machine back;
static int devices_there = 1;

/* The test says which machine it is, and how many devices it has. */
OUT void stand_in_behind(machine asked, int devices) {
    back = asked;
    devices_there = devices;
}

static int number_from(const char *variable, int otherwise) {
    const char *text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

#define ASK(call, answers, ...) back(CALL_##call, (const uint64_t[]){__VA_ARGS__, 0}, answers)
#define U(pointer) ((uint64_t)(uintptr_t)(pointer))

/* The current device. */
static _Thread_local int chosen;

#if defined CUDART
/* The contexts of a thread, the current one last; the primary context of a device is 0xC0 and its number. */
#define PRIMARY 0xC0
static _Thread_local uintptr_t contexts[64];
static _Thread_local int depth;

static uintptr_t current(void) { return depth ? contexts[depth - 1] : 0; }
static int device_of(uintptr_t context) { return context >= PRIMARY && context < PRIMARY + 64 ? (int)(context - PRIMARY) : 0; }

/* A call without a context makes that of the chosen device current for good, as cudart does. */
static int here(void) {
    if (current() == 0) {
        depth = depth ? depth : 1;
        contexts[depth - 1] = PRIMARY + chosen;
    }
    return device_of(current());
}

OUT void stand_in_push(uintptr_t context) { contexts[depth++] = context; }
OUT uintptr_t stand_in_current(void) { return current(); }
#else
static int here(void) { return chosen; }
OUT int stand_in_current(void) { return chosen; }
#endif

static int is_there(int device) { return device >= 0 && device < devices_there; }

/* Null is the legacy stream, which the machine knows as 1. */
static uint64_t of(N(Stream_t) stream) { return stream == NULL ? 1 : U(stream); }

#if defined CUDART
#if defined LACKS_DRIVER
#define VERSION 12020
#define BEHIND 12000
#elif MAJOR == 12
#define VERSION 12080
#define BEHIND 12080
#else
#define VERSION (MAJOR * 1000)
#define BEHIND (MAJOR * 1000)
#endif
#endif

API(RuntimeGetVersion)(int *version) {
#if defined CUDART
    *version = number_from("STAND_IN_VERSION", VERSION);
#elif defined HIP
    *version = number_from("STAND_IN_VERSION", MAJOR * 10000000 + 5 * 100000 + 31921);
#else
    *version = number_from("STAND_IN_VERSION", 3020);
#endif
    return end(0);
}

#if defined CUDART
static int driver_version(void) { return number_from("STAND_IN_DRIVER", BEHIND); }

API(DriverGetVersion)(int *version) {
    *version = driver_version();
    return end(0);
}
#endif

API(GetDeviceCount)(int *count) {
#if defined CUDART
    /* A driver serves libraries of its own major version, and of older ones. */
    if (driver_version() / 1000 < MAJOR) return end(35);
#endif
    *count = devices_there;
    return end(number_from("STAND_IN_CODE", 0));
}

API(GetDevice)(int *device) {
#if defined CUDART
    *device = current() ? device_of(current()) : chosen;
#else
    *device = chosen;
#endif
    return end(0);
}

API(SetDevice)(int device) {
    if (!is_there(device)) return end(101);
    chosen = device;
#if defined CUDART
    depth = depth ? depth : 1;
    contexts[depth - 1] = PRIMARY + device;
#endif
    return end(0);
}

API(GetLastError)(void) {
    N(Error_t) code = last_error;
    last_error = 0;
    return code;
}

API(PeekAtLastError)(void) { return last_error; }

/* CUDA's number of an attribute. -1: the library has none, -2: the library answers by itself. */
static int attribute_in_cuda(int attribute) {
    switch (attribute) {
#if defined CUDART
    case cudaDevAttrCanUseHostPointerForRegisteredMem: return -2;
    case cudaDevAttrMultiProcessorCount: return 16;
    case cudaDevAttrIntegrated: return 18;
    case cudaDevAttrCanMapHostMemory: return 19;
    case cudaDevAttrPciBusId: return 33;
    case cudaDevAttrPciDeviceId: return 34;
    case cudaDevAttrUnifiedAddressing: return 41;
    case cudaDevAttrPciDomainId: return 50;
    case cudaDevAttrComputeCapabilityMajor: return 75;
    case cudaDevAttrComputeCapabilityMinor: return 76;
    case cudaDevAttrManagedMemory: return 83;
    case cudaDevAttrPageableMemoryAccess: return 88;
    case cudaDevAttrConcurrentManagedAccess: return 89;
    case cudaDevAttrHostRegisterSupported: return 99;
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables: return 100;
    case cudaDevAttrMemoryPoolsSupported: return 115;
    case cudaDevAttrMemoryPoolSupportedHandleTypes: return 119;
    case cudaDevAttrIpcEventSupport: return 125;
    case cudaDevAttrHostNumaId: return 134;
#elif defined HIP
    case hipDeviceAttributeCanUseHostPointerForRegisteredMem: return -2;
    case hipDeviceAttributeMultiprocessorCount: return 16;
    case hipDeviceAttributeIntegrated: return 18;
    case hipDeviceAttributeCanMapHostMemory: return 19;
    case hipDeviceAttributePciBusId: return 33;
    case hipDeviceAttributePciDeviceId: return 34;
    case hipDeviceAttributeUnifiedAddressing: return 41;
    case hipDeviceAttributePciDomainId: return 50;
    case hipDeviceAttributeComputeCapabilityMajor: return 75;
    case hipDeviceAttributeComputeCapabilityMinor: return 76;
    case hipDeviceAttributeManagedMemory: return 83;
    case hipDeviceAttributePageableMemoryAccess: return 88;
    case hipDeviceAttributeConcurrentManagedAccess: return 89;
    case hipDeviceAttributePageableMemoryAccessUsesHostPageTables: return 100;
    case hipDeviceAttributeVirtualMemoryManagementSupported: return 102;
    case hipDeviceAttributeMemoryPoolsSupported: return 115;
#if MAJOR >= 6
    case hipDeviceAttributeHostRegisterSupported: return 99;
    case hipDeviceAttributeMemoryPoolSupportedHandleTypes: return 119;
    case hipDeviceAttributeHostNumaId: return 134;
#endif
#if MAJOR >= 7
    case hipDeviceAttributeHandleTypeFabricSupported: return 128;
#endif
#else
    case mcDeviceAttributeMultiProcessorCount: return 16;
    case mcDeviceAttributeIntegrated: return 18;
    case mcDeviceAttributeCanMapHostMemory: return 19;
    case mcDeviceAttributePciBusId: return 33;
    case mcDeviceAttributePciDeviceId: return 34;
    case mcDeviceAttributeUnifiedAddressing: return 41;
    case mcDeviceAttributePciDomainId: return 50;
    case mcDeviceAttributeComputeCapabilityMajor: return 75;
    case mcDeviceAttributeComputeCapabilityMinor: return 76;
    case mcDeviceAttributeManagedMemory: return 83;
    case mcDeviceAttributePageableMemoryAccess: return 88;
    case mcDeviceAttributeConcurrentManagedAccess: return 89;
    case mcDeviceAttributePageableMemoryAccessUsesHostPageTables: return 100;
    case mcDeviceAttributeVirtualMemoryManagementSupported: return 102;
    case mcDeviceAttributeHandleTypePosixFileDescriptorSupported: return 103;
    case mcDeviceAttributeMemoryPoolsSupported: return 115;
    case mcDeviceAttributeMemoryPoolSupportedHandleTypes: return 119;
#endif
    default: return -1;
    }
}

static uint32_t attribute(int *value, int number, int device) {
    uint64_t answer = 0;
    uint32_t code = ASK(Attribute, &answer, (uint64_t)device, (uint64_t)number);
    if (code == 0) *value = (int)answer;
    return code;
}

#if defined CUDART
typedef enum cudaDeviceAttr attribute_t;
#else
typedef N(DeviceAttribute_t) attribute_t;
#endif

API(DeviceGetAttribute)(int *value, attribute_t asked, int device) {
    if (!is_there(device)) return end(101);
    int number = attribute_in_cuda((int)asked);
    if (number == -1) return end(1);
    if (number == -2) return *value = 1, end(0);
    return end(attribute(value, number, device));
}

API(DeviceSynchronize)(void) { return end(ASK(ContextSynchronize, NULL, (uint64_t)here())); }

API(MemGetInfo)(size_t *free, size_t *total) {
    uint64_t answers[2] = {0, 0};
    uint32_t code = ASK(MemoryInfo, answers, (uint64_t)here());
    *free = answers[0], *total = answers[1];
    return end(code);
}

API(StreamCreateWithPriority)(N(Stream_t) *stream, unsigned int flags, int priority) {
    uint64_t answer = 0;
    if (flags & ~(unsigned)N(StreamNonBlocking)) return end(1);
    uint32_t code = ASK(StreamCreate, &answer, (uint64_t)here(), flags != N(StreamNonBlocking), (uint64_t)(int64_t)priority);
    *stream = (N(Stream_t))(uintptr_t)answer;
    return end(code);
}

API(StreamDestroy)(N(Stream_t) stream) { return end(ASK(StreamDestroy, NULL, (uint64_t)here(), U(stream))); }
API(StreamSynchronize)(N(Stream_t) stream) { return end(ASK(StreamSynchronize, NULL, (uint64_t)here(), of(stream))); }
API(StreamQuery)(N(Stream_t) stream) { return end(ASK(StreamQuery, NULL, (uint64_t)here(), of(stream))); }

API(StreamWaitEvent)(N(Stream_t) stream, N(Event_t) event, unsigned int flags) {
    if (flags != 0) return end(1);
    return end(ASK(StreamWaitEvent, NULL, (uint64_t)here(), of(stream), U(event)));
}

API(EventCreateWithFlags)(N(Event_t) *event, unsigned int flags) {
    uint64_t answer = 0;
    unsigned int shared = N(EventDisableTiming) | N(EventInterprocess);
    if (flags != N(EventDisableTiming) && flags != shared) return end(1);
    uint32_t code = ASK(EventCreate, &answer, (uint64_t)here(), flags == shared);
    *event = (N(Event_t))(uintptr_t)answer;
    return end(code);
}

API(EventDestroy)(N(Event_t) event) { return end(ASK(EventDestroy, NULL, (uint64_t)here(), U(event))); }
API(EventRecord)(N(Event_t) event, N(Stream_t) stream) {
    return end(ASK(EventRecord, NULL, (uint64_t)here(), U(event), of(stream)));
}
API(EventQuery)(N(Event_t) event) { return end(ASK(EventQuery, NULL, (uint64_t)here(), U(event))); }
API(EventSynchronize)(N(Event_t) event) { return end(ASK(EventSynchronize, NULL, (uint64_t)here(), U(event))); }

#ifndef LACKS_REQUIRED
API(Malloc)(void **pointer, size_t size) {
    uint64_t answer = 0;
    uint32_t code = ASK(AllocateDevice, &answer, (uint64_t)here(), size);
    *pointer = (void *)(uintptr_t)(answer + (uint64_t)number_from("STAND_IN_SHIFT", 0));
    return end(code);
}
#endif

API(Free)(void *pointer) {
    uint64_t address = U(pointer) - (uint64_t)number_from("STAND_IN_SHIFT", 0);
    return end(ASK(FreeDevice, NULL, (uint64_t)here(), address));
}

API(AllocHost)(void **pointer, size_t size, unsigned int flags) {
    uint64_t answer = 0;
#if defined CUDART
    uint64_t portable = flags & cudaHostAllocPortable, mapped = flags & cudaHostAllocMapped, combined = flags & cudaHostAllocWriteCombined;
#else
#if defined HIP
    uint64_t portable = flags & hipHostMallocPortable, mapped = flags & hipHostMallocMapped, combined = flags & hipHostMallocWriteCombined;
#else
    uint64_t portable = flags & mcMallocHostPortable, mapped = flags & mcMallocHostMapped, combined = flags & mcMallocHostWriteCombined;
#endif
#endif
    uint32_t code = ASK(AllocatePinned, &answer, (uint64_t)here(), size, portable != 0, mapped != 0, combined != 0);
    *pointer = (void *)(uintptr_t)answer;
    return end(code);
}

API(ReleaseHost)(void *pointer) { return end(ASK(FreePinned, NULL, (uint64_t)here(), U(pointer))); }

API(HostGetDevicePointer)(void **device, void *host, unsigned int flags) {
    if (flags != 0) return end(1);
    *device = (char *)host + number_from("STAND_IN_SPLIT_ADDRESSES", 0);
    return end(0);
}

#if defined CUDART
typedef enum cudaMemcpyKind kind_t;
#else
typedef N(MemcpyKind) kind_t;
#endif

API(Memcpy)(void *to, const void *from, size_t count, kind_t kind) {
    if (kind != N(MemcpyDefault)) return end(21);
    return end(ASK(Copy, NULL, (uint64_t)here(), U(to), U(from), count));
}

API(MemcpyAsync)(void *to, const void *from, size_t count, kind_t kind, N(Stream_t) stream) {
    if (kind != N(MemcpyDefault)) return end(21);
    return end(ASK(CopyAsync, NULL, (uint64_t)here(), U(to), U(from), count, of(stream)));
}

API(MemsetAsync)(void *to, int value, size_t count, N(Stream_t) stream) {
    return end(ASK(FillAsync, NULL, (uint64_t)here(), U(to), 1, (uint64_t)(unsigned char)value, count, of(stream)));
}

#ifndef LACKS_OPTIONAL
API(DeviceGetStreamPriorityRange)(int *least, int *greatest) {
    uint64_t answers[2] = {0, 0};
    uint32_t code = ASK(StreamPriorityRange, answers, (uint64_t)here());
    *least = (int)answers[0], *greatest = (int)answers[1];
    return end(code);
}

API(StreamGetId)(N(Stream_t) stream, unsigned long long *id) {
    uint64_t answer = 0;
    uint32_t code = ASK(StreamId, &answer, (uint64_t)here(), of(stream));
    *id = answer;
    return end(code);
}

#if defined CUDART
typedef enum cudaStreamCaptureMode capture_mode_t;
typedef enum cudaStreamCaptureStatus capture_status_t;
#else
typedef N(StreamCaptureMode) capture_mode_t;
typedef N(StreamCaptureStatus) capture_status_t;
#endif

API(ThreadExchangeStreamCaptureMode)(capture_mode_t *mode) {
    uint64_t answer = 0;
    uint32_t code = ASK(CaptureMode, &answer, (uint64_t)*mode);
    *mode = (capture_mode_t)answer;
    return end(code);
}

API(StreamIsCapturing)(N(Stream_t) stream, capture_status_t *status) {
    uint64_t answer = 0;
    uint32_t code = ASK(StreamCaptureStatus, &answer, (uint64_t)here(), of(stream));
    *status = (capture_status_t)answer;
    return end(code);
}

static uint32_t capture_info(uint64_t stream, capture_status_t *status, unsigned long long *id, N(Graph_t) *graph) {
    uint64_t answers[3] = {0, 0, 0};
    uint32_t code = ASK(StreamCaptureId, answers, (uint64_t)here(), stream);
    *status = (capture_status_t)answers[0], *id = answers[1], *graph = (N(Graph_t))(uintptr_t)answers[2];
    return code;
}

#if defined CUDART && MAJOR >= 13
API(StreamGetCaptureInfo)(N(Stream_t) stream, capture_status_t *status, unsigned long long *id, N(Graph_t) *graph,
                          const N(GraphNode_t) **nodes, const void **edges, size_t *count) {
    if (nodes || edges || count) return end(1);
    return end(capture_info(of(stream), status, id, graph));
}
#else
API(StreamGetCaptureInfo_v2)(N(Stream_t) stream, capture_status_t *status, unsigned long long *id, N(Graph_t) *graph,
                             const N(GraphNode_t) **nodes, size_t *count) {
    if (nodes || count) return end(1);
    /* What HIP says of the legacy stream. */
    if (stream == NULL) return end(906);
    return end(capture_info(of(stream), status, id, graph));
}
#endif

API(StreamBeginCapture)(N(Stream_t) stream, capture_mode_t mode) {
    return end(ASK(BeginCapture, NULL, (uint64_t)here(), of(stream), (uint64_t)mode));
}

API(StreamEndCapture)(N(Stream_t) stream, N(Graph_t) *graph) {
    uint64_t answer = 0;
    uint32_t code = ASK(EndCapture, &answer, (uint64_t)here(), of(stream));
    *graph = (N(Graph_t))(uintptr_t)answer;
    return end(code);
}

API(GraphDestroy)(N(Graph_t) graph) { return end(ASK(GraphDestroy, NULL, (uint64_t)here(), U(graph))); }

API(LaunchHostFunc)(N(Stream_t) stream, N(HostFn_t) function, void *data) {
    return end(ASK(StreamHostCall, NULL, (uint64_t)here(), of(stream), U(function), U(data)));
}

API(MallocManaged)(void **pointer, size_t size, unsigned int flags) {
    uint64_t answer = 0;
    if (flags != N(MemAttachGlobal)) return end(1);
    uint32_t code = ASK(AllocateManaged, &answer, (uint64_t)here(), size);
    *pointer = (void *)(uintptr_t)answer;
    return end(code);
}

API(HostRegister)(void *pointer, size_t size, unsigned int flags) {
    uint64_t portable = flags & N(HostRegisterPortable), mapped = flags & N(HostRegisterMapped);
    return end(ASK(RegisterHost, NULL, (uint64_t)here(), U(pointer), size, portable != 0, mapped != 0));
}

API(HostUnregister)(void *pointer) { return end(ASK(UnregisterHost, NULL, (uint64_t)here(), U(pointer))); }

#if defined CUDART
typedef struct cudaPointerAttributes pointer_attributes_t;
#else
typedef N(PointerAttribute_t) pointer_attributes_t;
#endif

API(PointerGetAttributes)(pointer_attributes_t *attributes, const void *pointer) {
    /* Kinds of the machine: 0 for none, 1 of a device, 2 managed, 3 pinned; whether it is a plain allocation, and the range of it. */
    uint64_t answers[5] = {0};
    here();
    uint32_t code = ASK(PointerAttributes, answers, U(pointer));
    if (code != 0) return end(code);
    memset(attributes, 0, sizeof *attributes);
    attributes->device = (int)answers[1];
    switch (answers[0]) {
    case 1: attributes->type = N(MemoryTypeDevice); break;
    case 2: attributes->type = N(MemoryTypeManaged); break;
    case 3: attributes->type = N(MemoryTypeHost); break;
#if defined HIP && MAJOR < 6
    default: return end(1);
#else
    default: attributes->type = N(MemoryTypeUnregistered), attributes->device = -2;
#endif
    }
#ifndef CUDART
    attributes->isManaged = answers[0] == 2;
    /* HIP says "device" of managed memory, and the flag says the rest. */
    if (answers[0] == 2) attributes->type = N(MemoryTypeDevice);
#endif
    attributes->devicePointer = (void *)(uintptr_t)pointer;
    return end(0);
}

API(MemcpyPeerAsync)(void *to, int to_device, const void *from, int from_device, size_t count, N(Stream_t) stream) {
    if (!is_there(to_device) || !is_there(from_device)) return end(101);
    return end(ASK(CopyAsync, NULL, (uint64_t)here(), U(to), U(from), count, of(stream)));
}

#if defined CUDART
typedef struct cudaMemPoolProps pool_properties_t;
typedef enum cudaMemPoolAttr pool_attribute_t;
typedef enum cudaMemoryAdvise advice_t;
typedef struct cudaMemLocation location_t;
typedef enum cudaMemAllocationType allocation_t;
typedef enum cudaMemAllocationHandleType handle_type_t;
#else
typedef N(MemPoolProps) pool_properties_t;
typedef N(MemPoolAttr) pool_attribute_t;
typedef N(MemoryAdvise) advice_t;
typedef N(MemLocation) location_t;
typedef N(MemAllocationType) allocation_t;
typedef N(MemAllocationHandleType) handle_type_t;
#endif

static int is_zero(const unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i]) return 0;
    return 1;
}

API(MemPoolCreate)(N(MemPool_t) *pool, const pool_properties_t *properties) {
    uint64_t answer = 0, limit = 0;
    if (properties->allocType != N(MemAllocationTypePinned) || properties->location.type != N(MemLocationTypeDevice)) return end(1);
    if (properties->win32SecurityAttributes || !is_zero(properties->reserved, sizeof properties->reserved)) return end(1);
#if defined CUDART || (defined HIP && MAJOR >= 6)
    limit = properties->maxSize;
#endif
    if (!is_there(properties->location.id)) return end(101);
    uint32_t code = ASK(PoolCreate, &answer, (uint64_t)properties->location.id, properties->handleTypes, limit);
    *pool = (N(MemPool_t))(uintptr_t)answer;
    return end(code);
}

API(MemPoolDestroy)(N(MemPool_t) pool) { return end(ASK(PoolDestroy, NULL, (uint64_t)here(), U(pool))); }
API(MemPoolTrimTo)(N(MemPool_t) pool, size_t keep) { return end(ASK(PoolTrim, NULL, (uint64_t)here(), U(pool), keep)); }

static int is_int(pool_attribute_t attribute) { return attribute <= N(MemPoolReuseAllowInternalDependencies); }

API(MemPoolGetAttribute)(N(MemPool_t) pool, pool_attribute_t attribute, void *value) {
    uint64_t answer = 0;
    uint32_t code = ASK(PoolAttribute, &answer, (uint64_t)here(), U(pool), (uint64_t)attribute);
    if (is_int(attribute)) *(int *)value = (int)answer;
    else *(uint64_t *)value = answer;
    return end(code);
}

API(MemPoolSetAttribute)(N(MemPool_t) pool, pool_attribute_t attribute, void *value) {
    uint64_t given = is_int(attribute) ? (uint64_t)*(int *)value : *(uint64_t *)value;
    return end(ASK(PoolSetAttribute, NULL, (uint64_t)here(), U(pool), (uint64_t)attribute, given));
}

API(DeviceGetDefaultMemPool)(N(MemPool_t) *pool, int device) {
    uint64_t answer = 0;
    if (!is_there(device)) return end(101);
    uint32_t code = ASK(PoolDefault, &answer, (uint64_t)device, 0);
    *pool = (N(MemPool_t))(uintptr_t)answer;
    return end(code);
}

API(MallocFromPoolAsync)(void **pointer, size_t size, N(MemPool_t) pool, N(Stream_t) stream) {
    uint64_t answer = 0;
    uint32_t code = ASK(AllocateAsync, &answer, (uint64_t)here(), size, U(pool), of(stream));
    *pointer = (void *)(uintptr_t)answer;
    return end(code);
}

API(FreeAsync)(void *pointer, N(Stream_t) stream) { return end(ASK(FreeAsync, NULL, (uint64_t)here(), U(pointer), of(stream))); }

/* Places of the machine: 1 is the device of that number, 2 the host, 3 a node of the host. */
static uint32_t prefetch(const void *address, size_t count, uint64_t kind, int id, N(Stream_t) stream) {
    if (kind == N(MemLocationTypeDevice) && !is_there(id)) return 101;
    return ASK(PrefetchAsync, NULL, (uint64_t)here(), U(address), count, kind, (uint64_t)id, of(stream));
}

static uint32_t advise(const void *address, size_t count, advice_t advice, uint64_t kind, int id) {
    if (kind == N(MemLocationTypeDevice) && !is_there(id)) return 101;
    return ASK(Advise, NULL, (uint64_t)here(), U(address), count, (uint64_t)advice, kind, (uint64_t)id);
}

#if defined CUDART && MAJOR >= 13
#define WITH_LOCATION(name) name
#else
#define WITH_LOCATION(name) name##_v2
API(MemPrefetchAsync)(const void *address, size_t count, int device, N(Stream_t) stream) {
    uint64_t kind = device == N(CpuDeviceId) ? N(MemLocationTypeHost) : N(MemLocationTypeDevice);
    return end(prefetch(address, count, kind, device, stream));
}
API(MemAdvise)(const void *address, size_t count, advice_t advice, int device) {
    uint64_t kind = device == N(CpuDeviceId) ? N(MemLocationTypeHost) : N(MemLocationTypeDevice);
    return end(advise(address, count, advice, kind, device));
}
#endif
#if defined CUDART || (defined HIP && MAJOR >= 7)
/* The library knows the call, and the driver behind it does not. */
static int is_too_new(void) {
#if defined CUDART
    return driver_version() < 12020;
#else
    return 0;
#endif
}
OUT N(Error_t) N(WITH_LOCATION(MemPrefetchAsync))(const void *address, size_t count, location_t to, unsigned int flags, N(Stream_t) stream) {
    if (flags != 0) return end(1);
    if (is_too_new()) return end(36);
    return end(prefetch(address, count, to.type, to.id, stream));
}
OUT N(Error_t) N(WITH_LOCATION(MemAdvise))(const void *address, size_t count, advice_t advice, location_t location) {
    if (is_too_new()) return end(36);
    return end(advise(address, count, advice, location.type, location.id));
}
#endif
#if (defined CUDART && MAJOR >= 13) || (defined HIP && MAJOR >= 7)
API(MemGetDefaultMemPool)(N(MemPool_t) *pool, location_t *location, allocation_t type) {
    uint64_t answer = 0;
    if (type != N(MemAllocationTypeManaged) || location->type != N(MemLocationTypeDevice)) return end(1);
    uint32_t code = ASK(PoolDefault, &answer, (uint64_t)location->id, 1);
    *pool = (N(MemPool_t))(uintptr_t)answer;
    return end(code);
}
#endif

static uint32_t name_of(char *name, int length, int device) {
    static const char text[] = "Stand-in";
    if (!is_there(device)) return 101;
    if (length < (int)sizeof text) return 1;
    memcpy(name, text, sizeof text);
    return 0;
}

/* Virtual memory, and what else cudart leaves to the driver behind it: there the functions are not exported, and set no last error. */
#if defined CUDART
#define DRIVER(stem) static CUresult cu##stem
#define done(code) ((CUresult)(code))
typedef CUmemAllocationProp allocation_properties_t;
typedef CUmemAllocationGranularity_flags granularity_t;
typedef CUmemAccessDesc access_t;
typedef CUmemGenericAllocationHandle memory_t;
typedef CUdeviceptr address_t;
typedef CUdeviceptr range_t;
#define A(address) ((uint64_t)(address))
#else
#define DRIVER(stem) API(stem)
#define done(code) end(code)
typedef N(MemAllocationProp) allocation_properties_t;
typedef N(MemAllocationGranularity_flags) granularity_t;
typedef N(MemAccessDesc) access_t;
typedef N(MemGenericAllocationHandle_t) memory_t;
typedef void *address_t;
typedef N(Deviceptr_t) range_t;
#define A(address) U(address)
#endif

static uint32_t is_of_device(const allocation_properties_t *properties) {
    if (properties->type != N(MemAllocationTypePinned) || properties->location.type != N(MemLocationTypeDevice)) return 1;
    if (properties->win32HandleMetaData || properties->allocFlags.compressionType || properties->allocFlags.usage) return 1;
    if (!is_there(properties->location.id)) return 101;
    /* For network cards where the device makes such pages; what is not CUDA's says nothing of them. */
    int rdma = 0;
#if defined CUDART
    uint32_t code = attribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, properties->location.id);
    if (code) return code;
#endif
    return properties->allocFlags.gpuDirectRDMACapable == (unsigned char)rdma ? 0 : 1;
}

static uint64_t types_of(const allocation_properties_t *properties) {
#if defined HIP || defined MACA
    return properties->requestedHandleType;
#else
    return properties->requestedHandleTypes;
#endif
}

DRIVER(MemGetAllocationGranularity)(size_t *bytes, const allocation_properties_t *properties, granularity_t option) {
    uint64_t answer = 0;
    uint32_t code = is_of_device(properties);
#if defined CUDART
    if (code == 0 && option != CU_MEM_ALLOC_GRANULARITY_MINIMUM) code = 1;
#else
    /* What is recommended is a multiple of the least. */
    if (code == 0 && option != N(MemAllocationGranularityRecommended)) return *bytes = 4096, done(0);
#endif
    if (code == 0) code = ASK(VirtualGranularity, &answer, (uint64_t)properties->location.id);
    *bytes = answer;
    return done(code);
}

DRIVER(MemAddressReserve)(address_t *address, size_t size, size_t align, address_t wanted, unsigned long long flags) {
    uint64_t answer = 0;
    if (wanted || flags) return done(1);
    uint32_t code = ASK(VirtualReserve, &answer, (uint64_t)here(), size, align);
    *address = (address_t)answer;
    return done(code);
}

DRIVER(MemAddressFree)(address_t address, size_t size) { return done(ASK(VirtualFree, NULL, (uint64_t)here(), A(address), size)); }

DRIVER(MemCreate)(memory_t *memory, size_t size, const allocation_properties_t *properties, unsigned long long flags) {
    uint64_t answer = 0;
    uint32_t code = flags ? 1 : is_of_device(properties);
    if (code == 0) code = ASK(MemoryCreate, &answer, (uint64_t)properties->location.id, size, types_of(properties));
    *memory = (memory_t)answer;
    return done(code);
}

DRIVER(MemRelease)(memory_t memory) { return done(ASK(MemoryRelease, NULL, (uint64_t)here(), A(memory))); }

DRIVER(MemExportToShareableHandle)(void *handle, memory_t memory, handle_type_t type, unsigned long long flags) {
    uint64_t answers[8] = {0};
    if (flags) return done(1);
    uint32_t code = ASK(MemoryExport, answers, (uint64_t)here(), A(memory), (uint64_t)type);
    if (code == 0 && type == N(MemHandleTypePosixFileDescriptor)) *(int *)handle = (int)*answers;
    if (code == 0 && type == N(MemHandleTypeFabric)) memcpy(handle, answers, sizeof answers);
    return done(code);
}

#if defined CUDART
/* A descriptor of a dma-buf, of which there is one type, and no flag. */
DRIVER(MemGetHandleForAddressRange)(void *handle, address_t address, size_t size, unsigned int type, unsigned long long flags) {
    uint64_t answer = 0;
    if (type != 1 || flags) return done(1);
    uint32_t code = ASK(DmaBuf, &answer, (uint64_t)here(), A(address), size);
    if (code == 0) *(int *)handle = (int)answer;
    return done(code);
}
#endif

DRIVER(MemMap)(address_t address, size_t size, size_t offset, memory_t memory, unsigned long long flags) {
    if (offset || flags) return done(1);
    return done(ASK(MemoryMap, NULL, (uint64_t)here(), A(address), size, A(memory)));
}

DRIVER(MemUnmap)(address_t address, size_t size) { return done(ASK(MemoryUnmap, NULL, (uint64_t)here(), A(address), size)); }

DRIVER(MemSetAccess)(address_t address, size_t size, const access_t *access, size_t count) {
    if (count != 1) return done(1);
    if (access->location.type == N(MemLocationTypeDevice) && !is_there(access->location.id)) return done(101);
    return done(ASK(MemorySetAccess, NULL, (uint64_t)here(), A(address), size, (uint64_t)access->location.type,
                    (uint64_t)access->location.id, (uint64_t)access->flags));
}

DRIVER(MemGetAddressRange)(range_t *start, size_t *size, range_t address) {
    uint64_t answers[2] = {0, 0};
    uint32_t code = ASK(AddressRange, answers, A(address));
    *start = (range_t)answers[0], *size = answers[1];
    return done(code);
}

#if defined CUDART
/* Of what the driver does not know, each value is 0, and that is no error. */
static CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr address) {
    uint64_t answers[5] = {0};
    if (current() == 0) return 201;
    uint32_t code = ASK(PointerAttributes, answers, A(address));
    if (code != 0) return (CUresult)code;
    int is_device = answers[0] == 1, is_managed = answers[0] == 2, is_plain = answers[2] != 0;
    for (unsigned int at = 0; at < count; at++) {
        switch (attributes[at]) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            if (answers[0]) *(CUmemorytype *)data[at] = answers[0] == 3 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
            break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(_Bool *)data[at] = is_managed; break;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *(_Bool *)data[at] = is_device && is_plain; break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)data[at] = answers[3]; break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data[at] = answers[4]; break;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: *(void **)data[at] = (void *)(uintptr_t)(is_managed && !is_plain ? 0xB001 : 0); break;
        default: return 1;
        }
    }
    return 0;
}
#endif

DRIVER(MemsetD16Async)(range_t to, unsigned short value, size_t count, N(Stream_t) stream) {
    return done(ASK(FillAsync, NULL, (uint64_t)here(), A(to), 2, value, count, of(stream)));
}

#if defined CUDART
static CUresult cuMemsetD32Async(range_t to, unsigned int value, size_t count, CUstream stream) {
#else
API(MemsetD32Async)(range_t to, int value, size_t count, N(Stream_t) stream) {
#endif
    return done(ASK(FillAsync, NULL, (uint64_t)here(), A(to), 4, (uint32_t)value, count, of(stream)));
}

#include "lent.c"

DRIVER(DeviceGetName)(char *name, int length, int device) { return done(name_of(name, length, device)); }

#if defined CUDART
/* A stream of somebody's own context, and one of a green context. */
#define STRANGER 0xF5
#define GREEN 0x6E

static int active[64];

static CUresult cuDeviceGet(CUdevice *device, int ordinal) { return *device = ordinal, is_there(ordinal) ? 0 : 101; }
static CUresult cuDeviceGetAttribute(int *value, unsigned int number, CUdevice device) {
    if (!is_there(device)) return 101;
    switch (number) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED: return attribute(value, (int)number, device);
    }
    int known = attribute_in_cuda((int)number);
    return known < 0 ? 1 : attribute(value, known, device);
}
static CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    active[device] = 1;
    return *context = (CUcontext)(uintptr_t)(PRIMARY + device), 0;
}
static CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *is_active) {
    return *flags = 0, *is_active = active[device], 0;
}
static CUresult cuCtxGetCurrent(CUcontext *context) { return *context = (CUcontext)current(), 0; }
static CUresult cuCtxPushCurrent(CUcontext context) { return stand_in_push((uintptr_t)context), 0; }
static CUresult cuCtxPopCurrent(CUcontext *context) {
    if (depth == 0) return 201;
    return *context = (CUcontext)contexts[--depth], 0;
}
static CUresult cuCtxGetDevice(CUdevice *device) {
    if (current() == 0) return 201;
    return *device = device_of(current()), 0;
}
/* The old form names a context of its own for a stream of a green context; the new one says what is behind it. */
static CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    uint64_t answer = 0;
    if (U(stream) == STRANGER) return *context = (CUcontext)0xF0, 0;
    if (U(stream) == GREEN) return *context = (CUcontext)0x6E0, 0;
    uint32_t code = ASK(StreamContext, &answer, U(stream));
    return *context = (CUcontext)(uintptr_t)(PRIMARY + answer), (CUresult)code;
}
static CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green) {
    *green = NULL;
    if (U(stream) == GREEN) return *green = (CUgreenCtx)0x6E0, *context = (CUcontext)PRIMARY, 0;
    return cuStreamGetCtx(stream, context);
}

#define STRING_(text) #text
#define STRING(text) STRING_(text)
#define FUNCTION(name) {STRING(name), (void *)name, 12000}
static const struct {
    const char *name;
    void *function;
    unsigned int since;
} of_driver[] = {
    {"cuStreamGetCtx", (void *)cuStreamGetCtx_v2, 12050},
    FUNCTION(cuStreamGetCtx), FUNCTION(cuDeviceGet), FUNCTION(cuDeviceGetName), FUNCTION(cuDeviceGetAttribute),
    FUNCTION(cuDevicePrimaryCtxRetain), FUNCTION(cuDevicePrimaryCtxGetState), FUNCTION(cuCtxGetCurrent), FUNCTION(cuCtxPushCurrent),
    FUNCTION(cuCtxPopCurrent), FUNCTION(cuCtxGetDevice), FUNCTION(cuMemGetAddressRange), FUNCTION(cuPointerGetAttributes),
    FUNCTION(cuMemsetD16Async), FUNCTION(cuMemsetD32Async), FUNCTION(cuMemGetAllocationGranularity), FUNCTION(cuMemAddressReserve), FUNCTION(cuMemAddressFree),
    FUNCTION(cuMemCreate), FUNCTION(cuMemRelease), FUNCTION(cuMemExportToShareableHandle), FUNCTION(cuMemMap), FUNCTION(cuMemUnmap),
    FUNCTION(cuMemGetHandleForAddressRange), FUNCTION(cuMemSetAccess), FUNCTION(cuMemImportFromShareableHandle), FUNCTION(cuMemGetAllocationPropertiesFromHandle),
    FUNCTION(cuDeviceGetUuid)
};

static uint32_t entry_point(const char *symbol, void **function, unsigned int version, unsigned long long flags,
                            enum cudaDriverEntryPointQueryResult *status) {
    /* The functions in which null is the legacy stream; and no version that the driver has not heard of. */
    if (flags != 1 || version > (unsigned int)driver_version()) return 1;
    *status = cudaDriverEntryPointSymbolNotFound;
    for (size_t i = 0; i < sizeof of_driver / sizeof *of_driver; i++)
        if (strcmp(of_driver[i].name, symbol) == 0 && of_driver[i].since <= version)
            return *function = of_driver[i].function, *status = cudaDriverEntryPointSuccess, 0;
    return 0;
}

#if defined LACKS_DRIVER
/* Until CUDA 12.4. */
API(GetDriverEntryPoint)(const char *symbol, void **function, unsigned long long flags, enum cudaDriverEntryPointQueryResult *status) {
    return end(entry_point(symbol, function, (unsigned int)driver_version(), flags, status));
}
#else
API(GetDriverEntryPointByVersion)(const char *symbol, void **function, unsigned int version, unsigned long long flags,
                                  enum cudaDriverEntryPointQueryResult *status) {
    return end(entry_point(symbol, function, version, flags, status));
}
#endif
#else
API(StreamGetDevice)(N(Stream_t) stream, N(Device_t) *device) {
    uint64_t answer = 0;
    uint32_t code = ASK(StreamContext, &answer, U(stream));
    *device = (int)answer;
    return end(code);
}
#endif
#endif
