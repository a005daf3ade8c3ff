//! Storages for cubecl: its pools take their pages from one.

#![expect(unsafe_code, reason = "allocates and frees memory of the device, as cubecl's own storage does")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cubecl_server::server::IoError;
use cubecl_server::storage::{ComputeStorage, StorageHandle, StorageId, StorageUtilization};
use cudarc::driver::{CudaContext, result};

/// Alignment of cubecl's storage for CUDA.
pub(crate) const ALIGNMENT: usize = 512;

/// The bytes that all storages of a peer hold together, and the most that they ever held.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    held: Arc<(AtomicU64, AtomicU64)>,
}

impl Tally {
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.held.1.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: u64) {
        let live = self.held.0.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.held.1.fetch_max(live, Ordering::Relaxed);
    }

    fn subtract(&self, bytes: u64) {
        self.held.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Where the pages of a storage are.
trait Memory: Send {
    fn take(&mut self, bytes: u64) -> Result<u64, IoError>;

    fn give_back(&mut self, address: u64);
}

/// Pages by their ids, as each storage of cubecl keeps them.
struct Book<M> {
    memory: M,
    pages: HashMap<StorageId, (u64, u64)>,
    /// Given back at the next flush.
    pending: Vec<StorageId>,
    allocated: u64,
    tally: Tally,
}

impl<M: Memory> Book<M> {
    fn new(memory: M, tally: &Tally) -> Self {
        Self { memory, pages: HashMap::new(), pending: Vec::new(), allocated: 0, tally: tally.clone() }
    }

    fn get(&self, handle: &StorageHandle) -> Result<u64, IoError> {
        let page = self.pages.get(&handle.id).map(|(address, _)| address + handle.offset());
        page.ok_or_else(|| IoError::StorageHandleNotFound {
            reason: format!("{} in this storage", handle.id).into(),
            backtrace: Default::default(),
        })
    }

    fn alloc(&mut self, bytes: u64) -> Result<StorageHandle, IoError> {
        // No bytes have an entry and no memory.
        let address = if bytes == 0 { 0 } else { self.memory.take(bytes)? };
        let id = StorageId::new();
        self.pages.insert(id, (address, bytes));
        self.allocated += bytes;
        self.tally.add(bytes);
        Ok(StorageHandle::new(id, StorageUtilization { offset: 0, size: bytes }))
    }

    fn flush(&mut self) {
        for id in self.pending.drain(..) {
            let Some((address, bytes)) = self.pages.remove(&id) else { continue };
            if bytes > 0 {
                self.memory.give_back(address);
            }
            self.allocated -= bytes;
            self.tally.subtract(bytes);
        }
    }
}

impl<M> Drop for Book<M> {
    fn drop(&mut self) {
        self.tally.subtract(self.allocated);
    }
}

macro_rules! storage {
    ($(#[$doc:meta])* $name:ident, $memory:ty) => {
        $(#[$doc])*
        pub(crate) struct $name(Book<$memory>);

        impl ComputeStorage for $name {
            type Resource = u64;

            fn alignment(&self) -> usize {
                ALIGNMENT
            }

            fn get(&mut self, handle: &StorageHandle) -> Result<u64, IoError> {
                self.0.get(handle)
            }

            fn alloc(&mut self, size: u64) -> Result<StorageHandle, IoError> {
                self.0.alloc(size)
            }

            fn dealloc(&mut self, id: StorageId) {
                self.0.pending.push(id);
            }

            fn flush(&mut self) {
                self.0.flush();
            }

            fn bytes_allocated(&self) -> u64 {
                self.0.allocated
            }
        }
    };
}

storage! {
    /// Pages without memory, which are counted.
    Counting, Nothing
}

storage! {
    /// Pages of the device: `cuMemAlloc` and `cuMemFree`, which is what cubecl's storage for CUDA does by default.
    DeviceMemory, Cuda
}

impl Counting {
    pub(crate) fn new(tally: &Tally) -> Self {
        Self(Book::new(Nothing { next: 1 << 60 }, tally))
    }
}

impl DeviceMemory {
    pub(crate) fn new(context: &Arc<CudaContext>, tally: &Tally) -> Self {
        Self(Book::new(Cuda { context: Arc::clone(context), pages: Vec::new() }, tally))
    }
}

struct Nothing {
    next: u64,
}

impl Memory for Nothing {
    fn take(&mut self, bytes: u64) -> Result<u64, IoError> {
        let address = self.next;
        self.next += bytes.next_multiple_of(ALIGNMENT as u64);
        Ok(address)
    }

    fn give_back(&mut self, _: u64) {}
}

struct Cuda {
    context: Arc<CudaContext>,
    pages: Vec<u64>,
}

impl Memory for Cuda {
    fn take(&mut self, bytes: u64) -> Result<u64, IoError> {
        let size = bytes;
        let out_of_memory = |_| IoError::OutOfMemory { size, backtrace: Default::default() };
        self.context.bind_to_thread().map_err(out_of_memory)?;
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the context is the thread's; the memory is freed by `give_back`, or when this is dropped.
        let address = unsafe { result::malloc_sync(size) }.map_err(out_of_memory)?;
        self.pages.push(address);
        Ok(address)
    }

    fn give_back(&mut self, address: u64) {
        let Some(at) = self.pages.iter().position(|page| *page == address) else { return };
        self.pages.swap_remove(at);
        // SAFETY: `malloc_sync` returned the address, and it has just left the list, so that nobody frees it again. No work of
        // this program uses memory of the device.
        if let Err(error) = unsafe { result::free_sync(address) } {
            eprintln!("note: a page of {address:#x} could not be freed: {error:?}");
        }
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        while let Some(&address) = self.pages.last() {
            self.give_back(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_counts_until_it_is_flushed() {
        let tally = Tally::default();
        let (mut first, mut second) = (Counting::new(&tally), Counting::new(&tally));
        let page = first.alloc(1000).expect("counting never fails");
        second.alloc(500).expect("counting never fails");
        first.dealloc(page.id);
        assert_eq!((first.bytes_allocated(), tally.peak_bytes()), (1000, 1500));
        assert!(first.get(&page).is_ok());
        first.flush();
        assert!(first.get(&page).is_err());
        assert_eq!((first.bytes_allocated(), second.bytes_allocated()), (0, 500));
        second.alloc(600).expect("counting never fails");
        assert_eq!(tally.peak_bytes(), 1500, "1100 are held");
        drop(second);
        first.alloc(1400).expect("counting never fails");
        assert_eq!(tally.peak_bytes(), 1500);
    }
}
