/*
 * A pair of functions for PyTorch's CUDAPluggableAllocator, over a recipe of your own for each device.
 *
 *     export PKG_CONFIG_PATH=/opt/alluvion/lib/pkgconfig
 *     cc -shared -fPIC torch_plugin.c $(pkg-config --cflags --libs calluvion) -Wl,-rpath,"$(pkg-config --variable=libdir calluvion)" -o torch_plugin.so
 *
 * and in Python, before the first tensor:
 * (not run: it needs a GPU and PyTorch; ci/capi loads the functions as PyTorch does)
 *
 * and in Python, before the first tensor:
 * (not run: it needs a GPU and PyTorch; ci/capi loads the functions as PyTorch does)
 *
 *     torch.cuda.memory.change_current_allocator(
 *         torch.cuda.memory.CUDAPluggableAllocator("./torch_plugin.so", "plugin_malloc", "plugin_free"))
 *
 * The functions of the library, alluvion_torch_malloc and alluvion_torch_free, do the same from the current resource of a device.
 */
#include <alluvion.h>

#include <pthread.h>
#include <stdio.h>
#include <sys/types.h>

#define DEVICES 64

/* Made once, and kept for as long as the process runs: PyTorch frees tensors until its very end. */
static alv_resource *pools[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static alv_resource *pool_of(int device) {
    if (device < 0 || device >= DEVICES) return NULL;
    alv_resource *pool = __atomic_load_n(&pools[device], __ATOMIC_ACQUIRE);
    if (pool != NULL) return pool;
    pthread_mutex_lock(&lock);
    pool = pools[device];
    /* Another version of the library may be in the process by other means. */
    if (pool == NULL && alv_check_version(ALV_VERSION) == ALV_OK &&
        alv_resource_from_recipe("stats | pool | cuda-async", device, &pool) == ALV_OK) {
        __atomic_store_n(&pools[device], pool, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return pool;
}

/* PyTorch passes the stream that the tensor is for, 0 for the legacy one: so this is the raw form, which takes it as it is. */
void *plugin_malloc(ssize_t size, int device, alv_cuda_stream stream) {
    void *block = NULL;
    if (size < 0 || alv_allocate_raw(pool_of(device), (size_t)size, 0, stream, &block) != ALV_OK) {
        fprintf(stderr, "%zd bytes on device %d: %s\n", size, device, alv_last_error_message());
        return NULL;
    }
    return block;
}

void plugin_free(void *block, ssize_t size, int device, alv_cuda_stream stream) {
    alv_deallocate_raw(pool_of(device), block, (size_t)size, 0, stream);
}
