//! Where do blocks come from between an initialize and a finalize?

#![expect(unsafe_code, reason = "allocates and frees on streams that C names by bare numbers")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use alluvion::{Device, DevicePtr, Error, Layout, Ledger, Machine, MemoryInfo, Resource, StreamRef};

use super::log::{Log, Memory};
use super::options::Options;
use crate::boundary;
use crate::machine;
use crate::stream::{self, CudaStream};

/// What an initialize makes and a finalize ends: a stack a device, with a ledger in front of it, and the log.
#[derive(Debug)]
pub(super) struct Session {
    options: Options,
    machine: Machine,
    /// By the number of the device. Each is made when the device is first used.
    stacks: Box<[OnceLock<Ledger>]>,
    log: Option<Log>,
    /// A block that is allocated while this is set goes back at once.
    is_ended: AtomicBool,
    /// What was there before the first initialize. Its blocks are freed, and no more are allocated.
    earlier: Option<Arc<Session>>,
}

impl Session {
    /// Begins on the chosen machine, with the stack of the current device.
    pub(super) fn begin(options: Options) -> Result<Self, Error> {
        let device = machine::device(-1)?;
        let machine = device.machine().clone();
        let stacks: Box<[OnceLock<Ledger>]> = machine.devices().map(|_| OnceLock::new()).collect();
        let stack = Ledger::new(options.stack(&device, true)?);
        if let Some(place) = stacks.get(device.ordinal() as usize) {
            place.get_or_init(|| stack);
        }
        let log = options.has_log.then(Log::new);
        Ok(Self { options, machine, stacks, log, is_ended: AtomicBool::new(false), earlier: None })
    }

    /// Takes the blocks over that are out from before the first initialize.
    pub(super) fn take_over(&mut self, earlier: Arc<Session>) {
        if let Some(log) = &self.log {
            log.begin_with(earlier.live_blocks());
        }
        self.earlier = Some(earlier);
    }

    pub(super) fn options(&self) -> Options {
        self.options
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Makes a context current on the calling thread if none is. What needs one says why there is none.
    pub(super) fn ensure_context(&self) {
        let _ = self.machine.driver().ensure_context();
    }

    pub(super) fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    /// The stack of a device.
    pub(super) fn ledger(&self, device: &Device) -> Result<&Ledger, Error> {
        let Some(place) = self.stacks.get(device.ordinal() as usize) else {
            return Err(Error::invalid_argument("device", "the machine has no such device", "name another"));
        };
        if let Some(ledger) = place.get() {
            return Ok(ledger);
        }
        // Made before it is put in, so that no thread waits for a driver call of another. Such a stack takes no memory when it is
        // made.
        let made = Ledger::new(self.options.stack(device, false)?);
        Ok(place.get_or_init(|| made))
    }

    /// Allocates a block on a device. `None` if the session has ended meanwhile.
    ///
    /// # Safety
    ///
    /// `stream` is a live stream of the machine, or names a default stream.
    pub(super) unsafe fn allocate(
        &self,
        device: &Device,
        layout: Layout,
        stream: CudaStream,
    ) -> Result<Option<DevicePtr>, Error> {
        let ledger = self.ledger(device)?;
        let allocate = |stream: StreamRef<'_>| {
            let block = ledger.allocate(layout, stream)?;
            // After the block was entered: `retire` sets this before it looks for blocks, so one of the two gives the block back.
            // Pairs with the store in `set_ended`.
            if self.is_ended.load(Ordering::SeqCst) {
                // SAFETY: nobody else has seen the block.
                let _gone = unsafe { ledger.free(block, stream) };
                return Ok(None);
            }
            Ok(Some(block))
        };
        // SAFETY: the caller's promise.
        unsafe { stream::with(device, stream, allocate) }
    }

    /// The stack that a block came from, and its size.
    pub(super) fn owner(&self, block: DevicePtr) -> Option<(&Ledger, usize)> {
        let of_this = self.ledgers().find_map(|ledger| {
            let found = ledger.containing(block).filter(|found| found.block == block)?;
            Some((ledger, found.layout.bytes()))
        });
        of_this.or_else(|| self.earlier.as_ref()?.owner(block))
    }

    fn ledgers(&self) -> impl Iterator<Item = &Ledger> {
        self.stacks.iter().filter_map(OnceLock::get)
    }

    /// The blocks that are out.
    pub(super) fn live_blocks(&self) -> usize {
        let earlier = self.earlier.as_ref().map_or(0, |earlier| earlier.live_blocks());
        self.ledgers().map(Ledger::live_blocks).sum::<usize>() + earlier
    }

    /// What a device has free, and in all.
    pub(super) fn memory_info(&self, device: &Device) -> Result<MemoryInfo, Error> {
        self.ledger(device)?.resource().memory_info()
    }

    /// The memory of a device for a row of the log: 0 if nobody asked, or nobody can say.
    pub(super) fn memory_for(&self, log: &Log, device: &Device) -> Memory {
        if !log.asks_memory() {
            return Memory::default();
        }
        let info = self.memory_info(device);
        info.map_or_else(
            |_| Memory::default(),
            |info| Memory { free: info.free_bytes, total: info.total_bytes },
        )
    }

    /// Lets no block out any more. `false`, and nothing has changed, if one is out and `is_forced` is not set.
    pub(super) fn retire(&self, is_forced: bool) -> bool {
        // Before the blocks are counted: see `allocate`.
        self.set_ended(true);
        if is_forced || self.live_blocks() == 0 {
            return true;
        }
        self.set_ended(false);
        false
    }

    fn set_ended(&self, is_ended: bool) {
        self.is_ended.store(is_ended, Ordering::SeqCst);
        if let Some(earlier) = &self.earlier {
            earlier.set_ended(is_ended);
        }
    }

    /// Gives the blocks back that are out, after the work of their devices. One of a device that cannot be waited for leaks. The
    /// stacks go with the last handle of the session.
    pub(super) fn end(&self) {
        for ledger in self.ledgers() {
            let out = ledger.outstanding();
            if out.is_empty() {
                continue;
            }
            // A device that is lost, or captures, does not say that its work is done. Plain blocks leak then; those of a pool go
            // with it, by a call of the driver that waits by itself or fails.
            if ledger.resource().device().synchronize().is_err() {
                continue;
            }
            for found in out {
                // Each by itself, so that a panic of one loses no other.
                boundary::contained((), || {
                    // SAFETY: the device has done all its work, and the program has given its blocks up.
                    let _gone = unsafe { ledger.free_sync(found.block) };
                });
            }
        }
        if let Some(earlier) = &self.earlier {
            earlier.end();
        }
    }
}
