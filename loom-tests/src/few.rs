//! `Few`: an upstream that hands an address out again at once.

use std::fmt;

use alluvion::{Device, DeviceAccessible, DevicePtr, Error, Layout, Resource, ResourceId, StreamRef};
use loom::sync::Mutex;

use crate::Rig;

const UNIT: usize = 256;

/// What blocks are multiples of, and begin at.
#[derive(Clone, Copy, Debug)]
#[repr(align(256))]
struct Unit(#[expect(dead_code, reason = "it is written by address")] [u8; UNIT]);

/// Has a few addresses, and hands out the one that came back last.
#[derive(Debug)]
pub struct Few {
    rig: Rig,
    id: ResourceId,
    all: Vec<DevicePtr>,
    /// What is behind the addresses, if anything is.
    _memory: Vec<Box<[Unit]>>,
    free: Mutex<Vec<DevicePtr>>,
}

impl Few {
    /// So many, far apart, each `offset` bytes behind a multiple of every alignment.
    ///
    /// # Panics
    ///
    /// Never: no address is null.
    #[must_use]
    pub fn new(count: u64, offset: u64) -> Self {
        let address = |at| DevicePtr::new((at << 40) + offset).expect("it is not null");
        Self::at((1..=count).map(address).collect(), Vec::new())
    }

    /// So many, with so many bytes of memory behind each.
    ///
    /// # Panics
    ///
    /// Never: no address is null.
    #[must_use]
    pub fn with_memory(count: usize, bytes: usize) -> Self {
        let block = || vec![Unit([0; UNIT]); bytes.div_ceil(UNIT)].into_boxed_slice();
        let mut memory: Vec<_> = std::iter::repeat_with(block).take(count).collect();
        let address = |block: &mut Box<[Unit]>| DevicePtr::new(block.as_mut_ptr().expose_provenance() as u64);
        let all = memory.iter_mut().map(|block| address(block).expect("it is not null")).collect();
        Self::at(all, memory)
    }

    fn at(all: Vec<DevicePtr>, memory: Vec<Box<[Unit]>>) -> Self {
        Self {
            rig: Rig::new(),
            id: ResourceId::unique(),
            free: Mutex::new(all.clone()),
            all,
            _memory: memory,
        }
    }

    /// The machine.
    #[must_use]
    pub fn rig(&self) -> &Rig {
        &self.rig
    }

    /// How many are not out.
    ///
    /// # Panics
    ///
    /// Never: nobody panics who has the lock.
    #[must_use]
    pub fn free_count(&self) -> usize {
        self.free.lock().unwrap().len()
    }
}

// SAFETY: an address is in the list or out, and nobody else touches the memory, if there is any.
unsafe impl Resource for Few {
    fn allocate(&self, layout: Layout, _: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.allocate_sync(layout)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, _: StreamRef<'_>) {
        // SAFETY: the caller's promises.
        unsafe { self.deallocate_sync(block, layout) };
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.free.lock().unwrap().pop().ok_or_else(|| Error::out_of_memory(layout.bytes()))
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, _: Layout) {
        assert!(self.all.contains(&block), "it did not begin there");
        self.free.lock().unwrap().push(block);
    }

    fn device(&self) -> &Device {
        &self.rig.device
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Few")
    }
}

// SAFETY: as above.
unsafe impl DeviceAccessible for Few {}
