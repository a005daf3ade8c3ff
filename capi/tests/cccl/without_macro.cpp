// What is left where CCCL has no memory resources yet, or the program does not ask for them? The header without the part for CCCL.
#include <cuda/std/cstddef>

#include <alluvion/containers.hpp>

#if !__has_include(<cuda/version>)
#error "there is no CCCL on the path"
#endif

#if EXPECTED_CCCL
static_assert(ALLUVION_CCCL == CCCL_VERSION);
static_assert(cuda::mr::resource_with<alluvion::resource, cuda::mr::device_accessible>);
#else
static_assert(ALLUVION_CCCL == 0);
#endif

[[maybe_unused]] static void *allocate(alluvion::resource const &from, alv_cuda_stream stream) {
    return from.allocate(stream, 8);
}
