#ifndef ALLUVION_RAW_H
#define ALLUVION_RAW_H

/* Written by `UPDATE_HEADER=1 cargo test -p alluvion-capi --test header`: change the Rust code instead. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Before a function whose answer is not to be forgotten. A program may define it as nothing. */
#ifndef ALV_MUST_USE
#if defined(__cplusplus) && __cplusplus >= 201703L
#define ALV_MUST_USE [[nodiscard]]
#elif defined(__GNUC__)
#define ALV_MUST_USE __attribute__((warn_unused_result))
#else
#define ALV_MUST_USE
#endif
#endif

// The request alone is more than can ever be had.
#define ALV_CAUSE_TOO_LARGE 1

// The request, on top of what is live, is more than the limit.
#define ALV_CAUSE_LIMIT 2

// There are enough free bytes, but not in one piece.
#define ALV_CAUSE_FRAGMENTATION 3

// There are enough free bytes, but some are behind work that could not be waited for.
#define ALV_CAUSE_PENDING 4

// The upstream has no more, and the memory that it gave is live here.
#define ALV_CAUSE_FULL 5

// The upstream has no more, and others have more of it.
#define ALV_CAUSE_OTHERS 6

// The layer that refused is frozen: it takes no more memory.
#define ALV_CAUSE_FROZEN 7

// In `flags`: importers may write. Who writes when, the processes agree on themselves.
#define ALV_SHARE_WRITABLE 1

// A message has at most so many bytes.
#define ALV_MESSAGE_BYTES 512

// In `flags`: importers may write.
#define ALV_MESSAGE_WRITABLE 1

// In `flags`: a descriptor has to be sent beside the message, over a Unix socket.
#define ALV_MESSAGE_NEEDS_DESCRIPTOR 2

// In `flags`: the memory is opened to be written. An error for what is shared to be read.
#define ALV_OPEN_WRITABLE 1

// In `flags`: memory of another device may be opened, which the stream's device reaches over the bus.
#define ALV_OPEN_PEER 2

// Blocks begin at any address, where no more than 256 is asked for: what gets them, through layers that hand blocks on as they are,
// relies on no alignment. A suballocator over such a source refuses memory that is not aligned to 256.
#define ALV_SOURCE_AT_ANY_ADDRESS 1

// The stream waits for the legacy default stream of its device, and that one for it, as a stream of `cudaStreamCreate` does.
#define ALV_STREAM_WAITS_FOR_LEGACY 1

// Before 1.0 another minor version may be another interface.
#define ALV_VERSION_MAJOR 0

// Grows when functions are added.
#define ALV_VERSION_MINOR 1

// Grows when functions are mended.
#define ALV_VERSION_PATCH 0

// Bytes before the block were written.
#define ALV_VIOLATION_BEFORE 1

// Bytes behind the block were written.
#define ALV_VIOLATION_BEHIND 2

// Bytes of the block were written after it was freed.
#define ALV_VIOLATION_AFTER_FREE 3

// It was freed and is no block that is out. The free was not done.
#define ALV_VIOLATION_NOT_LIVE 4

// It was freed with another size or alignment. The free was done, with the right one.
#define ALV_VIOLATION_WRONG_LAYOUT 5

// What a handle of CUDA points to.
typedef struct CUstream_st CUstream_st;

// Memory of a stack that belongs to a captured graph.
typedef struct alv_graph_memory alv_graph_memory;

// Memory of another process, open in this one.
typedef struct alv_imported alv_imported;

// A resource with the sizes of its blocks: for frees that name none.
typedef struct alv_ledger alv_ledger;

// A machine: that of CUDA or of another driver, or a simulated one.
typedef struct alv_machine alv_machine;

// Bytes of a limit that are set aside.
typedef struct alv_reservation alv_reservation;

// A resource: memory of one device, with the layers over it.
typedef struct alv_resource alv_resource;

// A file that blocks are read from.
typedef struct alv_saved alv_saved;

// A file that blocks are written to.
typedef struct alv_saver alv_saver;

// A block that other processes can open.
typedef struct alv_shared alv_shared;

// What one call has put to sleep.
typedef struct alv_sleeper alv_sleeper;

// A stream that the library knows: a call with it needs no look-up, and a call that brings its bare handle while this is held
// needs no driver call.
typedef struct alv_stream alv_stream;

// What a call answers: `ALV_OK`, or the kind of error. Numbers are never used again.
typedef int32_t alv_status;

// A bare stream of CUDA: a `CUstream` or a `cudaStream_t`.
typedef struct CUstream_st *alv_cuda_stream;

// The event that the live bytes under a limit exceed its soft limit.
typedef struct alv_crossing {
    // `sizeof(alv_crossing)` of the library: a program that is older knows fewer fields.
    size_t struct_size;
    // The live bytes then, with the request that crossed the soft limit.
    size_t used_bytes;
    // The soft limit.
    size_t soft_bytes;
    // The limit.
    size_t limit_bytes;
    // The name of the limit: valid during the call.
    const char *name;
} alv_crossing;

// A figure now, at most, and all together. It has these fields for good, because it lies within other structs.
typedef struct alv_count {
    // Now.
    int64_t value;
    // The most that it was.
    int64_t peak;
    // All that was ever added.
    int64_t total;
} alv_count;

// What a layer `stats` has counted.
typedef struct alv_counts {
    // `sizeof(alv_counts)`.
    size_t struct_size;
    // The bytes that are out.
    struct alv_count bytes;
    // The blocks that are out.
    struct alv_count allocations;
    // The requests that failed.
    uint64_t failures;
} alv_counts;

// The figures of a suballocator.
typedef struct alv_pool_status {
    // `sizeof(alv_pool_status)`.
    size_t struct_size;
    // In blocks that are out: the lengths of the blocks, which may be more than the requests.
    size_t live_bytes;
    // How many blocks are out.
    size_t live_blocks;
    // Free, in the shared core.
    size_t free_bytes;
    // Free, in the caches of streams and of synchronous calls.
    size_t cached_bytes;
    // Of the free and cached bytes, those of streams whose last free is not known to be completed.
    size_t pending_bytes;
    // Of the live bytes, those that belong to memory of graphs.
    size_t graph_bytes;
    // In blocks that sleep.
    size_t asleep_bytes;
    // Taken from the upstream and not returned.
    size_t reserved_bytes;
    // The most that was ever reserved.
    size_t peak_reserved_bytes;
    // The largest free piece in the core, of any owner.
    size_t largest_free_bytes;
    // The host memory for the bookkeeping.
    size_t metadata_bytes;
    // Allocations served by a cache.
    uint64_t hits;
    // Allocations served by the core.
    uint64_t misses;
    // Of the misses, those served with a block that another stream had freed.
    uint64_t steals;
    // Pages that are mapped, over an upstream with pages.
    size_t pages;
    // Pages that were unmapped where they were free, to be mapped where memory was needed.
    uint64_t moves;
    // The bytes of these pages.
    uint64_t moved_bytes;
    // Waits of a stream for another, on the device, to reuse its memory.
    uint64_t waits;
    // Events recorded for such waits.
    uint64_t events_recorded;
    // Allocations and frees that reached the upstream.
    uint64_t upstream_calls;
} alv_pool_status;

// A function that takes a long text in pieces. It answers 0, or another number to stop. It must not throw.
typedef int (*alv_write)(void *user, const char *bytes, size_t n);

// A block that is out.
typedef struct alv_block {
    // `sizeof(alv_block)` of the library: a program that is older knows fewer fields.
    size_t struct_size;
    // Where it is.
    void *address;
    // The bytes that were asked for.
    size_t bytes;
    // The alignment that was asked for.
    size_t align;
    // The thread that asked, by the library's own number.
    size_t thread;
    // When, in seconds since the layer was made.
    double at_seconds;
    // The tag, with semicolons between the scopes: valid during the call.
    const char *tag;
    // The line of the program that asked, if call stacks are recorded, else empty: valid during the call.
    const char *call_site;
} alv_block;

// What is known of the calling thread's last failed call.
typedef struct alv_error_info {
    // `sizeof(alv_error_info)`.
    size_t struct_size;
    // Its status; `ALV_OK` if no call has failed.
    alv_status status;
    // The code of the CUDA driver; 0 if the driver was not the cause.
    int32_t cuda_code;
    // The bytes that were asked for; 0 if that is not what failed.
    size_t requested_bytes;
    // The limit that was met; `SIZE_MAX` without one.
    size_t limit;
    // The line of a file, from 1; 0 without one.
    size_t line;
    // The column of a recipe or a line, from 1; 0 without one.
    size_t column;
    // The name of the driver's function that failed, such as `cuMemAlloc`; empty without one.
    char call[48];
    // What a function of the program's answered, if that led to the failure; `ALV_OK` without one.
    alv_status foreign_status;
    // Zero.
    uint32_t reserved;
} alv_error_info;

// What a resource said when it ran out of memory. What is not known is `SIZE_MAX`.
typedef struct alv_oom_report {
    // `sizeof(alv_oom_report)`.
    size_t struct_size;
    // The bytes that were asked for.
    size_t requested_bytes;
    // The alignment that was asked for.
    size_t align;
    // The number of the device; -1 if it is not known.
    int32_t device;
    // Why: one of the constants `ALV_CAUSE_`.
    int32_t cause;
    // The number of attempts for this request, from 1: more than one if a handler freed memory and it was not enough.
    uint32_t attempt;
    // Zero.
    uint32_t reserved;
    // The bytes of live blocks.
    size_t live_bytes;
    // Free, and usable by the stream that asked.
    size_t free_bytes;
    // Free, but still behind work that is not known to be over.
    size_t pending_bytes;
    // Taken from the upstream and not given back.
    size_t reserved_bytes;
    // The largest block that the stream that asked could get.
    size_t largest_bytes;
    // The limit.
    size_t maximum_bytes;
    // The free memory of the upstream.
    size_t upstream_free_bytes;
    // The total memory of the upstream.
    size_t upstream_total_bytes;
    // The layer or the source that refused, such as `Pool`.
    char refused_by[32];
    // The name of the limit that refused; empty without one.
    char name[64];
} alv_oom_report;

// What a simulated machine is like. Each of its devices answers as an H200 does, but for its memory.
typedef struct alv_sim_options {
    // `sizeof(alv_sim_options)`.
    size_t struct_size;
    // How many devices it has; 0 means 1.
    uint32_t devices;
    // The version of CUDA that it speaks, such as 13000; 0 means the newest.
    uint32_t cuda_version;
    // The memory of each device, in bytes; 0 means 256 MiB.
    size_t memory_bytes;
    // What the order in which simulated work runs is drawn from.
    uint64_t seed;
    // Not 0 for a machine that does not look into pools, so that their calls cost what they cost beside a GPU. Wrong frees there, and
    // accesses to what is free there, are not noticed then.
    uint32_t leaves_pools_alone;
    // Zero.
    uint32_t reserved;
} alv_sim_options;

// A handler of device memory, in the shape that `custatevecDeviceMemHandler_t`, `cutensornetDeviceMemHandler_t` and
// `cudssDeviceMemHandler_t` have: copy it into one of them, or point to it by a cast.
typedef struct alv_device_mem_handler {
    // What the functions are called with: an `alv_resource`, or null.
    void *ctx;
    // `alluvion_handler_alloc`.
    int (*device_alloc)(void *ctx, void **block, size_t size, alv_cuda_stream stream);
    // `alluvion_handler_free`.
    int (*device_free)(void *ctx, void *block, size_t size, alv_cuda_stream stream);
    // The name of the handler, ended by 0.
    char name[64];
} alv_device_mem_handler;

// A segment: memory that a suballocator has of its upstream in one piece.
typedef struct alv_segment {
    // `sizeof(alv_segment)` of the library: a program that is older knows fewer fields.
    size_t struct_size;
    // Where it begins.
    void *address;
    // Its bytes.
    size_t bytes;
    // The device that it is memory of.
    int32_t device;
    // 0.
    uint32_t reserved;
} alv_segment;

// How a block is shared. What is 0 or null has the value that the text names.
typedef struct alv_share_options {
    // `sizeof(alv_share_options)`.
    size_t struct_size;
    // 0 to be read, or `ALV_SHARE_WRITABLE`.
    uint32_t flags;
    // Zero.
    uint32_t reserved;
    // The directory of the file by which the processes know of each other, which both sides name; null means `/dev/shm`.
    const char *directory;
} alv_share_options;

// What a device has open of other processes, and what of its own was parked and waits for others.
typedef struct alv_sharing {
    // `sizeof(alv_sharing)`.
    size_t struct_size;
    // What is imported.
    size_t imports;
    // Its bytes.
    size_t imported_bytes;
    // The blocks that were parked while other processes had them.
    size_t parked;
    // Their bytes.
    size_t parked_bytes;
} alv_sharing;

// What a message says.
typedef struct alv_message {
    // `sizeof(alv_message)`.
    size_t struct_size;
    // The bytes that are shared.
    size_t bytes;
    // The bytes that become visible to an importer, at least: all of the allocation, or of the pages, that it lies in.
    size_t visible_bytes;
    // The constants `ALV_MESSAGE_` that hold.
    uint32_t flags;
    // Zero.
    uint32_t reserved;
    // The number by which every process knows the device.
    uint8_t device_uuid[16];
} alv_message;

// How memory of another process is opened. What is 0 or null has the value that the text names.
typedef struct alv_open_options {
    // `sizeof(alv_open_options)`.
    size_t struct_size;
    // 0 to be read on its own device, or constants `ALV_OPEN_`.
    uint32_t flags;
    // Zero.
    uint32_t reserved;
    // The directory that the exporter named; null means `/dev/shm`.
    const char *directory;
} alv_open_options;

// Where memory is that is open, and what may be done with it.
typedef struct alv_range {
    // `sizeof(alv_range)`.
    size_t struct_size;
    // The first byte, for work of the device; null for no bytes.
    void *data;
    // The bytes that are shared.
    size_t bytes;
    // The bytes of the allocation or the pages that they lie in: what lies beside them is the exporter's.
    size_t visible_bytes;
    // The number of the device that opened it.
    int32_t device;
    // `ALV_OPEN_WRITABLE` if it was opened to be written, else 0.
    uint32_t flags;
} alv_range;

// The figures of the blocks that sleep together.
typedef struct alv_sleep_figures {
    // `sizeof(alv_sleep_figures)`.
    size_t struct_size;
    // How many blocks were put to sleep.
    size_t blocks;
    // Their bytes, each rounded up to 256.
    size_t bytes;
    // The bytes of the host, or of the file, that their contents went to: 0 if nothing was kept.
    size_t kept_bytes;
    // 1 until they are awake.
    uint32_t asleep;
    // 0.
    uint32_t reserved;
} alv_sleep_figures;

// Memory from functions of the caller's.
//
// They are called from any thread, several at once, on any stream, with no lock held, and never for zero bytes. They must not
// throw.
typedef struct alv_source {
    // `sizeof(alv_source)`.
    size_t struct_size;
    // The largest alignment that `allocate` honours; 0 means 256.
    size_t max_align;
    // Writes the address of as many bytes as asked for, which work on the stream may use from there on; overlapping no other
    // block that is out, aligned to `align`, and valid until the work on the stream of `deallocate` is done. `ALV_OK` with null
    // is out of memory; another status is the error of the request, which `alv_last_error` gives back as `foreign_status`: also a
    // number of the program's own, from `ALV_OF_PROGRAM` on.
    alv_status (*allocate)(void *user, size_t bytes, size_t align, alv_cuda_stream stream, void **out);
    // Takes a block back, with the bytes and the alignment of its request. Called once a block.
    void (*deallocate)(void *user, void *block, size_t bytes, size_t align, alv_cuda_stream stream);
    // Called once when the source is not needed any more, on any thread. May be null.
    void (*drop)(void *user);
    // What the functions are called with.
    void *user;
    // 0, or `ALV_SOURCE_AT_ANY_ADDRESS`.
    uint32_t flags;
    // Zero.
    uint32_t reserved;
} alv_source;

// What a layer `guard` has found.
typedef struct alv_violation {
    // `sizeof(alv_violation)` of the library: a program that is older knows fewer fields.
    size_t struct_size;
    // The block that it happened to.
    void *address;
    // Its bytes; for one that is not out, the bytes of the free.
    size_t bytes;
    // One of `ALV_VIOLATION_BEFORE` and those after it; a later library may have others.
    uint32_t kind;
    // For the first three kinds, the value that the first wrong byte has, and the one that it should have.
    uint8_t found;
    // See `found`.
    uint8_t expected;
    // 0.
    uint16_t reserved;
    // Where the first wrong byte is, from the beginning of the block: −1 is the byte before it.
    ptrdiff_t offset;
    // How many bytes are wrong, as far as the guard has looked.
    size_t wrong_bytes;
    // The tag of the block, with semicolons between the scopes: valid during the call.
    const char *tag;
    // All of it on a line, for people: valid during the call.
    const char *text;
} alv_violation;

// Success.
#define ALV_OK 0

// There is not enough memory; freeing some and asking again may succeed.
#define ALV_OUT_OF_MEMORY 1

// A size does not fit: more than `PTRDIFF_MAX` bytes, rounded up.
#define ALV_SIZE_OVERFLOW 2

// An alignment is not a power of two.
#define ALV_INVALID_ALIGNMENT 3

// An alignment is larger than the resource can honour.
#define ALV_UNSUPPORTED_ALIGNMENT 4

// A stream or a resource of one device was given to another.
#define ALV_DEVICE_MISMATCH 5

// An index or a range is outside.
#define ALV_OUT_OF_RANGE 6

// Two lengths that must be equal are not.
#define ALV_LENGTH_MISMATCH 7

// An argument breaks a documented rule.
#define ALV_INVALID_ARGUMENT 8

// The device, the driver or the stack cannot do it; the message says what would.
#define ALV_UNSUPPORTED 9

// No device with that number.
#define ALV_NO_DEVICE 10

// No driver: libcuda is missing, a stub, or too old.
#define ALV_NO_DRIVER 11

// The call is illegal while the stream captures. The capture goes on.
#define ALV_CAPTURE 12

// The context was lost by an earlier error; every call in it fails.
#define ALV_CONTEXT_LOST 13

// The driver shut down, or this process is a fork of the one that started it.
#define ALV_SHUT_DOWN 14

// The resource still has live blocks.
#define ALV_IN_USE 15

// A block was given back wrongly, and was not freed.
#define ALV_MISUSE 16

// A recipe or a file is malformed; `alv_last_error` says where.
#define ALV_MALFORMED 17

// A file cannot be read.
#define ALV_UNREADABLE 18

// A file cannot be written, or a function that writes has stopped.
#define ALV_UNWRITABLE 19

// Any other code of the driver: `alv_last_error` has it.
#define ALV_DRIVER 20

// A panic within the library, or in code that it called. Nothing is lost but what the call was about.
#define ALV_PANIC 21

// The memory sleeps: wake it, and ask again.
#define ALV_ASLEEP 22

// A function of the caller's has failed.
#define ALV_FOREIGN 23

// What another process shared is gone: it has ended, or has taken it back.
#define ALV_STALE 24

// What this process shares was to be opened in it: use the buffer itself.
#define ALV_OWN_PROCESS 25

// From here on numbers are the program's: a function of its own answers them, and `alv_last_error` gives them back.
#define ALV_OF_PROGRAM (1 << 16)

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Allocates `bytes` bytes for work on `stream`: a stream of the resource's device, or 0 for its legacy default stream. `align`
// is 0, which means 256, or a power of two; up to 256 all are one. `*out` is null for no bytes, and if the call fails. While the
// stream captures, blocks that are cached are served; a request that needs a driver call which the capture forbids is
// `ALV_CAPTURE`, and the capture goes on.
ALV_MUST_USE
alv_status alv_allocate_raw(const struct alv_resource *resource,
                            size_t bytes,
                            size_t align,
                            alv_cuda_stream stream,
                            void **out);

// Gives a block back, behind the work that is on `stream`, which may be another than it was allocated on: then the caller has
// ordered the uses before. The allocation is one, also of a block that nothing has touched: its memory may have come behind work that
// is still on the stream that it was allocated on, so that the other stream has to wait for that. `bytes` and `align` are those of the request; up to 256 alignments are one. Null is nothing to free,
// whatever size it has. Never fails: a block whose stream cannot be had, as in a process that is ending or a child of a fork,
// leaks. So does one whose arguments are none, such as a null resource or an alignment of 3; and what a layer refuses is left alone:
// `alv_last_error_message` says so, and `alv_refused_frees` counts.
void alv_deallocate_raw(const struct alv_resource *resource,
                        void *block,
                        size_t bytes,
                        size_t align,
                        alv_cuda_stream stream);

// As `alv_allocate`, for a block that every stream, and the host if it has access, may use as soon as the call returns.
ALV_MUST_USE alv_status alv_allocate_sync(const struct alv_resource *resource, size_t bytes, size_t align, void **out);

// Gives a block back that no work uses any more, whichever call it came from. What was on the stream that it was allocated on, before
// that, is over too.
void alv_deallocate_sync(const struct alv_resource *resource,
                         void *block,
                         size_t bytes,
                         size_t align);

// As `alv_allocate`, on a stream that the library knows: without a look-up.
ALV_MUST_USE
alv_status alv_allocate_on(const struct alv_resource *resource,
                           size_t bytes,
                           size_t align,
                           const struct alv_stream *stream,
                           void **out);

// As `alv_deallocate`, on a stream that the library knows.
void alv_deallocate_on(const struct alv_resource *resource,
                       void *block,
                       size_t bytes,
                       size_t align,
                       const struct alv_stream *stream);

// Sets `bytes` bytes of the outermost layer `limiting` or `budget` aside, until the last release: for memory that somebody else takes, such
// as a workspace of a library, so that the limit counts it. It is no memory. `ALV_OUT_OF_MEMORY` if the limit has not as much left, and
// `ALV_UNSUPPORTED` without such a layer.
ALV_MUST_USE
alv_status alv_reserve(const struct alv_resource *resource,
                       size_t bytes,
                       struct alv_reservation **out);

// The bytes that a reservation holds, in whole units of 256; 0 for null.
size_t alv_reservation_bytes(const struct alv_reservation *reservation);

// One more count of a reservation, which it returns; null for null. From any thread.
struct alv_reservation *alv_reservation_retain(struct alv_reservation *reservation);

// Takes a count of a reservation, whose bytes go back with the last; null is allowed. From any thread.
void alv_reservation_release(struct alv_reservation *reservation);

// Has `observer` called each time that the live bytes exceed the soft limit of the outermost layer `limiting` or `budget`: once, on the
// thread of the request, before the bytes are used, with no lock held. It may call the library, where its own requests call no observer, and
// must not throw; its answer is not looked at. `soft` is the soft limit from now on, which refuses no request; with `SIZE_MAX` it stays what
// it is. `drop`, which may be null, is called once when the limit goes, on any thread; not if the call fails. `ALV_UNSUPPORTED` without such
// a layer.
ALV_MUST_USE
alv_status alv_on_soft_limit(const struct alv_resource *resource,
                             size_t soft,
                             int (*observer)(void *user, const struct alv_crossing *crossing),
                             void (*drop)(void *user),
                             void *user);

// Chooses the machine that bare numbers of devices mean from now on, in every thread. Null means that of CUDA, as in the
// beginning.
//
// A process calls this before it uses anything else, or between tests: a pointer to a block says nothing of its machine.
alv_status alv_set_machine(const struct alv_machine *machine);

// The resource that a device allocates from by default. The caller releases it. `ALLUVION_RESOURCE` in the environment names the
// first one by a recipe. A negative number means the current device.
ALV_MUST_USE
alv_status alv_current_resource(int32_t device,
                                struct alv_resource **out);

// Makes a device allocate from another resource, of which it keeps a count of its own. `previous`, which may be null, gets the
// one before: the caller releases it.
alv_status alv_set_current_resource(int32_t device,
                                    const struct alv_resource *resource,
                                    struct alv_resource **previous);

// Puts the first resource of a device back. `previous` as in `alv_set_current_resource`.
alv_status alv_reset_current_resource(int32_t device, struct alv_resource **previous);

// Gives memory that nobody uses back to the driver until at most `keep` bytes are kept; `given_back`, which may be null, gets
// how much went.
alv_status alv_trim(const struct alv_resource *resource,
                    size_t keep,
                    size_t *given_back);

// Empties the caches of the outermost suballocator, asks the driver which work is completed, and merges its memory. Does not wait. Call it
// at a safe point of a program, such as the end of an iteration. `ALV_UNSUPPORTED` without a suballocator.
alv_status alv_defragment(const struct alv_resource *resource);

// The free and the total bytes of the memory that the stack draws on. Either place may be null.
alv_status alv_memory_info(const struct alv_resource *resource, size_t *available, size_t *total);

// What the outermost layer `stats` has counted, since it was made or since the last push. `ALV_UNSUPPORTED` without such a layer.
alv_status alv_stats(const struct alv_resource *resource,
                     struct alv_counts *out);

// Begins a scope of the statistics; `top`, which may be null, gets what was counted around it.
alv_status alv_stats_push(const struct alv_resource *resource, struct alv_counts *top);

// Ends a scope of the statistics; `top`, which may be null, gets what was counted in it. `ALV_INVALID_ARGUMENT` without a scope.
alv_status alv_stats_pop(const struct alv_resource *resource,
                         struct alv_counts *top);

// The figures of the outermost suballocator. `ALV_UNSUPPORTED` without one.
alv_status alv_status_of(const struct alv_resource *resource, struct alv_pool_status *out);

// How many bytes are live under the outermost layer `limiting` or `budget`, and its limit. Either place may be null.
// `ALV_UNSUPPORTED` without such a layer.
alv_status alv_limit_of(const struct alv_resource *resource, size_t *used, size_t *limit);

// Writes every block of the outermost suballocator to a file, as JSON that `alluvion viz` draws, with the tags that a layer
// `tracking` knows.
alv_status alv_snapshot_write(const struct alv_resource *resource,
                              const char *path);

// As `alv_snapshot_write`, to a function.
alv_status alv_snapshot_to(const struct alv_resource *resource, alv_write write, void *user);

// Calls `each` for every block that the outermost layer `tracking` knows to be out, oldest first, until it answers another
// number than 0. No lock is held meanwhile: `each` may free. It must not throw. `ALV_UNSUPPORTED` without such a layer.
alv_status alv_outstanding(const struct alv_resource *resource,
                           int (*each)(void *user, const struct alv_block *block),
                           void *user);

// Writes the rows of the outermost layer `logging` to its file. Without one there is nothing to do.
alv_status alv_log_flush(const struct alv_resource *resource);

// Writes the figures of every layer in the text format of Prometheus, with `name` as the name of the resource. And what its device
// shares with other processes, as `alv_sharing_of` counts it: that is the same on the page of every resource of the device, and is to be
// kept once where pages are put together.
alv_status alv_metrics(const struct alv_resource *resource,
                       const char *name,
                       alv_write write,
                       void *user);

// Opens memory for the graph that `stream` captures: call it right after the capture has begun. A graph has the addresses of its memory for
// as long as it can be launched. Until `alv_graph_memory_end`, what is allocated from the stack on the stream comes from memory of the
// graph, and what is freed there serves later work of the same graph, and nobody else. The outermost suballocator of the stack is a
// `pool`, and no `binning` is over it; `ALV_UNSUPPORTED` for another. `ALV_INVALID_ARGUMENT` for a stream that does not capture.
//
// The caller keeps the memory beside the graph, gives it back by `alv_graph_memory_give_back` when the graph is gone, and releases the
// handle. A handle that is released for good before leaves the memory with the graph for ever.
ALV_MUST_USE
alv_status alv_capture_raw(const struct alv_resource *stack,
                           alv_cuda_stream stream,
                           struct alv_graph_memory **out);

// Ends the allocations for this graph: when the capture has ended, or is given up. The memory stays the graph's. `ALV_INVALID_ARGUMENT` if
// it has ended before.
alv_status alv_graph_memory_end(const struct alv_graph_memory *memory);

// The bytes that a graph has of the pool; 0 once they are given back, and for null.
size_t alv_graph_memory_bytes(const struct alv_graph_memory *memory);

// Gives the memory back to the pool; `given_back`, which may be null, gets its bytes: 0 if that was done before. The graph is gone, with
// all that can be launched of it, and none of its launches is running or queued: that is the caller's promise. `ALV_IN_USE` while a block of
// it is out, or while another thread gives it back: this call gives nothing back then, and can be made again. The allocations have ended in
// any case.
alv_status alv_graph_memory_give_back(const struct alv_graph_memory *memory,
                                      size_t *given_back);

// One more count of the memory of a graph, which it returns; null for null. From any thread.
struct alv_graph_memory *alv_graph_memory_retain(struct alv_graph_memory *memory);

// Takes a count of the memory of a graph; null is allowed. From any thread, but not from a host function of a stream, as
// `alv_resource_release`.
void alv_graph_memory_release(struct alv_graph_memory *memory);

// The message of the calling thread's last failed call: valid until the next failing call of the thread, and `""` before the
// first. A call that succeeds does not touch it, as with `errno`. Never null.
const char *alv_last_error_message(void);

// Writes what is known of the calling thread's last failed call. Its own failure does not replace that.
alv_status alv_last_error(struct alv_error_info *out);

// Writes the report of the resource that ran out of memory in the calling thread's last failed call. `ALV_UNSUPPORTED` if that
// was not such a failure; the last failure stays what it was.
alv_status alv_last_out_of_memory(struct alv_oom_report *out);

// A ledger in front of a resource, of which it keeps a count: it enters the blocks that go out through it. What is out when the
// ledger is released for good stays allocated.
ALV_MUST_USE
alv_status alv_ledger_over(const struct alv_resource *resource,
                           struct alv_ledger **out);

// One more count of a ledger, which it returns; null for null. From any thread.
struct alv_ledger *alv_ledger_retain(struct alv_ledger *ledger);

// Takes a count of a ledger; null is allowed. From any thread, but not from a host function of a stream, as
// `alv_resource_release`.
void alv_ledger_release(struct alv_ledger *ledger);

// The resource that a ledger stands in front of. The caller releases it. A block that comes from it directly is a stranger to
// the ledger.
ALV_MUST_USE
alv_status alv_ledger_resource(const struct alv_ledger *ledger,
                               struct alv_resource **out);

// As `alv_allocate`, for a block that is freed by `alv_ledger_free`.
ALV_MUST_USE
alv_status alv_ledger_allocate_raw(const struct alv_ledger *ledger,
                                   size_t bytes,
                                   size_t align,
                                   alv_cuda_stream stream,
                                   void **out);

// As `alv_ledger_allocate`, on a stream that the library knows.
ALV_MUST_USE
alv_status alv_ledger_allocate_on(const struct alv_ledger *ledger,
                                  size_t bytes,
                                  size_t align,
                                  const struct alv_stream *stream,
                                  void **out);

// As `alv_ledger_allocate`, for a block that every stream, and the host if it has access, may use as soon as the call returns.
ALV_MUST_USE
alv_status alv_ledger_allocate_sync(const struct alv_ledger *ledger,
                                    size_t bytes,
                                    size_t align,
                                    void **out);

// Gives a block back by its address alone, behind the work that is on `stream` and on the streams that were recorded for it.
// Null is nothing to free. `ALV_MISUSE` for what is not out, such as a block that is free already or the middle of a block. If
// the call fails, nothing is freed, and the block stays out.
alv_status alv_ledger_free_raw(const struct alv_ledger *ledger,
                               void *block,
                               alv_cuda_stream stream);

// As `alv_ledger_free`, on a stream that the library knows.
alv_status alv_ledger_free_on(const struct alv_ledger *ledger, void *block, const struct alv_stream *stream);

// Gives a block back that no work uses any more, but for that of the streams that were recorded for it, which the call waits for.
alv_status alv_ledger_free_sync(const struct alv_ledger *ledger,
                                void *block);

// The start of the block that an address lies in, and the bytes that it was asked for with: for its start, its middle and its
// last byte. `bytes` and `base` may be null. `ALV_MISUSE` with 0 and null for an address that no block which is out has.
alv_status alv_ledger_size(const struct alv_ledger *ledger,
                           const void *block,
                           size_t *bytes,
                           void **base);

// How many blocks are out, and the bytes that they were asked for with. Both places may be null.
alv_status alv_ledger_live(const struct alv_ledger *ledger, size_t *blocks, size_t *bytes);

// Notes that work on `stream` uses the block that an address lies in, besides the stream that it will be freed on: the free
// waits for what is on `stream` by then, on the device. The stream stays valid until the block is free; it is of the resource's
// device. `ALV_MISUSE` for an address that no block which is out has.
alv_status alv_record_stream_raw(const struct alv_ledger *ledger,
                                 const void *block,
                                 alv_cuda_stream stream);

// As `alv_record_stream`, for a stream that the library knows, of any device of the machine.
alv_status alv_record_stream_on(const struct alv_ledger *ledger, const void *block, const struct alv_stream *stream);

// The machine of CUDA. `ALV_NO_DRIVER` without one.
ALV_MUST_USE alv_status alv_machine_cuda(struct alv_machine **out);

// The machine of the driver with that name: `cuda`, `cudart`, `hip` or `maca`. `ALV_INVALID_ARGUMENT` for another name,
// `ALV_NO_DRIVER` without that driver.
ALV_MUST_USE alv_status alv_machine_named(const char *name, struct alv_machine **out);

// A machine with simulated GPUs, which notices every access to memory that no stream orders. `options` may be null.
ALV_MUST_USE alv_status alv_machine_sim(const struct alv_sim_options *options, struct alv_machine **out);

// One more count of a machine, which it returns; null for null.
struct alv_machine *alv_machine_retain(struct alv_machine *machine);

// Takes a count of a machine; null is allowed. Resources, streams and ledgers keep their machine.
void alv_machine_release(struct alv_machine *machine);

// How many devices the chosen machine has.
alv_status alv_device_count(int32_t *out);

// The device that is current for the calling thread.
alv_status alv_current_device(int32_t *out);

// Makes a device current for the calling thread, as `cudaSetDevice` does. On a simulated machine it is the only way.
alv_status alv_set_current_device(int32_t number);

// Allocates a block for each of the `count` sizes in `sizes`, or none at all: as `alv_allocate`, with one alignment and one look-up of the
// stream for all. `blocks` has as many places, which are null for no bytes, and all of them if the call fails. Either array may be null
// if `count` is 0.
ALV_MUST_USE
alv_status alv_allocate_many_raw(const struct alv_resource *resource,
                                 const size_t *sizes,
                                 size_t count,
                                 size_t align,
                                 alv_cuda_stream stream,
                                 void **blocks);

// Gives `count` blocks back: as `alv_deallocate` for each of them with its size, with one look-up of the stream for all. Whichever call
// they came from, they have one alignment. Nulls are nothing to free. Either array may be null if `count` is 0.
void alv_deallocate_many_raw(const struct alv_resource *resource,
                             void *const *blocks,
                             const size_t *sizes,
                             size_t count,
                             size_t align,
                             alv_cuda_stream stream);

// Allocates for CuPy, whose `CFunctionAllocator(param, malloc, free, owner)` takes the address of this function: `void *(void *,
// size_t, int)`. From the resource that is current for the device at each request.
//
// `param` is the stream that the blocks are ordered on: 0 for the legacy default stream, 2 for that of each thread, or a live
// stream of the device. Work on a stream that does not wait for it has to be over before a block is freed. Null for no bytes,
// and for a failure, of which `alv_last_error_message` tells.
void *alluvion_cupy_malloc(void *param,
                           size_t size,
                           int device);

// Frees a block of `alluvion_cupy_malloc` to the resource that it came from, behind the work on the stream `param`: `void (void
// *, void *, int)`. What is not out is left alone, and a block that cannot be freed stays out: `alv_last_error_message` says so.
void alluvion_cupy_free(void *param,
                        void *block,
                        int device);

// Fills a handler with the functions below, over `resource`, of which it keeps no count: release it after the library that has
// the handler. Null means the resource that is current for a device at its first request.
alv_status alluvion_handler_init(struct alv_resource *resource,
                                 struct alv_device_mem_handler *out);

// `device_alloc` of a memory handler, with an `alv_resource` as its context; null means the resource of the current device,
// which is the one that was current at the first request for it. 0 for success, else an `alv_status`; `*block` is null for no
// bytes and for a failure.
//
// `stream` is a live stream of the device, or a default stream.
int alluvion_handler_alloc(void *ctx,
                           void **block,
                           size_t size,
                           alv_cuda_stream stream);

// `device_free` of a memory handler: gives a block of `alluvion_handler_alloc` back with the context and the size of its
// request, behind the work on `stream`. 0 for success and for null; else an `alv_status`, and the block leaks.
int alluvion_handler_free(void *ctx,
                          void *block,
                          size_t size,
                          alv_cuda_stream stream);

// Allocates for ONNX Runtime, whose CUDA provider takes the address of this function in its option `gpu_external_alloc`: `void
// *(size_t)`. From the resource that is current for the current device of the thread. Every stream may use the block at once,
// unless `alluvion_ort_set_stream` has named one. Null for no bytes, and for a failure, of which `alv_last_error_message` tells.
void *alluvion_ort_alloc(size_t size);

// Frees a block of `alluvion_ort_alloc` to the resource that it came from, for the option `gpu_external_free`: `void (void *)`.
// Waits for all work of the device, as `cudaFree` does, because the call does not say on which streams the block was used; so no
// stream of the device may capture. With `alluvion_ort_set_stream` it does not wait. What is not out is left alone, and a block
// that cannot be freed stays out: `alv_last_error_message` says so.
void alluvion_ort_free(void *block);

// For the option `gpu_external_empty_cache`: `void (void)`. Gives unused memory of every device that blocks were asked for back
// to the driver.
void alluvion_ort_empty_cache(void);

// Orders the blocks of `alluvion_ort_alloc` for a device on a stream from now on, so that neither call waits: the stream of the
// provider's option `user_compute_stream`. Every use of such a block is on this stream, or the stream waits for it. The stream
// stays valid for as long as blocks are asked for or freed, or until another one is named.
alv_status alluvion_ort_set_stream_raw(int device,
                                       alv_cuda_stream stream);

// Allocates for PyTorch, whose `CUDAPluggableAllocator` takes the name of this function: `void *(size_t, int, cudaStream_t)`.
// The block is of the resource that was current for the device at the first call. Null for no bytes, and for a failure, of which
// `alv_last_error_message` tells.
//
// `stream` is a live stream of the device, or a default stream.
void *alluvion_torch_malloc(size_t size,
                            int device,
                            alv_cuda_stream stream);

// Frees a block of `alluvion_torch_malloc`, behind the work on `stream` and on the streams that were recorded for it. `size` and
// `device` are those of the request. Null is nothing to free. A block that cannot be freed leaks.
void alluvion_torch_free(void *block,
                         size_t size,
                         int device,
                         alv_cuda_stream stream);

// For `set_init_fn` of PyTorch's allocator: nothing, because the library finds the devices by itself, when they are used.
void alluvion_torch_init(int device_count);

// For `set_reset_fn`, which `torch.cuda.empty_cache()` calls: gives unused memory of every device that blocks were asked for
// back to the driver.
void alluvion_torch_empty_cache(void);

// For `set_memory_fraction_fn`: at most this fraction of the device's memory is out to PyTorch at a time, by either pair of
// functions. A fraction of 1 or more bounds nothing.
void alluvion_torch_memory_fraction(double fraction,
                                    int device);

// For `set_record_stream_fn`: the free of a block of `alluvion_torch_malloc` waits for the work that is on `stream` by then,
// too, on the device. The stream is live until the block is freed. A default stream is that of the block's device and of the
// current one. If the stream cannot be used, as one of another context, the block is never freed: it leaks.
void alluvion_torch_record_stream(void *block,
                                  alv_cuda_stream stream);

// For `set_base_alloc_fn`: the start of the driver's allocation that a block lies in, and its size, for memory that processes
// share. Where the driver does not know, the block itself, and `*size` is 0; `size` may be null.
void *alluvion_torch_base_alloc(void *block,
                                size_t *size);

// As `alluvion_torch_malloc`, from the resource that is current for the device at each request. The ledger of the device
// remembers the resource and the size of the block, at the cost of a lock and a step of a table.
void *alluvion_torch_ledger_malloc(size_t size,
                                   int device,
                                   alv_cuda_stream stream);

// Frees a block of `alluvion_torch_ledger_malloc` to the resource that it came from, behind the work on `stream` and on the
// streams that were recorded for it. The ledger knows its size. What is not out is left alone, and a block that cannot be freed
// stays out: `alv_last_error_message` says so.
void alluvion_torch_ledger_free(void *block,
                                size_t size,
                                int device,
                                alv_cuda_stream stream);

// For `set_record_stream_fn`, as `alluvion_torch_record_stream` for a block of `alluvion_torch_ledger_malloc`.
void alluvion_torch_ledger_record_stream(void *block, alv_cuda_stream stream);

// Makes a stack of a recipe on a device of the chosen machine, as `stats | pool(initial=1GiB) | cuda-async`. Null and an empty
// recipe are the default source. A negative number means the device that the recipe names, else the current device.
// `ALV_MALFORMED` with a column for what cannot be read.
ALV_MUST_USE
alv_status alv_resource_from_recipe(const char *recipe,
                                    int32_t device,
                                    struct alv_resource **out);

// As `alv_resource_from_recipe`, on a device of that machine.
ALV_MUST_USE
alv_status alv_resource_from_recipe_on(const struct alv_machine *machine,
                                       const char *recipe,
                                       int32_t device,
                                       struct alv_resource **out);

// Makes a stack of a recipe on every device of a machine, in the order of their numbers; a null `machine` is the chosen one. `places`
// is how many handles `stacks` has room for, and `count`, which may be null, gets how many devices there are. With 0 places nothing
// is made, and `stacks` may be null; with fewer than there are devices it is `ALV_INVALID_ARGUMENT`. If a device has none, all are
// null, and the message names the device.
ALV_MUST_USE
alv_status alv_resource_per_device(const struct alv_machine *machine,
                                   const char *recipe,
                                   struct alv_resource **stacks,
                                   size_t places,
                                   size_t *count);

// Makes the layers of a recipe without a source over a resource, as `stats | pool`. The new resource keeps `upstream`; the
// caller's count of it stays the caller's.
ALV_MUST_USE
alv_status alv_resource_over(const char *layers,
                             const struct alv_resource *upstream,
                             struct alv_resource **out);

// One more count of a resource, which it returns; null for null. From any thread.
struct alv_resource *alv_resource_retain(struct alv_resource *resource);

// Takes a count of a resource; null is allowed. From any thread, but not from a host function of a stream: the last count drops
// the stack, and a pool waits for the work on what was freed on it.
void alv_resource_release(struct alv_resource *resource);

// Whether two handles free each other's blocks: equal pointers do, and others may. Null equals null alone.
bool alv_resource_equal(const struct alv_resource *first, const struct alv_resource *second);

// How many frees through this handle were refused by a layer of the stack, which left the block alone: of a block that was free by
// then, with another size than it was asked for with, or of what is no block. Suballocators look for that where they are `checked`, as
// all are in a library that looks for mistakes, and `tracking`, `guard` and the driver do always. `alv_last_error_message` says why, on
// the thread of the free.
alv_status alv_refused_frees(const struct alv_resource *resource,
                             uint64_t *count);

// The number of the device that the memory belongs to.
alv_status alv_resource_device(const struct alv_resource *resource, int32_t *device);

// Makes a context current for the calling thread if none is, as a call of CUDA's runtime does: the primary one of device 0. One that
// is current stays. The machine is that of `resource`, or the chosen one for null. No other function of this library but
// `alv_set_current_device` leaves another context current than it has found: this one is for headers that stand in for those of a
// library on that runtime. Where there is no driver, or it fails, nothing changes.
void alv_ensure_context(const struct alv_resource *resource);

// The largest alignment that the resource honours; 0 for null.
size_t alv_resource_max_align(const struct alv_resource *resource);

// Whether the host may read and write the blocks, as soon as `alv_allocate_sync` has returned one, at any time that no work of
// the device uses it: for managed and for pinned memory, and for layers over such. The answer stays what it is. False for null,
// and for memory of the caller's functions, of which nothing is known.
bool alv_resource_host_accessible(const struct alv_resource *resource);

// The stack on a line, as `Stats(...) > Pool(...) > CudaAsync(gpu 0)`. At most `room` bytes are written, ended by 0 if `room` is
// not 0; `needed`, which may be null, gets the whole length without the 0.
alv_status alv_describe(const struct alv_resource *resource,
                        char *buffer,
                        size_t room,
                        size_t *needed);

// Begins a file of blocks that will be at `path` when `alv_saver_finish` has returned `ALV_OK`, and not before: until then, and if the
// process dies, a file that has the name is there as it was. `ALV_UNWRITABLE` where it cannot be written. The caller releases the saver; one
// that is released before leaves nothing.
ALV_MUST_USE
alv_status alv_saver_create(const char *path,
                            struct alv_saver **out);

// Writes `bytes` bytes of memory of the resource's device, behind what `stream` does, under a name of at most 4096 bytes that the file has
// not yet. Waits until they are written; they go by way of pinned memory. Another thread that saves to the same file waits. After an
// error the blocks before are kept, and the name can be written again.
ALV_MUST_USE
alv_status alv_saver_save_raw(const struct alv_saver *saver,
                              const struct alv_resource *resource,
                              const char *name,
                              const void *block,
                              size_t bytes,
                              alv_cuda_stream stream);

// Completes the file, and gives it its name; `bytes`, which may be null, gets its length. A file that had the name is replaced. After an
// error no file is left, and the saver is finished, too.
ALV_MUST_USE
alv_status alv_saver_finish(const struct alv_saver *saver,
                            uint64_t *bytes);

// One more count of a saver, which it returns; null for null. From any thread.
struct alv_saver *alv_saver_retain(struct alv_saver *saver);

// Takes a count of a saver; null is allowed. From any thread.
void alv_saver_release(struct alv_saver *saver);

// Opens a file of blocks, of this machine or another one, and reads the table of them. `ALV_UNREADABLE` where it cannot be read;
// `ALV_MALFORMED` for one that was cut short, is damaged, or is no such file: the message says which. The caller releases it.
ALV_MUST_USE
alv_status alv_saved_open(const char *path,
                          struct alv_saved **out);

// The number of blocks of a file.
alv_status alv_saved_count(const struct alv_saved *saved, size_t *count);

// The name of a block, by its place in the order in which they were saved, from 0 on: copied into `buffer`, ended by 0, and cut where there
// is no room; `needed`, which may be null, gets the whole length without the 0. `ALV_INVALID_ARGUMENT` for a place behind the last.
alv_status alv_saved_name(const struct alv_saved *saved,
                          size_t place,
                          char *buffer,
                          size_t room,
                          size_t *needed);

// The bytes of a block. `ALV_INVALID_ARGUMENT` for a name that the file has not.
alv_status alv_saved_bytes(const struct alv_saved *saved, const char *name, uint64_t *bytes);

// Reads a block into memory of the resource's device, which has `bytes` bytes, as many as the block: on `stream`, and waits until it is
// there. Another thread that reads from the same handle waits. `ALV_INVALID_ARGUMENT` for a name that the file has not;
// `ALV_LENGTH_MISMATCH`; `ALV_UNREADABLE`, and `ALV_MALFORMED` for contents that are damaged: the memory has arbitrary bytes after these two,
// and the call can be made again.
ALV_MUST_USE
alv_status alv_saved_restore_raw(const struct alv_saved *saved,
                                 const struct alv_resource *resource,
                                 const char *name,
                                 void *block,
                                 size_t bytes,
                                 alv_cuda_stream stream);

// One more count of an opened file, which it returns; null for null. From any thread.
struct alv_saved *alv_saved_retain(struct alv_saved *saved);

// Takes a count of an opened file; null is allowed. From any thread.
void alv_saved_release(struct alv_saved *saved);

// Has the outermost suballocator of a resource tell of its segments: `added` before the first block of one goes out, `dropped` before it
// goes back to the upstream; either may be null. `added` is called for every segment that is there already, too, before this returns.
// Hooks that were set before hear of nothing any more.
//
// Both are called with no lock held, by the thread whose request, trim, sleep or release it is, and may call this library; a request of
// theirs that takes another segment is refused. They must not throw. If `added` answers another status than `ALV_OK`, the segment goes
// back, and the request fails with `ALV_FOREIGN`; one that was there stays, and this call fails. If `dropped` does, the segment stays, and
// is leaked at the end of the resource. `alv_last_error` has the status.
//
// `drop`, which may be null, is called once with `user`: when other hooks are set, when the resource goes, or in this call if that fails
// otherwise. `ALV_UNSUPPORTED` without a suballocator, and over pages that move: name `pool(registered=64MiB) | mapped` then.
alv_status alv_set_segment_hooks(const struct alv_resource *resource,
                                 alv_status (*added)(void *user, const struct alv_segment *segment),
                                 alv_status (*dropped)(void *user, const struct alv_segment *segment),
                                 void (*drop)(void *user),
                                 void *user);

// Calls `see` for every segment that the outermost suballocator has, in the order of addresses, until it answers another number than 0.
// No lock is held meanwhile. It must not throw. `ALV_UNSUPPORTED` without a suballocator.
alv_status alv_segments(const struct alv_resource *resource,
                        int (*see)(void *user, const struct alv_segment *segment),
                        void *user);

// The outermost suballocator of a resource takes no more memory of its upstream and gives none back, until it ends. A request that does not
// fit fails, with the cause `ALV_CAUSE_FROZEN`, and a trim does nothing. `ALV_UNSUPPORTED` without a suballocator.
alv_status alv_freeze(const struct alv_resource *resource);

// A descriptor of the segment of the outermost suballocator that begins at `address`, by which another process maps the same memory with
// `cuMemImportFromShareableHandle`. The caller closes it; it keeps the memory, also when the segment is given back, until then. The segment
// is there until this returns: a block on it is live and awake, or no thread trims the resource, has it grow or releases it meanwhile.
// `ALV_INVALID_ARGUMENT` if no segment begins there. `ALV_UNSUPPORTED` without a suballocator, and for memory that no one descriptor stands
// for: it is of `pool(registered=64MiB) | mapped(handles=fd)`.
alv_status alv_export_segment(const struct alv_resource *resource,
                              const void *address,
                              int32_t *descriptor);

// A descriptor of a dma-buf, through which the kernel's other drivers reach memory of a device of the chosen machine, as
// `ibv_reg_dmabuf_mr` does; a negative number means the current device. The range is live memory, whole pages of the host, and within one
// segment. The caller closes the descriptor, which keeps the memory until then. `ALV_UNSUPPORTED` where there is none.
alv_status alv_dma_buf(int32_t device,
                       const void *address,
                       size_t bytes,
                       int32_t *descriptor);

// Lets other processes open a block of a resource, which they get by the message of `*out`: as bytes, to be read unless `options`,
// which may be null, say otherwise. What importers do follows what `stream` has been given until now; on other streams the caller has
// ordered the uses before. `bytes` and `align` are those of the request.
//
// The block stays the caller's, and stays allocated until `alv_shared_end` has answered `ALV_OK`, or is given to the library by
// `alv_shared_park`. `ALV_UNSUPPORTED` for memory that cannot be shared, such as pinned memory: the message says what can.
ALV_MUST_USE
alv_status alv_share_raw(const struct alv_resource *resource,
                         void *block,
                         size_t bytes,
                         size_t align,
                         const struct alv_share_options *options,
                         alv_cuda_stream stream,
                         struct alv_shared **out);

// As `alv_share`, behind a stream that the library knows.
ALV_MUST_USE
alv_status alv_share_on(const struct alv_resource *resource,
                        void *block,
                        size_t bytes,
                        size_t align,
                        const struct alv_share_options *options,
                        const struct alv_stream *stream,
                        struct alv_shared **out);

// What a device has open of other processes, and what of its own waits for others. A null `machine` is the chosen one.
alv_status alv_sharing_of(const struct alv_machine *machine, int32_t device, struct alv_sharing *out);

// Frees the blocks that were parked and that no process has any more. `freed`, which may be null, gets how many they were. A null
// `machine` is the chosen one. Every share looks after a few of them.
alv_status alv_sharing_sweep(const struct alv_machine *machine,
                             int32_t device,
                             size_t *freed);

// Reads what a message says, and opens nothing. `ALV_MALFORMED` for what is no message.
alv_status alv_message_read(const void *message, size_t length, struct alv_message *out);

// Opens memory that another process shares, as bytes, on a device of the chosen machine: a message of `length` bytes, and the
// `descriptor` that came with it, or -1. The descriptor is duplicated: the caller keeps his own. `options` may be null.
//
// Waits, on the host, for what the exporter had done with the memory when it shared it. Work on `stream`, a live stream of the device,
// may use the memory from then on; the stream stays valid until the last handle of `*out` is released.
//
// `ALV_STALE` if the exporter has ended or has taken it back, `ALV_OWN_PROCESS` in the process that shares it, `ALV_DEVICE_MISMATCH`
// if it is on another device.
ALV_MUST_USE
alv_status alv_open_shared_raw(int32_t device,
                               const void *message,
                               size_t length,
                               int32_t descriptor,
                               const struct alv_open_options *options,
                               alv_cuda_stream stream,
                               struct alv_imported **out);

// As `alv_open_shared`, on the device of a stream that the library knows, which the new handle keeps.
ALV_MUST_USE
alv_status alv_open_shared_on(const struct alv_stream *stream,
                              const void *message,
                              size_t length,
                              int32_t descriptor,
                              const struct alv_open_options *options,
                              struct alv_imported **out);

// Where the memory is, and what may be done with it.
alv_status alv_imported_range(const struct alv_imported *imported, struct alv_range *out);

// One more count of imported memory, which it returns; null for null.
struct alv_imported *alv_imported_retain(struct alv_imported *imported);

// Takes a count of imported memory; null is allowed. The last one waits, on the host, for the work on the stream that the memory was
// opened on, behind which the caller has ordered all uses, and closes the memory: the exporter may free it then. If the end of that
// work cannot be known, as while the stream captures, the memory stays open for as long as the process lives. From any thread, but not
// from a host function of a stream.
void alv_imported_release(struct alv_imported *imported);

// The bytes that other processes open the block by, which are sent by whatever means. `needed`, which may be null, gets how many they
// are, at most `ALV_MESSAGE_BYTES`. With `room` 0 nothing is written, and `buffer` may be null; with less room than they need it is
// `ALV_INVALID_ARGUMENT`.
alv_status alv_shared_message(const struct alv_shared *shared,
                              void *buffer,
                              size_t room,
                              size_t *needed);

// The descriptor that has to be sent beside the message, over a Unix socket; -1 for memory that needs none, and after the end. It is
// the library's, and open until the block is ended or parked or the last handle is released: duplicate what is to be kept.
int32_t alv_shared_descriptor(const struct alv_shared *shared);

// How many processes have the block open. `ALV_IN_USE` if somebody has removed the file by which that is known.
alv_status alv_shared_importers(const struct alv_shared *shared, size_t *out);

// Whether the share has ended, so that the block is the caller's alone. False for null, and for one that was parked.
bool alv_shared_is_over(const struct alv_shared *shared);

// Waits until no process has the block open, and ends the share: nobody can open the block then, and the caller may free it.
// `timeout_ms` is how long it waits, in milliseconds: 0 asks once, and -1 is as long as it takes. A process that has died has nothing
// open; one that lives has it until it lets go. `ALV_IN_USE` if one still has it, or if nobody can know: it is shared as before.
ALV_MUST_USE
alv_status alv_shared_end(const struct alv_shared *shared,
                          int64_t timeout_ms);

// Gives the block to the library, which frees it when no process has it any more: at once, or at a later share, or by
// `alv_sharing_sweep`. Until then others can open it. Waits for the work on `stream`; on other streams the caller has ordered the uses
// before. If the call fails, nothing has changed. Not for a block of a ledger, which counts it as out.
ALV_MUST_USE
alv_status alv_shared_park_raw(const struct alv_shared *shared,
                               alv_cuda_stream stream);

// As `alv_shared_park`, behind a stream that the library knows.
ALV_MUST_USE alv_status alv_shared_park_on(const struct alv_shared *shared, const struct alv_stream *stream);

// One more count of a share, which it returns; null for null.
struct alv_shared *alv_shared_retain(struct alv_shared *shared);

// Takes a count of a share; null is allowed. After the last one nobody can open the block any more. Whoever has it open keeps it: so a
// block whose share was neither ended nor parked must not be freed for as long as such a process may live.
void alv_shared_release(struct alv_shared *shared);

// Waits for all work of a simulated machine, writes its mistakes and what is still out as text, a line each, and says how many
// there are. What the library keeps for a machine, such as spare events, is not out. `write` and `count` may be null. What was
// written is not written again but for what is still out.
alv_status alv_sim_report(const struct alv_machine *machine,
                          alv_write write,
                          void *user,
                          size_t *count);

// Another process on the hardware of a simulated machine, as a machine: with handles, addresses, faults and mistakes of its own, and
// the same devices and the same free memory. What one process shares, another opens. The process ends with the last handle of its
// machine.
ALV_MUST_USE
alv_status alv_sim_process(const struct alv_machine *machine,
                           struct alv_machine **out);

// Ends a simulated process as SIGKILL does: its queued work is dropped, its calls fail from now on, and its memory is free, but for
// what other processes have open. Its handles are released as ever: what it had open of others is closed by that.
alv_status alv_sim_kill(const struct alv_machine *machine);

// Makes the `nth` coming call of a kind fail on a simulated machine, counted from 1: `call` is its name in CUDA, such as
// `cuMemAlloc`, and `code` the code that it answers, such as 2, out of memory. `nth` 0 fails every call of that kind; `call` null
// means a call of any kind. A code that loses contexts, such as 700, loses that of the call.
alv_status alv_sim_fail(const struct alv_machine *machine,
                        const char *call,
                        uint64_t nth,
                        int32_t code);

// Makes a stream on a simulated machine that the library does not know, as another library would with `cuStreamCreate`.
alv_status alv_sim_stream_create(const struct alv_machine *machine, int32_t device, alv_cuda_stream *out);

// Destroys a stream of `alv_sim_stream_create`. Work that is on it goes on, and the next stream may get its handle.
alv_status alv_sim_stream_destroy(const struct alv_machine *machine, int32_t device, alv_cuda_stream stream);

// Begins to capture what is submitted to a stream of a simulated machine, as `cuStreamBeginCapture` does.
alv_status alv_sim_begin_capture(const struct alv_machine *machine, int32_t device, alv_cuda_stream stream);

// Ends a capture on the stream that it was begun on, launches the graph there once, waits for it, and lets go of it. All memory that it uses is
// there.
alv_status alv_sim_end_capture(const struct alv_machine *machine,
                               int32_t device,
                               alv_cuda_stream stream);

// Takes all faults back that have not occurred.
alv_status alv_sim_clear_faults(const struct alv_machine *machine);

// How many driver calls a simulated machine has seen; 0 for null and for a machine that is not simulated.
uint64_t alv_sim_calls(const struct alv_machine *machine);

// Gives the memory of a stack back to the device, and keeps the addresses: of all blocks if `tag` is null, and then the stack answers
// `ALV_ASLEEP` to requests until it is awake; or of those that carry a tag, or one within it, where scopes within each other have
// semicolons between them, `load;join`, and the rest goes on. The stack is a pool over pages, `pool | mapped`, under any layers
// that pass blocks on; a layer `tracking` knows the tags, or a pool that is checked.
//
// `keep_in`, which may be null, is a resource whose blocks the host reaches, such as `pool | pinned`: the contents are kept there, and
// restored. Without one they are arbitrary afterwards.
//
// The call waits for all work on the device. Until `alv_wake` has returned `ALV_OK` no work uses the blocks, neither work that is
// submitted meanwhile nor a graph that is launched; and no thread frees one while the call runs. A kernel that does is the end of the
// context.
//
// The caller releases the sleeper. One that is released before its blocks are awake leaves them without memory until they are freed, and a
// stack that slept as a whole serves requests again.
ALV_MUST_USE
alv_status alv_sleep(const struct alv_resource *stack,
                     const char *tag,
                     const struct alv_resource *keep_in,
                     struct alv_sleeper **out);

// As `alv_sleep`. The contents are kept in a file of `folder`, and restored: for more than the host has room for. They go by way of 16 MiB of
// pinned memory. The file goes when they are back, or with the sleeper; a process that is killed leaves it.
//
// `ALV_UNWRITABLE` where the folder is not there or cannot be written to, or the disk is full: nothing sleeps then, and no file is left.
// `alv_wake` is `ALV_UNREADABLE` or `ALV_MALFORMED` where the file was cut short or is damaged: everything sleeps on, and it can be called
// again.
ALV_MUST_USE
alv_status alv_sleep_on_disk(const struct alv_resource *stack,
                             const char *tag,
                             const char *folder,
                             struct alv_sleeper **out);

// Puts one block to sleep, which keeps its address: as `alv_sleep`. All that uses the block comes before what is on `stream` now, which the
// call waits for, and no other work. The block may be freed asleep; the sleeper is released then, too.
ALV_MUST_USE
alv_status alv_sleep_block_raw(const struct alv_resource *stack,
                               void *block,
                               alv_cuda_stream stream,
                               const struct alv_resource *keep_in,
                               struct alv_sleeper **out);

// As `alv_sleep_block`. The contents are kept in a file of `folder`, and restored, as by `alv_sleep_on_disk`.
ALV_MUST_USE
alv_status alv_sleep_block_on_disk_raw(const struct alv_resource *stack,
                                       void *block,
                                       alv_cuda_stream stream,
                                       const char *folder,
                                       struct alv_sleeper **out);

// Gives the blocks memory again, at the addresses that they had, and restores what was kept. Waits until that is over. Nothing if they
// are awake. `ALV_OUT_OF_MEMORY` if memory is short: everything sleeps on then, nothing is lost, and it can be called again.
ALV_MUST_USE
alv_status alv_wake(const struct alv_sleeper *sleeper);

// Reads `bytes` bytes of what is kept in memory of the host, from an address of a block on, while the block sleeps: into `into`, which has
// as many. A copy of the host, for which the device is not waited for; several threads read at once.
//
// `ALV_INVALID_ARGUMENT`, with nothing written, where not all of them lie in one block of the sleeper, nothing was kept, a file has it, or
// the blocks are awake: the message says which. `ALV_IN_USE` while another thread wakes them. A block that is freed asleep is still read as
// it was, whatever lies at its address by then.
ALV_MUST_USE
alv_status alv_sleeper_read_kept(const struct alv_sleeper *sleeper,
                                 const void *from,
                                 void *into,
                                 size_t bytes);

// What sleeps, and whether it still does.
alv_status alv_sleeper_figures(const struct alv_sleeper *sleeper, struct alv_sleep_figures *out);

// One more count of a sleeper, which it returns; null for null. From any thread.
struct alv_sleeper *alv_sleeper_retain(struct alv_sleeper *sleeper);

// Takes a count of a sleeper; null is allowed. From any thread, but not from a host function of a stream, as `alv_resource_release`.
void alv_sleeper_release(struct alv_sleeper *sleeper);

// A resource over functions of the caller's, whose memory belongs to a device of the chosen machine. If the call fails, `drop`
// is not called.
ALV_MUST_USE
alv_status alv_resource_from_source(int32_t device,
                                    const struct alv_source *source,
                                    struct alv_resource **out);

// A resource that asks `ask` when `upstream` is out of memory: 1 means that memory was freed, and the request is tried again; 0
// that nothing could be freed. `ask` runs on the thread whose request failed, with no lock held, and may call this library; its
// own requests ask no handler. It must not throw. `drop`, which may be null, is called once when the resource goes, on any
// thread; not if the call fails. The new resource keeps `upstream`.
ALV_MUST_USE
alv_status alv_resource_with_oom_handler(const struct alv_resource *upstream,
                                         int32_t (*ask)(void *user, const struct alv_oom_report *report),
                                         void (*drop)(void *user),
                                         void *user,
                                         struct alv_resource **out);

// The name of a status, such as `ALV_OUT_OF_MEMORY`: static text, and never null. An unknown number has a name that says so.
const char *alv_status_name(alv_status status);

// What a status says, such as `out of memory`: static text, and never null, for a status that comes without a message, as one that
// another thread or another library has got. `alv_last_error_message` says more of a call of the thread's own.
const char *alv_status_text(alv_status status);

// A new stream of a device of the chosen machine, which does not wait for the legacy default stream; a negative number means the
// current device.
ALV_MUST_USE
alv_status alv_stream_create(int32_t device,
                             struct alv_stream **out);

// As `alv_stream_create`, on a device of that machine.
ALV_MUST_USE
alv_status alv_stream_create_on(const struct alv_machine *machine,
                                int32_t device,
                                struct alv_stream **out);

// As `alv_stream_create`, with `flags`: 0, or `ALV_STREAM_WAITS_FOR_LEGACY`.
ALV_MUST_USE alv_status alv_stream_create_with(int32_t device, uint32_t flags, struct alv_stream **out);

// Wraps a stream of CUDA, which must stay valid until the last count of the handle is released. A default stream is itself,
// whichever thread uses the handle: that of a thread is the calling thread's.
ALV_MUST_USE
alv_status alv_stream_wrap_raw(int32_t device,
                               alv_cuda_stream stream,
                               struct alv_stream **out);

// Wraps a stream of CUDA that is valid while `owner` lives. The library calls `drop(owner)` once, on any thread, when it does
// not need the stream any more: that may be later than the last release, and is never earlier. A free on such a stream costs no
// driver call. If the call fails, `drop` is not called.
ALV_MUST_USE
alv_status alv_stream_wrap_owned_raw(int32_t device,
                                     alv_cuda_stream stream,
                                     void *owner,
                                     void (*drop)(void*),
                                     struct alv_stream **out);

// One more count of a stream, which it returns; null for null.
struct alv_stream *alv_stream_retain(struct alv_stream *stream);

// Takes a count of a stream; null is allowed. Work that is on a stream of `alv_stream_create` goes on.
void alv_stream_release(struct alv_stream *stream);

// The stream as CUDA knows it, to launch work on: valid while the handle is held. Null, the legacy default stream, for a null
// handle.
alv_cuda_stream alv_stream_handle(const struct alv_stream *stream);

// Waits for the work on a stream.
alv_status alv_stream_synchronize(const struct alv_stream *stream);

// Begins a scope on the calling thread, within the scopes that are there: allocations are counted under its name until
// `alv_tag_pop`.
alv_status alv_tag_push(const char *name);

// Ends the innermost scope of the calling thread. Without one there is nothing to do.
void alv_tag_pop(void);

// Queues a copy of `bytes` bytes on a stream of the resource's device. Either side may be memory of a device or of the host.
// Both stay valid until the copy has run.
alv_status alv_copy_raw(const struct alv_resource *resource,
                        void *to,
                        const void *from,
                        size_t bytes,
                        alv_cuda_stream stream);

// Queues a fill of `bytes` bytes with `value` on a stream of the resource's device.
alv_status alv_fill_raw(const struct alv_resource *resource,
                        void *to,
                        uint8_t value,
                        size_t bytes,
                        alv_cuda_stream stream);

// Queues the migration of managed memory on a stream of the resource's device: to the device `to`, or to the host if that is
// negative. The memory stays valid until it has run. Memory that does not migrate stays where it is, which is no failure.
alv_status alv_prefetch_raw(const struct alv_resource *resource,
                            const void *address,
                            size_t bytes,
                            int32_t to,
                            alv_cuda_stream stream);

// Waits for the work on a stream of the resource's device.
alv_status alv_synchronize_raw(const struct alv_resource *resource, alv_cuda_stream stream);

// Makes the work that is submitted to `stream` from now on come after the work that is on `other`: both are streams of the
// resource's device. The host does not wait. `ALV_CAPTURE`, and nothing has changed, where one of them captures.
alv_status alv_wait_for_raw(const struct alv_resource *resource,
                            alv_cuda_stream stream,
                            alv_cuda_stream other);

// Waits for all work of the resource's device, on every stream, those of others too. While a stream of the device captures it is
// an error, and breaks the capture.
alv_status alv_synchronize_device(const struct alv_resource *resource);

// The version of the library: the major version times 2^24, the minor times 2^12, and the patch. `ALV_VERSION` is that of the
// header.
uint32_t alv_version(void);

// Whether a program that was compiled with a header of that version, `ALV_VERSION`, may use this library. `ALV_UNSUPPORTED` if
// the two have different major versions (minor versions before 1.0), or if the library is the older one.
alv_status alv_check_version(uint32_t header);

// Calls `each` with what the outermost layer `guard` has found, the first first and at most 1024, until it answers another number than 0.
// Waits for the work before all that was freed, and looks at it first. No lock is held while `each` runs: it may free. It must not throw.
// `ALV_UNSUPPORTED` without such a layer.
alv_status alv_violations(const struct alv_resource *resource,
                          int (*each)(void *user, const struct alv_violation *violation),
                          void *user);

// Has the outermost layer `guard` call `each` with what it finds from now on: on the thread that finds it, which is one that allocates,
// frees or asks, with no lock held. It may call the library, and must not throw; its answer is not looked at. Without any such function a
// finding is a line on the standard error stream. `drop`, which may be null, is called once when the layer goes, on any thread; not if the
// call fails. `ALV_UNSUPPORTED` without such a layer.
ALV_MUST_USE
alv_status alv_on_violation(const struct alv_resource *resource,
                            int (*each)(void *user, const struct alv_violation *violation),
                            void (*drop)(void *user),
                            void *user);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ALLUVION_RAW_H */
