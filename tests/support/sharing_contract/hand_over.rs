//! A hand-over, in each of the three ways.

use alluvion::driver::Code;

use super::DESCRIPTOR;
use super::process::{Handle, Lent, Process};
use super::worker::Op;

/// Whole pages of every machine, and whole blocks of plain memory: the driver lends no neighbours with them.
pub(crate) const BYTES: u64 = 4 << 20;

/// How memory is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Plain memory, by a handle.
    Legacy,
    /// A pool by a descriptor, and its block by a handle.
    Pool,
    /// Pages, by a descriptor.
    Pages,
}

pub(crate) const EVERY_WAY: [Way; 3] = [Way::Legacy, Way::Pool, Way::Pages];

/// Memory that a process lends, and what the others are to get.
pub(crate) struct Offered {
    way: Way,
    pub(crate) address: u64,
    /// The pool, or the pages.
    pub(crate) holder: u64,
    pub(crate) event: u64,
    pub(crate) lent: Option<Lent>,
    pub(crate) handle: Handle,
    pub(crate) event_handle: Handle,
}

/// The same, where it has come to.
pub(crate) struct Taken {
    way: Way,
    pub(crate) address: u64,
    pub(crate) holder: u64,
    pub(crate) event: u64,
}

/// Lends memory that is filled with `byte`, by work that may be under way: the event is behind it.
#[track_caller]
pub(crate) fn offer(lender: &Process, way: Way, byte: u8) -> Offered {
    let (holder, address) = match way {
        Way::Legacy => (0, lender.must(Op::Allocate, [BYTES, 0, 0])),
        Way::Pool => {
            let pool = lender.must(Op::PoolCreate, [DESCRIPTOR.into(), 0, 0]);
            (pool, lender.must(Op::AllocateAsync, [pool, BYTES, 0]))
        }
        Way::Pages => {
            let memory = lender.must(Op::MemoryCreate, [BYTES, DESCRIPTOR.into(), 0]);
            (memory, lender.must(Op::Map, [memory, BYTES, 0]))
        }
    };
    lender.must(Op::Fill, [address, byte.into(), BYTES]);
    let event = lender.must(Op::SharedEvent, [0; 3]);
    lender.must(Op::EventRecord, [event, 0, 0]);
    let event_handle = lender.handle(Op::EventHandle, event).expect("the event was made for it");
    let (lent, handle) = match way {
        Way::Legacy => (None, lender.handle(Op::MemoryHandle, address)),
        Way::Pool => (
            Some(lender.export(Op::PoolExport, holder, DESCRIPTOR).expect("the pool was made for it")),
            lender.handle(Op::PoolExportPointer, address),
        ),
        Way::Pages => (
            Some(lender.export(Op::MemoryExport, holder, DESCRIPTOR).expect("the pages were made for it")),
            Ok([0; 64]),
        ),
    };
    let handle = handle.expect("the memory can be lent");
    Offered { way, address, holder, event, lent, handle, event_handle }
}

/// Takes the memory, and the event. What has been taken before something fails stays.
pub(crate) fn take(borrower: &Process, offered: &Offered) -> Result<Taken, Code> {
    let way = offered.way;
    let event = borrower.open(Op::EventOpen, 0, &offered.event_handle)?;
    let (holder, address) = take_memory(borrower, offered)?;
    Ok(Taken { way, address, holder, event })
}

/// The memory alone: what holds it, and its address.
pub(crate) fn take_memory(borrower: &Process, offered: &Offered) -> Result<(u64, u64), Code> {
    let import = |op| borrower.import(op, offered.lent.as_ref().expect("it is lent that way"));
    match offered.way {
        Way::Legacy => Ok((0, borrower.open(Op::MemoryOpen, 0, &offered.handle)?)),
        Way::Pool => {
            let pool = import(Op::PoolImport)?;
            Ok((pool, borrower.open(Op::PoolImportPointer, pool, &offered.handle)?))
        }
        Way::Pages => {
            let memory = import(Op::MemoryImport)?;
            Ok((memory, borrower.ask(Op::Map, [memory, BYTES, 0])?))
        }
    }
}

/// Waits for what uses the memory, and gives it back.
#[track_caller]
pub(crate) fn give_back(borrower: &Process, taken: &Taken) {
    borrower.must(Op::Synchronize, [0; 3]);
    match taken.way {
        Way::Legacy => {
            borrower.must(Op::MemoryClose, [taken.address, 0, 0]);
        }
        Way::Pool | Way::Pages => let_go(borrower, taken.way, taken.holder, taken.address),
    }
    borrower.must(Op::EventDestroy, [taken.event, 0, 0]);
}

/// Frees what was lent, when nobody has it any more.
#[track_caller]
pub(crate) fn end(lender: &Process, offered: &Offered) {
    lender.must(Op::Synchronize, [0; 3]);
    match offered.way {
        Way::Legacy => {
            lender.must(Op::Free, [offered.address, 0, 0]);
        }
        Way::Pool | Way::Pages => let_go(lender, offered.way, offered.holder, offered.address),
    }
    lender.must(Op::EventDestroy, [offered.event, 0, 0]);
}

/// What both sides do alike.
#[track_caller]
fn let_go(process: &Process, way: Way, holder: u64, address: u64) {
    if way == Way::Pool {
        process.must(Op::FreeAsync, [address, 0, 0]);
        process.must(Op::Synchronize, [0; 3]);
        process.must(Op::PoolDestroy, [holder, 0, 0]);
    } else {
        process.must(Op::Unmap, [address, BYTES, 0]);
        process.must(Op::MemoryRelease, [holder, 0, 0]);
    }
}
