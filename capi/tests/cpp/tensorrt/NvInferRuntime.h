// Of TensorRT's header what an allocator needs, written for this test: the names, the types and which functions are virtual.
#ifndef NV_INFER_RUNTIME_H
#define NV_INFER_RUNTIME_H

#include <cstdint>

#define NV_TENSORRT_MAJOR 10

typedef struct CUstream_st *cudaStream_t;

namespace nvinfer1 {

using AllocatorFlags = uint32_t;

class IGpuAllocator {
public:
    virtual ~IGpuAllocator() noexcept = default;
    virtual void *allocate(uint64_t const size, uint64_t const alignment, AllocatorFlags const flags) noexcept = 0;
    virtual void *reallocate(void *const, uint64_t, uint64_t) noexcept { return nullptr; }
    virtual bool deallocate(void *const memory) noexcept = 0;
    virtual void *allocateAsync(uint64_t const size, uint64_t const alignment, AllocatorFlags const flags,
                                cudaStream_t) noexcept {
        return allocate(size, alignment, flags);
    }
    virtual bool deallocateAsync(void *const memory, cudaStream_t) noexcept { return deallocate(memory); }

protected:
    IGpuAllocator() = default;
    IGpuAllocator(IGpuAllocator const &) = default;
    IGpuAllocator &operator=(IGpuAllocator const &) & = default;
};

class IGpuAsyncAllocator : public IGpuAllocator {
public:
    void *allocateAsync(uint64_t const size, uint64_t const alignment, AllocatorFlags const flags,
                        cudaStream_t) noexcept override = 0;
    bool deallocateAsync(void *const memory, cudaStream_t) noexcept override = 0;
    [[deprecated]] void *allocate(uint64_t const size, uint64_t const alignment,
                                  AllocatorFlags const flags) noexcept override {
        return allocateAsync(size, alignment, flags, nullptr);
    }
    [[deprecated]] bool deallocate(void *const memory) noexcept override { return deallocateAsync(memory, nullptr); }
};

} // namespace nvinfer1

#endif
