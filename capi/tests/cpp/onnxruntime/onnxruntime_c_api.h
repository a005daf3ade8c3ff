// Of ONNX Runtime's header what an allocator needs, written for this test: the names, the types and the order of the functions.
#ifndef ORT_API_VERSION
#define ORT_API_VERSION 25

#include <cstddef>
#include <cstdint>

#define ORT_API_CALL

struct OrtMemoryInfo;
struct OrtKeyValuePairs;
struct OrtStatus;
struct OrtSyncStream;

struct OrtAllocator {
    uint32_t version;
    void *(ORT_API_CALL *Alloc)(OrtAllocator *self, size_t size);
    void(ORT_API_CALL *Free)(OrtAllocator *self, void *block);
    OrtMemoryInfo const *(ORT_API_CALL *Info)(OrtAllocator const *self);
    void *(ORT_API_CALL *Reserve)(OrtAllocator *self, size_t size);
    OrtStatus *(ORT_API_CALL *GetStats)(OrtAllocator const *self, OrtKeyValuePairs **out);
    void *(ORT_API_CALL *AllocOnStream)(OrtAllocator *self, size_t size, OrtSyncStream *stream);
    OrtStatus *(ORT_API_CALL *Shrink)(OrtAllocator *self);
};

#endif
