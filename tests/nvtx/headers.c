// The same steps as `use_the_headers` of headers.rs has the library make, by NVIDIA's own headers: the tool must write down the same. And
// what the library under test takes for granted of these headers, for the compiler to check.
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtMem.h>
#if __has_include(<cuda_runtime.h>)
#include <nvtx3/nvToolsExtMemCudaRt.h>
#endif
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

_Static_assert(NVTX_VERSION == 3 && NVTX_EXT_MODULEID_MEM == 1 && NVTX_EXT_COMPATID_MEM == 0x0102, "versions");
_Static_assert(NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR == 1 && NVTX_MEM_TYPE_VIRTUAL_ADDRESS == 1, "heaps");
_Static_assert(NVTX_MEM_REGION_REF_TYPE_POINTER == 1 && NVTX_MESSAGE_TYPE_ASCII == 1 && NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 == 1, "kinds");
_Static_assert(NVTX3EXT_CBID_nvtxMemHeapRegister == 0 && NVTX3EXT_CBID_nvtxMemHeapUnregister == 1, "slots of heaps");
_Static_assert(NVTX3EXT_CBID_nvtxMemRegionsRegister == 3 && NVTX3EXT_CBID_nvtxMemRegionsResize == 4, "slots of regions");
_Static_assert(NVTX3EXT_CBID_nvtxMemRegionsUnregister == 5 && NVTX3EXT_CBID_nvtxMemRegionsName == 6, "slots of regions");
_Static_assert(NVTX3EXT_CBID_nvtxMemCudaMarkInitialized == 16, "slot of marks");
_Static_assert(NVTX_EXT_MEM_SLOT_COUNT == 63, "slots");
_Static_assert(NVTX_CBID_CORE2_DomainMarkEx == 1 && NVTX_CBID_CORE2_DomainRangePushEx == 4, "slots of ranges");
_Static_assert(NVTX_CBID_CORE2_DomainRangePop == 5 && NVTX_CBID_CORE2_DomainCreateA == 12 && NVTX_CBID_CORE2_SIZE == 16, "slots of ranges");
_Static_assert(NVTX_CB_MODULE_CORE == 1 && NVTX_CB_MODULE_CUDA == 2 && NVTX_CB_MODULE_OPENCL == 3 && NVTX_CB_MODULE_CUDART == 4, "modules");
_Static_assert(NVTX_CB_MODULE_CORE2 == 5 && NVTX_CB_MODULE_SYNC == 6 && NVTX_ETID_CALLBACKS == 1 && NVTX_ETID_VERSIONINFO == 3, "tables");
_Static_assert(NVTX_CBID_CORE_SIZE == 16 && NVTX_CBID_CUDA_SIZE == 9 && NVTX_CBID_OPENCL_SIZE == 15, "modules");
_Static_assert(NVTX_CBID_CUDART_SIZE == 7 && NVTX_CBID_SYNC_SIZE == 7, "modules");

#define AT(type, field, at) _Static_assert(offsetof(type, field) == (at), #type "." #field)
_Static_assert(sizeof(nvtxEventAttributes_t) == 48, "event");
AT(nvtxEventAttributes_t, payloadType, 16); AT(nvtxEventAttributes_t, payload, 24); AT(nvtxEventAttributes_t, messageType, 32);
AT(nvtxEventAttributes_t, message, 40);
_Static_assert(sizeof(nvtxMemVirtualRangeDesc_t) == 16, "range");
AT(nvtxMemVirtualRangeDesc_t, size, 0); AT(nvtxMemVirtualRangeDesc_t, ptr, 8);
_Static_assert(sizeof(nvtxMemHeapDesc_t) == 48, "heap");
AT(nvtxMemHeapDesc_t, usage, 8); AT(nvtxMemHeapDesc_t, type, 12); AT(nvtxMemHeapDesc_t, typeSpecificDescSize, 16);
AT(nvtxMemHeapDesc_t, typeSpecificDesc, 24); AT(nvtxMemHeapDesc_t, messageType, 36); AT(nvtxMemHeapDesc_t, message, 40);
_Static_assert(sizeof(nvtxMemRegionsRegisterBatch_t) == 48, "register");
AT(nvtxMemRegionsRegisterBatch_t, regionType, 4); AT(nvtxMemRegionsRegisterBatch_t, heap, 8);
AT(nvtxMemRegionsRegisterBatch_t, regionCount, 16); AT(nvtxMemRegionsRegisterBatch_t, regionDescElementSize, 24);
AT(nvtxMemRegionsRegisterBatch_t, regionDescElements, 32); AT(nvtxMemRegionsRegisterBatch_t, regionHandleElementsOut, 40);
_Static_assert(sizeof(nvtxMemRegionsResizeBatch_t) == 32, "resize");
AT(nvtxMemRegionsResizeBatch_t, regionDescCount, 8); AT(nvtxMemRegionsResizeBatch_t, regionDescElements, 24);
#if __has_include(<cuda_runtime.h>)
_Static_assert(sizeof(nvtxMemMarkInitializedBatch_t) == 32, "mark");
AT(nvtxMemMarkInitializedBatch_t, regionType, 4); AT(nvtxMemMarkInitializedBatch_t, regionDescCount, 8);
AT(nvtxMemMarkInitializedBatch_t, regionDescElementSize, 16); AT(nvtxMemMarkInitializedBatch_t, regionDescElements, 24);
static void (*const mark_initialized)(nvtxDomainHandle_t, cudaStream_t, uint8_t, nvtxMemMarkInitializedBatch_t const *) =
    nvtxMemCudaMarkInitialized;
#endif
_Static_assert(sizeof(nvtxMemRegionsUnregisterBatch_t) == 32, "unregister");
AT(nvtxMemRegionsUnregisterBatch_t, refType, 4); AT(nvtxMemRegionsUnregisterBatch_t, refCount, 8);
AT(nvtxMemRegionsUnregisterBatch_t, refElementSize, 16); AT(nvtxMemRegionsUnregisterBatch_t, refElements, 24);
_Static_assert(sizeof(nvtxMemRegionNameDesc_t) == 32 && sizeof(nvtxMemRegionsNameBatch_t) == 40, "names");
AT(nvtxMemRegionNameDesc_t, nameType, 4); AT(nvtxMemRegionNameDesc_t, region, 8); AT(nvtxMemRegionNameDesc_t, name, 16);
AT(nvtxMemRegionsNameBatch_t, regionCount, 8); AT(nvtxMemRegionsNameBatch_t, regionElements, 24);
_Static_assert(sizeof(nvtxExtModuleSegment_t) == 24 && sizeof(nvtxExtModuleInfo_t) == 40, "module");
AT(nvtxExtModuleSegment_t, slotCount, 8); AT(nvtxExtModuleSegment_t, functionSlots, 16);
AT(nvtxExtModuleInfo_t, moduleId, 4); AT(nvtxExtModuleInfo_t, compatId, 6); AT(nvtxExtModuleInfo_t, segmentsCount, 8);
AT(nvtxExtModuleInfo_t, segments, 16);
_Static_assert(sizeof(NvtxExportTableCallbacks) == 16 && sizeof(NvtxExportTableVersionInfo) == 24, "tables");
AT(NvtxExportTableVersionInfo, version, 8);

static nvtxEventAttributes_t event(const char *text, int has_payload, uint64_t payload) {
  nvtxEventAttributes_t event = {0};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = text;
  event.payloadType = has_payload ? NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 : NVTX_PAYLOAD_UNKNOWN;
  event.payload.ullValue = payload;
  return event;
}

// The addresses of the heap and of the block.
int main(int count, char **words) {
  if (count < 3) return 2;
  void *heap_at = (void *)strtoull(words[1], 0, 16), *block = (void *)strtoull(words[2], 0, 16);
  nvtxDomainHandle_t domain = nvtxDomainCreateA("alluvion");
  nvtxMemVirtualRangeDesc_t range = {4 << 20, heap_at};
  nvtxMemHeapDesc_t heap = {0};
  heap.extCompatID = NVTX_EXT_COMPATID_MEM, heap.structSize = sizeof heap;
  heap.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR, heap.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
  heap.typeSpecificDescSize = sizeof range, heap.typeSpecificDesc = &range;
  heap.messageType = NVTX_MESSAGE_TYPE_ASCII, heap.message.ascii = "Pool";
  nvtxMemHeapHandle_t handle = nvtxMemHeapRegister(domain, &heap);
  nvtxEventAttributes_t scope = event("query", 0, 0), refused = event("out of memory", 1, 1 << 30), trim = event("trim", 1, 4 << 20);
  nvtxDomainRangePushEx(domain, &scope);
  nvtxMemVirtualRangeDesc_t piece = {1000, block};
  nvtxMemRegionsRegisterBatch_t regions = {0};
  regions.extCompatID = NVTX_EXT_COMPATID_MEM, regions.structSize = sizeof regions, regions.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
  regions.heap = handle, regions.regionCount = 1, regions.regionDescElementSize = sizeof piece, regions.regionDescElements = &piece;
  nvtxMemRegionsRegister(domain, &regions);
  nvtxMemRegionNameDesc_t name = {0};
  name.regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER, name.nameType = NVTX_MESSAGE_TYPE_ASCII;
  name.region.pointer = block, name.name.ascii = "query";
  nvtxMemRegionsNameBatch_t names = {0};
  names.extCompatID = NVTX_EXT_COMPATID_MEM, names.structSize = sizeof names;
  names.regionCount = 1, names.regionElementSize = sizeof name, names.regionElements = &name;
  nvtxMemRegionsName(domain, &names);
  nvtxDomainRangePop(domain);
  nvtxDomainMarkEx(domain, &refused);
  nvtxMemRegionRef_t reference = {block};
  nvtxMemRegionsUnregisterBatch_t gone = {0};
  gone.extCompatID = NVTX_EXT_COMPATID_MEM, gone.structSize = sizeof gone, gone.refType = NVTX_MEM_REGION_REF_TYPE_POINTER;
  gone.refCount = 1, gone.refElementSize = sizeof reference, gone.refElements = &reference;
  nvtxMemRegionsUnregister(domain, &gone);
  nvtxMemHeapUnregister(domain, handle);
  nvtxDomainRangePushEx(domain, &trim);
  nvtxDomainRangePop(domain);
  return 0;
}
