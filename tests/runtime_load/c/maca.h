/* The part of MACA's interface that the driver calls. MetaX publishes no header: the names and types are those that public programs
 * call, and the numbers those that they have copied. What no public program names has the shape that HIP has. */
#include <stddef.h>
#include <stdint.h>

typedef enum {
    mcSuccess = 0, mcErrorInvalidValue = 1, mcErrorOutOfMemory = 2, mcErrorInsufficientDriver = 35, mcErrorNoDevice = 100,
    mcErrorInvalidDevice = 101, mcErrorInvalidDevicePointer = 17
} mcError_t;
typedef int mcDevice_t;
typedef void *mcDeviceptr_t;
typedef struct MCStream_t *mcStream_t;
typedef struct MCEvent_t *mcEvent_t;
typedef struct MCGraph *mcGraph_t;
typedef struct mcGraphNode *mcGraphNode_t;
typedef struct MCMemPoolHandle_t *mcMemPool_t;
typedef struct MCMemGenericAllocationHandle *mcMemGenericAllocationHandle_t;
typedef void (*mcHostFn_t)(void *);
#define mcStreamPerThread ((mcStream_t)2)
#define mcStreamNonBlocking 0x01
#define mcEventDisableTiming 0x2
#define mcEventInterprocess 0x4
#define mcIpcMemLazyEnablePeerAccess 0x01
#define mcMemAttachGlobal 0x01
#define mcMallocHostPortable 0x1
#define mcMallocHostMapped 0x2
#define mcMallocHostWriteCombined 0x4
#define mcHostRegisterPortable 0x1
#define mcHostRegisterMapped 0x2
#define mcCpuDeviceId ((int)-1)

typedef enum { mcMemcpyHostToHost, mcMemcpyHostToDevice, mcMemcpyDeviceToHost, mcMemcpyDeviceToDevice, mcMemcpyDefault } mcMemcpyKind;
typedef enum { mcStreamCaptureModeGlobal, mcStreamCaptureModeThreadLocal, mcStreamCaptureModeRelaxed } mcStreamCaptureMode;
typedef enum { mcStreamCaptureStatusNone, mcStreamCaptureStatusActive, mcStreamCaptureStatusInvalidated } mcStreamCaptureStatus;
typedef enum mcMemoryType {
    mcMemoryTypeUnregistered = 0, mcMemoryTypeHost = 1, mcMemoryTypeDevice = 2, mcMemoryTypeManaged = 3, mcMemoryTypeArray = 10,
    mcMemoryTypeUnified = 11
} mcMemoryType;
typedef struct mcPointerAttribute_t {
    enum mcMemoryType type;
    int device;
    void *devicePointer;
    void *hostPointer;
    int isManaged;
    unsigned allocationFlags;
} mcPointerAttribute_t;

typedef enum mcDeviceAttribute_t {
    mcDeviceAttributeMaxThreadsPerBlock, mcDeviceAttributeMaxBlockDimX, mcDeviceAttributeMaxBlockDimY,
    mcDeviceAttributeMaxBlockDimZ, mcDeviceAttributeMaxGridDimX, mcDeviceAttributeMaxGridDimY, mcDeviceAttributeMaxGridDimZ,
    mcDeviceAttributeMaxSharedMemoryPerBlock, mcDeviceAttributeTotalConstantMemory, mcDeviceAttributeWarpSize,
    mcDeviceAttributeWaveSize, mcDeviceAttributeMaxRegistersPerBlock, mcDeviceAttributeMaxRegistersPerMultiprocessor,
    mcDeviceAttributeClockRate, mcDeviceAttributeMemoryClockRate, mcDeviceAttributeMemoryBusWidth,
    mcDeviceAttributeMultiProcessorCount, mcDeviceAttributeComputeMode, mcDeviceAttributeL2CacheSize,
    mcDeviceAttributeMaxThreadsPerMultiProcessor, mcDevAttrMaxBlocksPerMultiprocessor, mcDeviceAttributeComputeCapabilityMajor,
    mcDeviceAttributeComputeCapabilityMinor, mcDeviceAttributeConcurrentKernels, mcDeviceAttributePciBusId,
    mcDeviceAttributePciDeviceId, mcDeviceAttributeMaxSharedMemoryPerMultiprocessor, mcDeviceAttributeIsMultiGpuBoard,
    mcDeviceAttributeIntegrated, mcDeviceAttributeCooperativeLaunch, mcDeviceAttributeCooperativeMultiDeviceLaunch,
    mcDeviceAttributeMaxTexture1DWidth, mcDeviceAttributeMaxTexture2DWidth, mcDeviceAttributeMaxTexture2DHeight,
    mcDeviceAttributeMaxTexture3DWidth, mcDeviceAttributeMaxTexture3DHeight, mcDeviceAttributeMaxTexture3DDepth,
    mcDeviceAttributeHdpMemFlushCntl, mcDeviceAttributeHdpRegFlushCntl, mcDeviceAttributeMaxPitch,
    mcDeviceAttributeTextureAlignment, mcDeviceAttributeTexturePitchAlignment, mcDeviceAttributeKernelExecTimeout,
    mcDeviceAttributeCanMapHostMemory, mcDeviceAttributeEccEnabled, mcDeviceAttributeCooperativeMultiDeviceUnmatchedFunc,
    mcDeviceAttributeCooperativeMultiDeviceUnmatchedGridDim, mcDeviceAttributeCooperativeMultiDeviceUnmatchedBlockDim,
    mcDeviceAttributeCooperativeMultiDeviceUnmatchedSharedMem, mcDeviceAttributeAsicRevision, mcDeviceAttributeManagedMemory,
    mcDeviceAttributeDirectManagedMemAccessFromHost, mcDeviceAttributeConcurrentManagedAccess,
    mcDeviceAttributePageableMemoryAccess, mcDeviceAttributePageableMemoryAccessUsesHostPageTables,
    mcDeviceAttributeVirtualMemoryManagementSupported, mcDeviceAttributeHandleTypePosixFileDescriptorSupported,
    mcDeviceAttributeHandleTypeWin32HandleSupported, mcDeviceAttributeGenericCompressionSupported,
    mcDeviceAttributeCanUseStreamWaitValue, mcDeviceAttributeCanUseStreamMemOps, mcDeviceAttributeCanUseStreamWaitWaitValueNor,
    mcDeviceAttributeCanFlushRemoteWrites, mcDeviceAttributeMemoryPoolsSupported, mcDeviceAttributeUnifiedAddressing,
    mcDeviceAttributeMaxAccessPolicyWindowSize, mcDeviceAttributeMaxPersistingL2CacheSize, mcDeviceAttributeGpuOverlap,
    mcDeviceAttributeAsyncEngineCount, mcDeviceAttributeMemoryPoolSupportedHandleTypes, mcDeviceAttributeTexture1DLinearWidth,
    mcDeviceAttributeTexture2DLinearWidth, mcDeviceAttributeTexture2DLinearHeight, mcDeviceAttributeTexture2DLinearPitch,
    mcDeviceAttributeHostNativeAtomicSupported, mcDeviceAttributeMaxTexture1DLayeredWidth,
    mcDeviceAttributeMaxTexture1DLayeredLayers, mcDeviceAttributeMaxTexture2DLayeredWidth,
    mcDeviceAttributeMaxTexture2DLayeredHeight, mcDeviceAttributeMaxTexture2DLayeredLayers, mcDeviceAttributeSurfaceAligement,
    mcDeviceAttributeComputePreemptionSupported, mcDeviceAttributePciDomainId, mcDeviceAttributeTccDriver
} mcDeviceAttribute_t;

typedef enum {
    mcMemPoolReuseFollowEventDependencies = 1, mcMemPoolReuseAllowOpportunistic = 2, mcMemPoolReuseAllowInternalDependencies = 3,
    mcMemPoolAttrReleaseThreshold = 4, mcMemPoolAttrReservedMemCurrent = 5, mcMemPoolAttrReservedMemHigh = 6,
    mcMemPoolAttrUsedMemCurrent = 7, mcMemPoolAttrUsedMemHigh = 8
} mcMemPoolAttr;
typedef enum {
    mcMemAdviseSetReadMostly = 1, mcMemAdviseUnsetReadMostly = 2, mcMemAdviseSetPreferredLocation = 3,
    mcMemAdviseUnsetPreferredLocation = 4, mcMemAdviseSetAccessedBy = 5, mcMemAdviseUnsetAccessedBy = 6
} mcMemoryAdvise;
typedef enum { mcMemAllocationTypeInvalid = 0, mcMemAllocationTypePinned = 1, mcMemAllocationTypeManaged = 2 } mcMemAllocationType;
typedef enum {
    mcMemHandleTypeNone = 0, mcMemHandleTypePosixFileDescriptor = 1, mcMemHandleTypeWin32 = 2, mcMemHandleTypeWin32Kmt = 4,
    mcMemHandleTypeFabric = 8
} mcMemAllocationHandleType;
typedef enum {
    mcMemLocationTypeInvalid = 0, mcMemLocationTypeDevice = 1, mcMemLocationTypeHost = 2, mcMemLocationTypeHostNuma = 3
} mcMemLocationType;
typedef struct {
    mcMemLocationType type;
    int id;
} mcMemLocation;
typedef struct {
    mcMemAllocationType allocType;
    mcMemAllocationHandleType handleTypes;
    mcMemLocation location;
    void *win32SecurityAttributes;
    unsigned char reserved[64];
} mcMemPoolProps;
typedef struct {
    mcMemAllocationType type;
    mcMemAllocationHandleType requestedHandleType;
    mcMemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType;
        unsigned char gpuDirectRDMACapable;
        unsigned short usage;
    } allocFlags;
} mcMemAllocationProp;
typedef enum { mcMemAccessFlagsProtNone = 0, mcMemAccessFlagsProtRead = 1, mcMemAccessFlagsProtReadWrite = 3 } mcMemAccessFlags;
typedef struct {
    mcMemLocation location;
    mcMemAccessFlags flags;
} mcMemAccessDesc;
typedef enum { mcMemAllocationGranularityMinimum = 0, mcMemAllocationGranularityRecommended = 1 } mcMemAllocationGranularity_flags;
typedef struct mcIpcMemHandle_st {
    char reserved[64];
} mcIpcMemHandle_t;
typedef struct mcIpcEventHandle_st {
    char reserved[64];
} mcIpcEventHandle_t;
typedef struct mcUUID_st {
    char bytes[16];
} mcUUID;

mcError_t mcRuntimeGetVersion(int *runtimeVersion);
mcError_t mcGetDeviceCount(int *count);
mcError_t mcGetDevice(int *deviceId);
mcError_t mcSetDevice(int deviceId);
mcError_t mcGetLastError(void);
mcError_t mcPeekAtLastError(void);
mcError_t mcDeviceGetAttribute(int *pi, mcDeviceAttribute_t attr, int deviceId);
mcError_t mcDeviceGetName(char *name, int len, mcDevice_t device);
mcError_t mcDeviceSynchronize(void);
mcError_t mcMemGetInfo(size_t *free, size_t *total);
mcError_t mcDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority);
mcError_t mcStreamCreateWithPriority(mcStream_t *stream, unsigned int flags, int priority);
mcError_t mcStreamDestroy(mcStream_t stream);
mcError_t mcStreamSynchronize(mcStream_t stream);
mcError_t mcStreamQuery(mcStream_t stream);
mcError_t mcStreamWaitEvent(mcStream_t stream, mcEvent_t event, unsigned int flags);
mcError_t mcStreamGetId(mcStream_t stream, unsigned long long *streamId);
mcError_t mcStreamGetDevice(mcStream_t stream, mcDevice_t *device);
mcError_t mcThreadExchangeStreamCaptureMode(mcStreamCaptureMode *mode);
mcError_t mcStreamIsCapturing(mcStream_t stream, mcStreamCaptureStatus *pCaptureStatus);
mcError_t mcStreamGetCaptureInfo_v2(mcStream_t stream, mcStreamCaptureStatus *captureStatus_out, unsigned long long *id_out,
                                      mcGraph_t *graph_out, const mcGraphNode_t **dependencies_out, size_t *numDependencies_out);
mcError_t mcStreamBeginCapture(mcStream_t stream, mcStreamCaptureMode mode);
mcError_t mcStreamEndCapture(mcStream_t stream, mcGraph_t *pGraph);
mcError_t mcGraphDestroy(mcGraph_t graph);
mcError_t mcLaunchHostFunc(mcStream_t stream, mcHostFn_t fn, void *userData);
mcError_t mcEventCreateWithFlags(mcEvent_t *event, unsigned flags);
mcError_t mcEventDestroy(mcEvent_t event);
mcError_t mcEventRecord(mcEvent_t event, mcStream_t stream);
mcError_t mcEventQuery(mcEvent_t event);
mcError_t mcEventSynchronize(mcEvent_t event);
mcError_t mcMalloc(void **ptr, size_t size);
mcError_t mcFree(void *ptr);
mcError_t mcMallocManaged(void **dev_ptr, size_t size, unsigned int flags);
mcError_t mcMallocHost(void **ptr, size_t size, unsigned int flags);
mcError_t mcFreeHost(void *ptr);
mcError_t mcHostRegister(void *hostPtr, size_t sizeBytes, unsigned int flags);
mcError_t mcHostUnregister(void *hostPtr);
mcError_t mcHostGetDevicePointer(void **devPtr, void *hstPtr, unsigned int flags);
mcError_t mcPointerGetAttributes(mcPointerAttribute_t *attributes, const void *ptr);
mcError_t mcMemGetAddressRange(mcDeviceptr_t *pbase, size_t *psize, mcDeviceptr_t dptr);
mcError_t mcMemcpy(void *dst, const void *src, size_t sizeBytes, mcMemcpyKind kind);
mcError_t mcMemcpyAsync(void *dst, const void *src, size_t sizeBytes, mcMemcpyKind kind, mcStream_t stream);
mcError_t mcMemcpyPeerAsync(void *dst, int dstDeviceId, const void *src, int srcDevice, size_t sizeBytes, mcStream_t stream);
mcError_t mcMemsetAsync(void *dst, int value, size_t sizeBytes, mcStream_t stream);
mcError_t mcMemsetD16Async(mcDeviceptr_t dest, unsigned short value, size_t count, mcStream_t stream);
mcError_t mcMemsetD32Async(mcDeviceptr_t dst, int value, size_t count, mcStream_t stream);
mcError_t mcMallocFromPoolAsync(void **dev_ptr, size_t size, mcMemPool_t mem_pool, mcStream_t stream);
mcError_t mcFreeAsync(void *dev_ptr, mcStream_t stream);
mcError_t mcMemPoolCreate(mcMemPool_t *mem_pool, const mcMemPoolProps *pool_props);
mcError_t mcMemPoolDestroy(mcMemPool_t mem_pool);
mcError_t mcMemPoolTrimTo(mcMemPool_t mem_pool, size_t min_bytes_to_hold);
mcError_t mcMemPoolGetAttribute(mcMemPool_t mem_pool, mcMemPoolAttr attr, void *value);
mcError_t mcMemPoolSetAttribute(mcMemPool_t mem_pool, mcMemPoolAttr attr, void *value);
mcError_t mcDeviceGetDefaultMemPool(mcMemPool_t *mem_pool, int device);
mcError_t mcMemGetAllocationGranularity(size_t *granularity, const mcMemAllocationProp *prop, mcMemAllocationGranularity_flags option);
mcError_t mcMemAddressReserve(void **ptr, size_t size, size_t alignment, void *addr, unsigned long long flags);
mcError_t mcMemAddressFree(void *devPtr, size_t size);
mcError_t mcMemCreate(mcMemGenericAllocationHandle_t *handle, size_t size, const mcMemAllocationProp *prop, unsigned long long flags);
mcError_t mcMemRelease(mcMemGenericAllocationHandle_t handle);
mcError_t mcMemExportToShareableHandle(void *shareableHandle, mcMemGenericAllocationHandle_t handle,
                                         mcMemAllocationHandleType handleType, unsigned long long flags);
mcError_t mcMemMap(void *ptr, size_t size, size_t offset, mcMemGenericAllocationHandle_t handle, unsigned long long flags);
mcError_t mcMemUnmap(void *ptr, size_t size);
mcError_t mcMemSetAccess(void *ptr, size_t size, const mcMemAccessDesc *desc, size_t count);
mcError_t mcIpcGetMemHandle(mcIpcMemHandle_t *handle, void *devPtr);
mcError_t mcIpcOpenMemHandle(void **devPtr, mcIpcMemHandle_t handle, unsigned int flags);
mcError_t mcIpcCloseMemHandle(void *devPtr);
mcError_t mcIpcGetEventHandle(mcIpcEventHandle_t *handle, mcEvent_t event);
mcError_t mcIpcOpenEventHandle(mcEvent_t *event, mcIpcEventHandle_t handle);
mcError_t mcMemPoolSetAccess(mcMemPool_t mem_pool, const mcMemAccessDesc *desc_list, size_t count);
mcError_t mcMemImportFromShareableHandle(mcMemGenericAllocationHandle_t *handle, void *osHandle, mcMemAllocationHandleType shHandleType);
mcError_t mcMemGetAllocationPropertiesFromHandle(mcMemAllocationProp *prop, mcMemGenericAllocationHandle_t handle);
mcError_t mcDeviceGetUuid(mcUUID *uuid, mcDevice_t device);
mcError_t mcDeviceCanAccessPeer(int *canAccessPeer, int deviceId, int peerDeviceId);
mcError_t mcDeviceEnablePeerAccess(int peerDeviceId, unsigned int flags);
mcError_t mcMemPrefetchAsync(const void *dev_ptr, size_t count, int device, mcStream_t stream);
mcError_t mcMemAdvise(const void *dev_ptr, size_t count, mcMemoryAdvise advice, int device);
