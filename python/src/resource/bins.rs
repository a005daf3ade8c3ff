//! `Bins`: the layer of `BinningMemoryResource`, which takes more bins at any time.

#![expect(unsafe_code, reason = "implements the contract of resources")]

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError, RwLock};

use alluvion::driver::MemoryInfo;
use alluvion::{
    AnyResource, Device, DeviceAccessible, DevicePtr, Error, Layout, Resource, ResourceId, StreamRef,
};

/// How many locks the addresses are spread over.
const SHELVES: usize = 16;

/// Sends each request to the smallest bin that serves its size, and the others to the upstream.
///
/// Bins come at any time, so the size of a block does not say where it came from: the address of each block is kept, with the
/// resource that it goes back to.
pub(super) struct Bins {
    upstream: AnyResource,
    id: ResourceId,
    /// By size; of two of one size, the first that was added stands first.
    bins: RwLock<Vec<(usize, AnyResource)>>,
    places: [Mutex<HashMap<u64, AnyResource>>; SHELVES],
}

impl Bins {
    /// No bins over `upstream`.
    pub(super) fn over(upstream: AnyResource) -> Self {
        Self {
            upstream,
            id: ResourceId::unique(),
            bins: RwLock::default(),
            places: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Has `bin` serve requests of up to `bytes` bytes.
    ///
    /// # Errors
    ///
    /// If the bin is on another device, or of no size.
    pub(super) fn add(&self, bytes: usize, bin: AnyResource) -> Result<(), Error> {
        let (wanted, given) = (self.upstream.device(), bin.device());
        if wanted != given {
            return Err(Error::device_mismatch(wanted.ordinal(), given.ordinal()));
        }
        let bytes = whole_units(bytes)?;
        let mut bins = self.bins.write().unwrap_or_else(PoisonError::into_inner);
        let place = bins.partition_point(|(other, _)| *other <= bytes);
        bins.insert(place, (bytes, bin));
        Ok(())
    }

    /// Whether there is a bin of this size.
    pub(super) fn has(&self, bytes: usize) -> bool {
        let bytes = whole_units(bytes);
        let bins = self.bins.read().unwrap_or_else(PoisonError::into_inner);
        bytes.is_ok_and(|bytes| bins.iter().any(|(other, _)| *other == bytes))
    }

    /// The resource that serves a size now. A handle, so that no lock is held while it is called.
    fn of_size(&self, bytes: usize) -> AnyResource {
        let bins = self.bins.read().unwrap_or_else(PoisonError::into_inner);
        let bin = bins.iter().find(|(largest, _)| bytes <= *largest);
        bin.map_or(&self.upstream, |(_, bin)| bin).clone()
    }

    fn shelf(&self, block: DevicePtr) -> &Mutex<HashMap<u64, AnyResource>> {
        // Blocks are multiples of 256, so the bits above these differ.
        &self.places[(block.address() >> 8) as usize % SHELVES]
    }

    fn keep(&self, block: DevicePtr, layout: Layout, of: AnyResource) {
        if !layout.is_empty() {
            let mut places = self.shelf(block).lock().unwrap_or_else(PoisonError::into_inner);
            let stale = places.insert(block.address(), of);
            drop(places);
            drop(stale);
        }
    }

    /// The resource that a block came from.
    fn take(&self, block: DevicePtr, layout: Layout) -> AnyResource {
        let mut places = self.shelf(block).lock().unwrap_or_else(PoisonError::into_inner);
        let known = if layout.is_empty() { None } else { places.remove(&block.address()) };
        drop(places);
        known.unwrap_or_else(|| self.of_size(layout.bytes()))
    }
}

/// The size of a bin in whole units.
fn whole_units(bytes: usize) -> Result<usize, Error> {
    if bytes == 0 {
        return Err(Error::invalid_argument("a bin of 0 bytes", "it serves no request", "pass 1 or more"));
    }
    Ok(Layout::from_bytes(bytes)?.rounded_bytes())
}

fn require_align(layout: Layout) -> Result<(), Error> {
    if layout.align() <= Layout::MIN_ALIGN {
        return Ok(());
    }
    Err(Error::unsupported_alignment(layout.align(), Layout::MIN_ALIGN))
}

// SAFETY: every block comes from one resource, which keeps the contract, and goes back to it: its address is kept from the moment that
// it is handed out until it is freed, and no two live blocks share an address. Only the value itself has its id.
unsafe impl Resource for Bins {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        require_align(layout)?;
        let of = self.of_size(layout.bytes());
        let block = of.allocate(layout, stream)?;
        self.keep(block, layout, of);
        Ok(block)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        // SAFETY: the block came from this resource, by the address that was kept; the rest is the caller's promise.
        unsafe { self.take(block, layout).deallocate(block, layout, stream) };
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        require_align(layout)?;
        let of = self.of_size(layout.bytes());
        let block = of.allocate_sync(layout)?;
        self.keep(block, layout, of);
        Ok(block)
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        // SAFETY: as in `deallocate`.
        unsafe { self.take(block, layout).deallocate_sync(block, layout) };
    }

    fn allocate_at_once(&self, layout: Layout, stream: StreamRef<'_>) -> Option<DevicePtr> {
        require_align(layout).ok()?;
        let of = self.of_size(layout.bytes());
        let block = of.allocate_at_once(layout, stream)?;
        self.keep(block, layout, of);
        Some(block)
    }

    unsafe fn deallocate_at_once(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) -> bool {
        let of = self.take(block, layout);
        // SAFETY: as in `deallocate`.
        let is_free = unsafe { of.deallocate_at_once(block, layout, stream) };
        if !is_free {
            self.keep(block, layout, of);
        }
        is_free
    }

    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bins = self.bins.read().unwrap_or_else(PoisonError::into_inner);
        write!(f, "Binning({} bins)", bins.len())
    }

    fn max_align(&self) -> usize {
        Layout::MIN_ALIGN
    }

    fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
        let bins: Vec<AnyResource> = {
            let bins = self.bins.read().unwrap_or_else(PoisonError::into_inner);
            bins.iter().rev().map(|(_, bin)| bin.clone()).collect()
        };
        let mut gone = 0;
        for bin in bins {
            gone += bin.trim(keep_bytes)?;
        }
        Ok(gone.max(self.upstream.trim(keep_bytes)?))
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        self.upstream.memory_info()
    }

    fn upstream(&self) -> Option<&dyn Resource> {
        Some(&self.upstream)
    }
}

// SAFETY: its blocks are those of the bins and of the upstream, which are accessible to the device.
unsafe impl DeviceAccessible for Bins {}
