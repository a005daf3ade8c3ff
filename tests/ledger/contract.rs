//! Through a ledger, a resource keeps every clause of the contract.

#![expect(unsafe_code, reason = "makes a resource of a ledger")]

use alluvion::source::{Cuda, CudaAsync};
use alluvion::testing::Shadow;
use alluvion::{
    DeviceAccessible, DevicePtr, Error, Layout, Ledger, PoolConfig, Resource, ResourceExt, ResourceId,
    StreamRef,
};

/// A resource that frees by addresses alone.
struct ByAddress<R> {
    ledger: Ledger<R>,
    id: ResourceId,
}

impl<R: Resource> ByAddress<R> {
    fn new(resource: R) -> Self {
        Self { ledger: Ledger::new(resource), id: ResourceId::unique() }
    }
}

// SAFETY: the blocks are those of the resource under the ledger, each with the layout that the ledger remembers.
unsafe impl<R: Resource> Resource for ByAddress<R> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.ledger.allocate(layout, stream)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        // SAFETY: the caller's promises.
        match unsafe { self.ledger.free(block, stream) } {
            Ok(bytes) => assert_eq!(bytes, layout.bytes()),
            // The suite loses contexts.
            Err(error) => assert_ne!(error.kind(), alluvion::ErrorKind::Misuse, "{error}"),
        }
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.ledger.allocate_sync(layout)
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        // SAFETY: the caller's promises.
        match unsafe { self.ledger.free_sync(block) } {
            Ok(bytes) => assert_eq!(bytes, layout.bytes()),
            Err(error) => assert_ne!(error.kind(), alluvion::ErrorKind::Misuse, "{error}"),
        }
    }

    alluvion::forward_resource!(|this| *this.ledger.resource(), except allocate, deallocate, id);

    fn id(&self) -> ResourceId {
        self.id
    }
}

// SAFETY: the blocks are those of the resource under the ledger.
unsafe impl<R: DeviceAccessible> DeviceAccessible for ByAddress<R> {}

alluvion::resource_suite!(ledger_over_cuda, |device| ByAddress::new(Cuda::new(device)));
alluvion::resource_suite!(ledger_over_cuda_async, |device| {
    Shadow::new(ByAddress::new(CudaAsync::new(device).expect("the device has pools")))
});
alluvion::resource_suite!(ledger_over_pool, |device| {
    let pool = Cuda::new(device).pool(PoolConfig::default().checked(true)).expect("a sound configuration");
    Shadow::new(ByAddress::new(pool))
});
