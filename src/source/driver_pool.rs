//! `DriverPool`: a memory pool of the driver, shared code of every source over one.

#![expect(unsafe_code, reason = "hands a live pool to the driver")]

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Weak;

use super::exporting::{handle_type_of, refused_export, sharing_of};
use super::postponed_frees::PostponedFrees;
use super::refusal;
use crate::device::Device;
use crate::driver::{
    Call, Code, DriverError, DriverResult, ExportedMemory, HandleType, MemoryInfo, PoolAttribute, RawPool,
    RawStream, RelaxedCapture,
};
use crate::error::Error;
use crate::resource::{DevicePtr, Export, Layout, ResourceId};
use crate::stream::StreamRef;
use crate::sync::{Arc, Mutex};

/// A pool that lives at least as long as this value is used, which does not destroy it.
#[derive(Clone)]
pub(super) struct DriverPool {
    device: Device,
    raw: RawPool,
    /// The source that made or found it.
    source: &'static str,
    /// The most bytes that it holds, `usize::MAX` if nobody said.
    maximum_bytes: usize,
    /// Set once the driver has said that the pool is gone, for a pool whose owner may destroy it; `None` for a pool that lives.
    is_gone: Option<Arc<AtomicBool>>,
    /// It is of managed memory.
    is_managed: bool,
    postponed: Arc<PostponedFrees>,
    /// The handle types that it was made for, as far as that is known.
    handle_types: HandleType,
    /// What stands for it in other processes, while somebody has it.
    exported: Arc<Mutex<Weak<ExportedMemory>>>,
}

impl DriverPool {
    /// `source` is the name of the source, for errors.
    ///
    /// # Safety
    ///
    /// `raw` is a pool of `device`, and lives until the last use of the returned value and of its clones.
    pub(super) unsafe fn new(source: &'static str, device: &Device, raw: RawPool) -> Self {
        let (maximum_bytes, is_gone, is_managed) = (usize::MAX, None, false);
        let (handle_types, exported) = (HandleType::NONE, Arc::default());
        let (device, postponed) = (device.clone(), Arc::default());
        Self { device, raw, source, maximum_bytes, is_gone, is_managed, postponed, handle_types, exported }
    }

    /// As [`new`](Self::new), for a pool that may be destroyed.
    ///
    /// # Safety
    ///
    /// `raw` was made as a pool of `device`. It is not destroyed during a call of the returned value or its clones, and later calls
    /// with its handle make the driver fail, and do no harm.
    pub(super) unsafe fn until_destroyed(source: &'static str, device: &Device, raw: RawPool) -> Self {
        // SAFETY: the caller's promises: as long as the pool lives they are those of `new`, and afterwards calls fail.
        let pool = unsafe { Self::new(source, device, raw) };
        Self { is_gone: Some(Arc::default()), ..pool }
    }

    fn require_pool(&self, call: Call, bytes: usize) -> Result<(), Error> {
        match &self.is_gone {
            // Relaxed: a hint; nothing is read by it.
            Some(is_gone) if is_gone.load(Ordering::Relaxed) => {
                Err(gone(DriverError::new(call, Code::INVALID_VALUE), bytes))
            }
            _ => Ok(()),
        }
    }

    /// Notes that the pool is gone, if that is why the driver has refused its handle.
    fn explain(&self, error: DriverError, bytes: usize) -> Option<Error> {
        let is_gone = self.is_gone.as_ref()?;
        let refuses_handle = |code| matches!(code, Code::INVALID_VALUE | Code::INVALID_HANDLE);
        if !refuses_handle(error.code) {
            return None;
        }
        // A call that is right whenever there is a pool: if its handle is refused here too, there is none.
        let driver = &**self.device.driver();
        // SAFETY: as in `attribute`.
        let asked =
            unsafe { driver.pool_attribute(self.device.ordinal(), self.raw, PoolAttribute::ReservedCurrent) };
        if !asked.is_err_and(|asked| refuses_handle(asked.code)) {
            return None;
        }
        // Relaxed: as above.
        is_gone.store(true, Ordering::Relaxed);
        Some(gone(error, bytes))
    }

    /// The result of a call with the handle of the pool.
    fn explained<T>(&self, answer: DriverResult<T>) -> Result<T, Error> {
        answer.map_err(|error| self.explain(error, 0).unwrap_or_else(|| error.into()))
    }

    /// The pool was made for these handle types.
    pub(super) fn exported_as(mut self, handle_types: HandleType) -> Self {
        self.handle_types = handle_types;
        self
    }

    /// What stands for the pool in other processes: made once, for all of its blocks.
    fn export_once(&self) -> Result<Arc<ExportedMemory>, Error> {
        self.exported.require_same_process()?;
        if let Some(exported) = self.exported.lock().upgrade() {
            return Ok(exported);
        }
        let handle_type = handle_type_of(self.handle_types)?;
        // SAFETY: the pool is live, or the call fails: the constructor's caller promised it.
        let made =
            unsafe { sharing_of(&self.device)?.pool_export(self.device.ordinal(), self.raw, handle_type) };
        let made = Arc::new(made.map_err(refused_export)?);
        // Not made under the lock, because that would be a driver call under a lock. Two threads may make two.
        *self.exported.lock() = Arc::downgrade(&made);
        Ok(made)
    }

    /// # Safety
    ///
    /// As [`Resource::export`](crate::Resource::export), for a block of this pool.
    pub(super) unsafe fn export(&self, block: DevicePtr, layout: Layout) -> Result<Export, Error> {
        if layout.is_empty() {
            return Ok(Export::of_nothing());
        }
        let sharing = sharing_of(&self.device)?;
        let _relaxed = RelaxedCapture::enter(&**self.device.driver())?;
        let pool = self.export_once()?;
        // SAFETY: the block is live, and of this pool, which exports: the caller's promise, and the call above.
        let handle = unsafe { sharing.pool_export_pointer(self.device.ordinal(), block.address()) };
        Ok(Export::of_pool(pool, handle.map_err(refused_export)?, block.address(), layout.bytes()))
    }

    /// The pool is of managed memory.
    pub(super) fn of_managed_memory(mut self) -> Self {
        self.is_managed = true;
        self
    }

    /// Refuses a request that a pool of managed memory has to grow for while its device has no room.
    ///
    /// Driver 580 does not look whether such a pool could grow, and reads a null pointer where it could not: with 3 MiB free each of four
    /// programs on an H200 ended so, with 25 MiB two of eight, with 105 MiB none of eight. Managed pages count as taken and make room for others,
    /// so where little is free, some is asked for. That makes the end rare and not impossible: another process or thread may take the
    /// room, or what is spare, in the moment between, and what is spare may lie in pieces, or still be in use by another stream.
    fn require_room_to_grow(&self, layout: Layout) -> Result<(), Error> {
        // More than twice what kept every program alive.
        const PLENTY: usize = 256 << 20;
        // More than was free where programs ended. How much a growth takes is not known.
        const SOME: usize = 32 << 20;
        let (driver, ordinal) = (&**self.device.driver(), self.device.ordinal());
        let number_of = |attribute| {
            // SAFETY: the pool is live, or the call fails: the constructor's caller promised it.
            unsafe { driver.pool_attribute(ordinal, self.raw, attribute) }
        };
        let spare =
            number_of(PoolAttribute::ReservedCurrent)?.saturating_sub(number_of(PoolAttribute::UsedCurrent)?);
        if spare >= layout.bytes() as u64 || driver.memory_info(ordinal)?.free_bytes >= PLENTY {
            return Ok(());
        }
        match driver.memory_create(ordinal, SOME, HandleType::NONE) {
            Ok(memory) => {
                // SAFETY: it was made just now, and is mapped nowhere. A failure leaks it.
                let _ = unsafe { driver.memory_release(ordinal, memory) };
                Ok(())
            }
            Err(error) if error.code == Code::OUT_OF_MEMORY => {
                // Without what is free, which may be more than the request, and is too little for the pool to grow.
                let free = || Err(Error::of_driver(error, SOME));
                Err(refusal::failed(self.source, &self.device, layout, error, free))
            }
            // A device without such memory cannot be asked.
            Err(_) => Ok(()),
        }
    }

    /// The pool was made with this maximum, where 0 is none.
    pub(super) fn at_most(mut self, bytes: u64) -> Self {
        self.maximum_bytes =
            if bytes == 0 { usize::MAX } else { usize::try_from(bytes).unwrap_or(usize::MAX) };
        self
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn raw(&self) -> RawPool {
        self.raw
    }

    /// The same id for all resources over one pool of the driver, of any type.
    pub(super) fn id(&self) -> ResourceId {
        ResourceId::shared::<RawPool>(&self.device, self.raw.0)
    }

    pub(super) fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.device.require(stream.device())?;
        layout.require_align(Layout::MIN_ALIGN)?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        self.retry_postponed();
        self.require_pool(Call::AllocateAsync, layout.bytes())?;
        let driver = &**self.device.driver();
        let _relaxed = RelaxedCapture::enter(driver)?;
        if self.is_managed {
            self.require_room_to_grow(layout)?;
        }
        // SAFETY:
        // - the pool is live, or the call fails: the constructor's caller promised it.
        // - the stream is live, because it is borrowed, and of this device: compared above.
        let answer =
            unsafe { driver.allocate_async(self.device.ordinal(), layout.bytes(), self.raw, stream.raw()) };
        if let Err(error) = answer
            && let Some(error) = self.explain(error, layout.bytes())
        {
            return Err(error);
        }
        refusal::block_of(self.source, &self.device, layout, answer, || self.memory_info())
    }

    /// # Safety
    ///
    /// As [`Resource::deallocate`](crate::Resource::deallocate), for a block of this pool.
    pub(super) unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        if layout.is_empty() {
            return;
        }
        let driver = &**self.device.driver();
        // During a capture of a stream that it is ordered with, the legacy stream takes no work, and a free would break that
        // capture. The query breaks nothing. Other streams need no query: they take the free, or refuse it and continue the
        // capture.
        let legacy = stream.raw() == RawStream::LEGACY;
        if legacy && stream.is_capturing().is_err_and(|error| error.is_capture()) {
            // SAFETY: the caller's promises, and the block was not freed.
            unsafe { self.postponed.add(block, stream) };
            return;
        }
        let _relaxed = RelaxedCapture::attempt(driver);
        // SAFETY:
        // - the block came from this pool, and its uses come before this point of the stream: the caller's promises.
        // - the stream is live, because it is borrowed, and of this device: the caller's promise.
        let freed = unsafe { driver.free_async(self.device.ordinal(), block.address(), stream.raw()) };
        if freed.is_err() && stream.is_capturing().unwrap_or(false) {
            // SAFETY: the caller's promises, as above, and the driver has not freed it.
            unsafe { self.postponed.add(block, stream) };
        } else {
            refusal::of_free(freed, block, layout);
            self.retry_postponed();
        }
    }

    /// Frees the blocks whose frees were postponed because their stream captured.
    pub(super) fn retry_postponed(&self) {
        self.postponed.retry(&self.device);
    }

    pub(super) fn attribute(&self, attribute: PoolAttribute) -> Result<u64, Error> {
        self.require_pool(Call::PoolAttribute, 0)?;
        let driver = &**self.device.driver();
        let _relaxed = RelaxedCapture::enter(driver)?;
        // SAFETY: the pool is live, or the call fails: the constructor's caller promised it.
        self.explained(unsafe { driver.pool_attribute(self.device.ordinal(), self.raw, attribute) })
    }

    /// An attribute that is a number of bytes.
    pub(super) fn bytes(&self, attribute: PoolAttribute) -> Result<usize, Error> {
        self.retry_postponed();
        Ok(usize::try_from(self.attribute(attribute)?).unwrap_or(usize::MAX))
    }

    pub(super) fn set_attribute(&self, attribute: PoolAttribute, value: u64) -> Result<(), Error> {
        let driver = &**self.device.driver();
        let _relaxed = RelaxedCapture::enter(driver)?;
        // SAFETY: the pool is live: `new`'s caller promised it.
        Ok(unsafe { driver.pool_set_attribute(self.device.ordinal(), self.raw, attribute, value) }?)
    }

    /// Returns how much less the pool holds afterwards, at least 0: other threads may allocate meanwhile.
    pub(super) fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
        let before = self.bytes(PoolAttribute::ReservedCurrent)?;
        {
            let driver = &**self.device.driver();
            let _relaxed = RelaxedCapture::enter(driver)?;
            // SAFETY: the pool is live, or the call fails: the constructor's caller promised it.
            self.explained(unsafe { driver.pool_trim(self.device.ordinal(), self.raw, keep_bytes) })?;
        }
        Ok(before.saturating_sub(self.bytes(PoolAttribute::ReservedCurrent)?))
    }

    /// The free memory of the device, plus the memory that the pool holds and has not handed out; no more than its maximum leaves.
    pub(super) fn memory_info(&self) -> Result<MemoryInfo, Error> {
        let info = self.device.memory_info()?;
        let reserved = self.bytes(PoolAttribute::ReservedCurrent)?;
        let used = self.bytes(PoolAttribute::UsedCurrent)?;
        let total_bytes = info.total_bytes.min(self.maximum_bytes);
        let free_bytes = info.free_bytes.saturating_add(reserved.saturating_sub(used)).min(info.total_bytes);
        Ok(MemoryInfo { free_bytes: free_bytes.min(total_bytes.saturating_sub(used)), total_bytes })
    }

    pub(super) fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{name}({})", self.device)
    }
}

#[cold]
fn gone(error: DriverError, bytes: usize) -> Error {
    let why = "the owner of the memory pool has destroyed it: make another pool, and a view of that one";
    Error::of_driver_that(error, bytes, why.to_owned())
}

/// The methods that are the same for every resource over a pool, which is in its field `pool`. The attributes are for `trim`,
/// whose docs differ.
macro_rules! draw_on_pool {
    ($(#[$trim:meta])*) => {
        #[inline]
        fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
            self.pool.allocate(layout, stream)
        }

        #[inline]
        unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
            // SAFETY: the caller's promises; a block of a resource with this id is a block of this pool.
            unsafe { self.pool.deallocate(block, layout, stream) }
        }

        fn device(&self) -> &Device {
            self.pool.device()
        }

        fn id(&self) -> ResourceId {
            self.pool.id()
        }

        $(#[$trim])*
        fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
            self.pool.trim(keep_bytes)
        }

        fn memory_info(&self) -> Result<MemoryInfo, Error> {
            self.pool.memory_info()
        }

        unsafe fn export(
            &self,
            block: DevicePtr,
            layout: Layout,
        ) -> Result<$crate::resource::Export, Error> {
            // SAFETY: the caller's promises; a block of a resource with this id is a block of this pool.
            unsafe { self.pool.export(block, layout) }
        }
    };
}
pub(super) use draw_on_pool;
