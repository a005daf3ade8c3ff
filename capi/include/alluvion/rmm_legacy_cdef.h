// The names of the first RMM in C, as declarations alone: what cffi's `cdef` reads. It has no directives, so a C or C++ file
// includes alluvion/rmm_legacy.h instead, which includes this file, and adds the macros.

typedef struct CUstream_st *cudaStream_t;

// Where a block lies in the driver's allocation, in bytes.
typedef long int offset_t;

// What a call answers. alv_last_error_message() of alluvion.h says more of the calling thread's last failure.
typedef enum {
    RMM_SUCCESS = 0,
    RMM_ERROR_CUDA_ERROR = 1,
    RMM_ERROR_INVALID_ARGUMENT = 2,
    RMM_ERROR_NOT_INITIALIZED = 3,
    RMM_ERROR_OUT_OF_MEMORY = 4,
    RMM_ERROR_UNKNOWN = 5,
    RMM_ERROR_IO = 6,
    N_RMM_ERROR = 7
} rmmError_t;

// Where memory comes from. The last two may be or-ed: a pool of managed memory.
typedef enum { CudaDefaultAllocation = 0, PoolAllocation = 1, CudaManagedMemory = 2 } rmmAllocationMode_t;

typedef struct {
    rmmAllocationMode_t allocation_mode;
    // The bytes that a pool takes at once on the device that is current then; 0 for half of that device.
    size_t initial_pool_size;
    bool enable_logging;
} rmmOptions_t;

// Begins with these options; null means those of the last time, else plain memory of the driver without a log. A second call ends
// what the first has begun, unless a block of it is live: then it is RMM_ERROR_INVALID_ARGUMENT, and nothing has changed.
rmmError_t rmmInitialize(rmmOptions_t *options);

// Waits for the devices, gives every block that is live back, and the pools, and drops the log. Success if there is nothing to end.
rmmError_t rmmFinalize(void);

// Whether rmmInitialize was called and rmmFinalize was not. *options, if not null, gets the options in force.
bool rmmIsInitialized(rmmOptions_t *options);

// The name of an error: static text, and never null.
const char *rmmGetErrorString(rmmError_t errcode);

// Allocates on the current device, for work on a stream of it. *ptr is null for no bytes, and if the call fails. `file`, which may
// be null, and `line` are for the log. Before the first rmmInitialize memory is plain memory of the driver; between rmmFinalize and
// rmmInitialize the answer is RMM_ERROR_NOT_INITIALIZED.
rmmError_t rmmAlloc(void **ptr, size_t size, cudaStream_t stream, const char *file, unsigned int line);

// Frees the block at *ptr, if that is not null, and allocates another. The contents are not kept. If the new block cannot
// be had, the old one is gone all the same, and *ptr is null; what is refused for its arguments has changed nothing.
rmmError_t rmmRealloc(void **ptr, size_t new_size, cudaStream_t stream, const char *file, unsigned int line);

// Frees a block behind the work that is on the stream. Null is nothing to free. An address of no block: RMM_ERROR_INVALID_ARGUMENT.
rmmError_t rmmFree(void *ptr, cudaStream_t stream, const char *file, unsigned int line);

// How far an address lies behind the start of the driver's allocation around it, which is what a handle for other processes names.
rmmError_t rmmGetAllocationOffset(offset_t *offset, void *ptr, cudaStream_t stream);

// The free and the total bytes of the current device; with a pool, what the pool has free counts as free.
rmmError_t rmmGetInfo(size_t *free_size, size_t *total_size, cudaStream_t stream);

// Writes the log to a file, as CSV. Without a log it is the header row alone.
rmmError_t rmmWriteLog(const char *filename);

// The bytes of the log as CSV, without an ending 0.
size_t rmmLogSize(void);

// Copies the log, but no more than `buffer_size` bytes of it, and writes no ending 0.
rmmError_t rmmGetLog(char *buffer, size_t buffer_size);
