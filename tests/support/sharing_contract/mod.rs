//! The contract of `Sharing` between processes, clause by clause, for any machine.
//!
//! `clauses!` makes a test of each. The processes are children with a driver of their own, or simulated ones, and do what they are told
//! through a socket: each clause reads from the first line to the last as what happens. What the contract leaves to the driver is
//! printed as a *fact*.

#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "each machine's tests use this module on their own"
)]
#![expect(unsafe_code, reason = "calls the driver, and sends descriptors")]

mod bytes;
mod ends;
pub(crate) mod hand_over;
pub(crate) mod process;
pub(crate) mod wire;
pub(crate) mod worker;

pub(crate) use bytes::*;
pub(crate) use ends::*;

use std::thread;
use std::time::{Duration, Instant};

use alluvion::driver::{Code, DeviceAttribute, Driver, HandleType};
use hand_over::{BYTES, EVERY_WAY, Way, end, give_back, offer, take};
use process::{CRASHED, HANGS, Lent, Process};
use worker::Op;

/// The device of every process.
pub(crate) const GPU: u32 = 0;
/// The numbers of the ways to export.
pub(crate) const DESCRIPTOR: u32 = HandleType::POSIX_FILE_DESCRIPTOR.0;
pub(crate) const FABRIC: u32 = HandleType::FABRIC.0;
/// What a dead process had comes back when the kernel has taken its context down. A hundred times what that takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A machine, and processes on it.
pub(crate) struct Stage<'a> {
    /// This process's own view of the machine, for questions.
    pub(crate) driver: &'a dyn Driver,
    pub(crate) start: &'a dyn Fn() -> Process,
}

impl Stage<'_> {
    pub(crate) fn process(&self) -> Process {
        let process = (self.start)();
        // The first call makes its context.
        process.must(Op::Synchronize, [0; 3]);
        process
    }

    /// One that lends, and one that borrows.
    pub(crate) fn two(&self) -> (Process, Process) {
        (self.process(), self.process())
    }

    /// The ways that the machine has.
    pub(crate) fn ways(&self) -> impl Iterator<Item = Way> {
        let ask = |attribute| self.driver.attribute(GPU, attribute).expect("it can be asked for");
        let has_pools = ask(DeviceAttribute::PoolHandleTypes) as u32 & DESCRIPTOR != 0;
        let has_pages = ask(DeviceAttribute::VirtualMemory) == 1;
        EVERY_WAY.into_iter().filter(move |way| match way {
            Way::Legacy => true,
            Way::Pool => has_pools,
            Way::Pages => has_pages,
        })
    }

    fn free_bytes(&self) -> usize {
        self.driver.memory_info(GPU).expect("it knows").free_bytes
    }

    /// Runs `body`, whose processes end with it, and waits until the device has as much memory as before.
    pub(crate) fn leaves_nothing(&self, body: impl FnOnce()) {
        let before = self.free_bytes();
        body();
        let begun = Instant::now();
        while self.free_bytes() < before {
            let after = self.free_bytes();
            assert!(begun.elapsed() < PATIENCE, "{before} bytes were free before, and {after} are now");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Prints what the driver does where the contract leaves it to it. A process that crashes or hangs is no answer.
#[track_caller]
pub(crate) fn fact(what: &str, result: Result<u64, Code>) -> Result<u64, Code> {
    match result {
        Ok(value) => println!("fact: {what}: done ({value:#x})"),
        Err(CRASHED) => println!("fact: {what}: the process ends"),
        Err(HANGS) => println!("fact: {what}: the process hangs"),
        Err(code) => println!("fact: {what}: {code}"),
    }
    assert!(!matches!(result, Err(CRASHED | HANGS)), "{what}");
    result
}

/// What must be refused with this code, which is that of driver 580 on an H200.
#[track_caller]
pub(crate) fn refused_as(what: &str, result: Result<u64, Code>, code: Code) {
    assert_eq!(fact(what, result), Err(code), "{what}");
}

/// What must be refused, with whatever code.
#[track_caller]
pub(crate) fn refused(what: &str, result: Result<u64, Code>) {
    assert!(fact(what, result).is_err(), "{what}");
}

/// Makes a test of each clause. `$machine` hands a `&Stage` to it.
macro_rules! clauses {
    ($machine:path) => {
        $crate::sharing_contract::clauses! { $machine:
            a_device_has_one_name_everywhere
            what_one_process_writes_the_other_reads
            a_borrower_waits_for_the_lender
            what_is_opened_twice_is_one_memory
            blocks_are_opened_where_they_begin
            a_process_does_not_open_what_it_lends
            what_was_not_made_for_it_is_not_lent
            an_imported_pool_does_not_allocate
            pages_live_while_a_descriptor_is_open
            pages_of_several_descriptors_lie_side_by_side
            fabric_handles_are_lent_or_refused
            descriptors_are_given_back
            bytes_of_elsewhere_are_refused
            handles_with_a_wrong_byte_do_no_harm
            descriptors_of_elsewhere_are_refused
            what_is_gone_is_not_opened
            a_lender_may_leave_first
            a_lender_may_be_killed
            a_wait_for_a_lender_that_is_killed_never_ends
            the_event_of_a_lender_that_is_killed_never_comes
            a_borrower_may_leave_or_be_killed_at_every_step
            a_hundred_processes_are_killed
        }
    };
    ($machine:path: $($clause:ident)+) => {
        $(#[test] fn $clause() { $machine($crate::sharing_contract::$clause); })+
    };
}
pub(crate) use clauses;

pub(crate) fn a_device_has_one_name_everywhere(stage: &Stage<'_>) {
    let (one, other) = stage.two();
    let uuid = one.handle(Op::Uuid, 0).expect("the device has one");
    assert_ne!(uuid[..16], [0; 16]);
    assert_eq!(other.handle(Op::Uuid, 0), Ok(uuid));
    let sharing = stage.driver.sharing().expect("the machine shares memory");
    assert_eq!(sharing.device_uuid(GPU).expect("it has one"), uuid[..16]);
}

pub(crate) fn what_one_process_writes_the_other_reads(stage: &Stage<'_>) {
    for way in stage.ways() {
        stage.leaves_nothing(|| {
            let (lender, borrower) = stage.two();
            let offered = offer(&lender, way, 0xA1);
            let taken = take(&borrower, &offered).unwrap_or_else(|code| panic!("{way:?}: {code}"));
            borrower.must(Op::StreamWait, [taken.event, 0, 0]);
            assert_eq!(borrower.read(taken.address, BYTES), 0xA1, "{way:?}");
            borrower.write(taken.address, 0xB2, BYTES);
            assert_eq!(lender.read(offered.address, BYTES), 0xB2, "{way:?}");
            give_back(&borrower, &taken);
            assert_eq!(lender.read(offered.address, BYTES), 0xB2, "{way:?}: the lender keeps it");
            end(&lender, &offered);
        });
    }
}

pub(crate) fn a_borrower_waits_for_the_lender(stage: &Stage<'_>) {
    for way in stage.ways() {
        let (lender, borrower) = stage.two();
        let offered = offer(&lender, way, 0x11);
        let taken = take(&borrower, &offered).unwrap_or_else(|code| panic!("{way:?}: {code}"));
        // Recorded anew, by the lender, behind work that goes on.
        lender.must(Op::Stall, [0; 3]);
        lender.must(Op::Fill, [offered.address, 0x22, BYTES]);
        lender.must(Op::EventRecord, [offered.event, 0, 0]);
        assert_eq!(lender.ask(Op::EventQuery, [offered.event, 0, 0]), Ok(0));
        assert_eq!(borrower.ask(Op::EventQuery, [taken.event, 0, 0]), Ok(0), "{way:?}: one event");
        borrower.must(Op::StreamWait, [taken.event, 0, 0]);
        borrower.must(Op::Fill, [taken.address, 0x33, BYTES / 2]);
        lender.must(Op::Release, [0; 3]);
        borrower.must(Op::Synchronize, [0; 3]);
        assert_eq!(borrower.read(taken.address, BYTES / 2), 0x33, "{way:?}");
        assert_eq!(borrower.read(taken.address + BYTES / 2, BYTES / 2), 0x22, "{way:?}");
        // And by the borrower.
        borrower.must(Op::Stall, [0; 3]);
        borrower.must(Op::Fill, [taken.address, 0x44, BYTES]);
        borrower.must(Op::EventRecord, [taken.event, 0, 0]);
        assert_eq!(lender.ask(Op::EventQuery, [offered.event, 0, 0]), Ok(0), "{way:?}: one event");
        lender.must(Op::StreamWait, [offered.event, 0, 0]);
        borrower.must(Op::Release, [0; 3]);
        assert_eq!(lender.read(offered.address, BYTES), 0x44, "{way:?}");
        give_back(&borrower, &taken);
        end(&lender, &offered);
    }
}

pub(crate) fn what_is_opened_twice_is_one_memory(stage: &Stage<'_>) {
    let (lender, borrower) = stage.two();
    let offered = offer(&lender, Way::Legacy, 0x51);
    lender.must(Op::Synchronize, [0; 3]);
    let [once, twice] =
        [(); 2].map(|()| borrower.open(Op::MemoryOpen, 0, &offered.handle).expect("it is lent"));
    assert_eq!(once, twice);
    borrower.must(Op::MemoryClose, [once, 0, 0]);
    assert_eq!(borrower.read(twice, BYTES), 0x51, "it is open still");
    borrower.must(Op::MemoryClose, [twice, 0, 0]);
    let again = borrower.open(Op::MemoryOpen, 0, &offered.handle).expect("it is lent still");
    assert_eq!(borrower.read(again, BYTES), 0x51);
    borrower.must(Op::MemoryClose, [again, 0, 0]);
    end(&lender, &offered);
    // A block of a pool is imported once: the driver does not count.
    if stage.ways().any(|way| way == Way::Pages) {
        let offered = offer(&lender, Way::Pages, 0x52);
        lender.must(Op::Synchronize, [0; 3]);
        let [once, twice] = [(); 2].map(|()| take(&borrower, &offered).expect("it is lent"));
        assert_ne!(once.address, twice.address);
        borrower.write(once.address, 0x53, BYTES);
        assert_eq!(borrower.read(twice.address, BYTES), 0x53);
        give_back(&borrower, &twice);
        assert_eq!(borrower.read(once.address, BYTES), 0x53);
        give_back(&borrower, &once);
        end(&lender, &offered);
    }
}

pub(crate) fn blocks_are_opened_where_they_begin(stage: &Stage<'_>) {
    let (lender, borrower) = stage.two();
    let bytes = 1 << 10;
    let blocks = [1_u8, 2, 3].map(|byte| {
        let address = lender.must(Op::Allocate, [bytes, 0, 0]);
        lender.write(address, byte, bytes);
        (address, byte)
    });
    for (address, byte) in blocks {
        // An address within names the block, too.
        for within in [0, bytes / 2] {
            let handle = lender.handle(Op::MemoryHandle, address + within).expect("it is lent");
            let opened = borrower.open(Op::MemoryOpen, 0, &handle).expect("it is lent");
            assert_eq!(borrower.read(opened, bytes), byte.into(), "block {byte}, from {within} on");
            let _ = fact("bytes that come with a block of 1 KiB", borrower.ask(Op::Range, [opened, 0, 0]));
            borrower.must(Op::MemoryClose, [opened, 0, 0]);
        }
    }
    for (address, _) in blocks {
        lender.must(Op::Free, [address, 0, 0]);
    }
}

pub(crate) fn a_process_does_not_open_what_it_lends(stage: &Stage<'_>) {
    let lender = stage.process();
    for way in stage.ways() {
        let offered = offer(&lender, way, 0x61);
        let own = lender.open(Op::EventOpen, 0, &offered.event_handle);
        refused_as("an event, by the process that made it", own, Code::INVALID_CONTEXT);
        match way {
            Way::Legacy => {
                let own = lender.open(Op::MemoryOpen, 0, &offered.handle);
                refused_as("plain memory, by the process that lends it", own, Code::INVALID_CONTEXT);
            }
            Way::Pool => {
                let lent = offered.lent.as_ref().expect("a pool is lent");
                if let Ok(pool) =
                    fact("a pool, by the process that lends it", lender.import(Op::PoolImport, lent))
                {
                    let own = lender.open(Op::PoolImportPointer, pool, &offered.handle);
                    if let Ok(address) = fact("a block, by the process that lends it", own) {
                        assert_eq!(lender.read(address, BYTES), 0x61);
                        let freed = lender.ask(Op::FreeAsync, [address, 0, 0]);
                        let _ = fact("and given back", freed);
                        lender.must(Op::Synchronize, [0; 3]);
                    }
                    let _ = fact("and the pool", lender.ask(Op::PoolDestroy, [pool, 0, 0]));
                }
            }
            // Pages have no home: what is imported is a handle more.
            Way::Pages => {
                let lent = offered.lent.as_ref().expect("pages are lent");
                let memory = lender.import(Op::MemoryImport, lent).expect("it is a handle");
                let address = lender.must(Op::Map, [memory, BYTES, 0]);
                assert_eq!(lender.read(address, BYTES), 0x61);
                lender.must(Op::Unmap, [address, BYTES, 0]);
                lender.must(Op::MemoryRelease, [memory, 0, 0]);
            }
        }
        assert_eq!(lender.read(offered.address, BYTES), 0x61);
        end(&lender, &offered);
    }
}

pub(crate) fn what_was_not_made_for_it_is_not_lent(stage: &Stage<'_>) {
    let lender = stage.process();
    let event = lender.must(Op::PlainEvent, [0; 3]);
    refused("the handle of an event without processes", lender.handle(Op::EventHandle, event).map(|_| 0));
    let plain = lender.must(Op::Allocate, [BYTES, 0, 0]);
    for way in stage.ways().filter(|way| *way != Way::Legacy) {
        let offered = offer(&lender, way, 0);
        let what = format!("{way:?}: the handle of plain memory");
        refused(&what, lender.handle(Op::MemoryHandle, offered.address).map(|_| 0));
        if way == Way::Pages {
            let what = "Pages: the handle of a block of a pool";
            refused(what, lender.handle(Op::PoolExportPointer, offered.address).map(|_| 0));
        }
        end(&lender, &offered);
    }
    if stage.ways().any(|way| way == Way::Pool) {
        let pool = lender.must(Op::PoolCreate, [0; 3]);
        let exported = lender.export(Op::PoolExport, pool, DESCRIPTOR).map(|_| 0);
        assert_eq!(exported, Err(Code::INVALID_VALUE));
        let block = lender.must(Op::AllocateAsync, [pool, BYTES, 0]);
        refused(
            "a block of a pool without handle types",
            lender.handle(Op::PoolExportPointer, block).map(|_| 0),
        );
        refused("plain memory as a block of a pool", lender.handle(Op::PoolExportPointer, plain).map(|_| 0));
        lender.must(Op::FreeAsync, [block, 0, 0]);
        lender.must(Op::Synchronize, [0; 3]);
        lender.must(Op::PoolDestroy, [pool, 0, 0]);
    }
    if stage.ways().any(|way| way == Way::Pages) {
        let memory = lender.must(Op::MemoryCreate, [BYTES, 0, 0]);
        let exported = lender.export(Op::MemoryExport, memory, DESCRIPTOR).map(|_| 0);
        assert_eq!(exported, Err(Code::INVALID_VALUE));
        lender.must(Op::MemoryRelease, [memory, 0, 0]);
    }
}

pub(crate) fn an_imported_pool_does_not_allocate(stage: &Stage<'_>) {
    if !stage.ways().any(|way| way == Way::Pool) {
        return;
    }
    let (lender, borrower) = stage.two();
    let offered = offer(&lender, Way::Pool, 0x71);
    lender.must(Op::Synchronize, [0; 3]);
    let taken = take(&borrower, &offered).expect("it is lent");
    let pool = taken.holder;
    for (what, result) in [
        ("a block from an imported pool", borrower.ask(Op::AllocateAsync, [pool, BYTES, 0])),
        ("the trim of an imported pool", borrower.ask(Op::PoolTrim, [pool, 0, 0])),
        ("the export of an imported pool", borrower.export(Op::PoolExport, pool, DESCRIPTOR).map(|_| 0)),
        ("the handle of an imported block", borrower.handle(Op::PoolExportPointer, taken.address).map(|_| 0)),
    ] {
        refused_as(what, result, Code::INVALID_VALUE);
    }
    assert_eq!(borrower.read(taken.address, BYTES), 0x71);
    give_back(&borrower, &taken);
    end(&lender, &offered);
}

pub(crate) fn pages_live_while_a_descriptor_is_open(stage: &Stage<'_>) {
    if !stage.ways().any(|way| way == Way::Pages) {
        return;
    }
    stage.leaves_nothing(|| {
        let (lender, borrower) = stage.two();
        let mut offered = offer(&lender, Way::Pages, 0x81);
        let lent = offered.lent.take().expect("pages are lent");
        end(&lender, &offered);
        lender.leave();
        let memory = borrower.import(Op::MemoryImport, &lent).expect("the descriptor keeps them");
        drop(lent);
        let address = borrower.must(Op::Map, [memory, BYTES, 0]);
        borrower.must(Op::MemoryRelease, [memory, 0, 0]);
        assert_eq!(borrower.read(address, BYTES), 0x81, "the mapping keeps them");
        borrower.must(Op::Unmap, [address, BYTES, 0]);
    });
}

pub(crate) fn pages_of_several_descriptors_lie_side_by_side(stage: &Stage<'_>) {
    if !stage.ways().any(|way| way == Way::Pages) {
        return;
    }
    stage.leaves_nothing(|| {
        let (lender, borrower) = stage.two();
        let unit = lender.must(Op::Granularity, [0; 3]);
        let all = 6 * unit;
        let there = borrower.must(Op::Reserve, [all, 0, 0]);
        let mut at = 0;
        let pages = [(1, 0xA1), (3, 0xA2), (2, 0xA3)].map(|(units, byte)| {
            let bytes = units * unit;
            let memory = lender.must(Op::MemoryCreate, [bytes, DESCRIPTOR.into(), 0]);
            let here = lender.must(Op::Map, [memory, bytes, 0]);
            lender.write(here, byte, bytes);
            let lent = lender.export(Op::MemoryExport, memory, DESCRIPTOR).expect("it was made for it");
            let imported = borrower.import(Op::MemoryImport, &lent).expect("it is lent");
            // One of another size would cut its neighbours.
            let wrong = borrower.ask(Op::MapAt, [imported, there + at, bytes + unit]);
            refused("a page in place of a longer one", wrong);
            borrower.must(Op::MapAt, [imported, there + at, bytes]);
            borrower.must(Op::MemoryRelease, [imported, 0, 0]);
            at += bytes;
            (memory, here, there + at - bytes, bytes, byte)
        });
        borrower.must(Op::Access, [there, all, 0]);
        for (_, _, there, bytes, byte) in pages {
            assert_eq!(borrower.read(there, bytes), u64::from(byte));
        }
        // Over all of their borders at once.
        borrower.write(there, 0xB4, all);
        for (memory, here, there, bytes, _) in pages {
            assert_eq!(lender.read(here, bytes), 0xB4);
            borrower.must(Op::UnmapAt, [there, bytes, 0]);
            lender.must(Op::Unmap, [here, bytes, 0]);
            lender.must(Op::MemoryRelease, [memory, 0, 0]);
        }
        borrower.must(Op::Unreserve, [there, all, 0]);
    });
}

pub(crate) fn fabric_handles_are_lent_or_refused(stage: &Stage<'_>) {
    let (lender, borrower) = stage.two();
    let garbage = Lent::Fabric([0x5A; 64]);
    refused("pages of a made-up fabric handle", borrower.import(Op::MemoryImport, &garbage));
    refused("a pool of a made-up fabric handle", borrower.import(Op::PoolImport, &garbage));
    let made = lender.ask(Op::MemoryCreate, [BYTES, FABRIC.into(), 0]);
    let Ok(memory) = fact("pages with fabric handles", made) else { return };
    if let Ok(lent) = lender.export(Op::MemoryExport, memory, FABRIC) {
        let address = lender.must(Op::Map, [memory, BYTES, 0]);
        lender.write(address, 0x91, BYTES);
        let imported = borrower.import(Op::MemoryImport, &lent).expect("the fabric is there");
        let there = borrower.must(Op::Map, [imported, BYTES, 0]);
        assert_eq!(borrower.read(there, BYTES), 0x91);
        lender.must(Op::Unmap, [address, BYTES, 0]);
    }
    lender.must(Op::MemoryRelease, [memory, 0, 0]);
}

pub(crate) fn descriptors_are_given_back(stage: &Stage<'_>) {
    let (lender, borrower) = stage.two();
    if lender.is_simulated() {
        // Its descriptors are this process's, and other tests have some.
        return;
    }
    let count = || [&lender, &borrower].map(|process| process.must(Op::Descriptors, [0; 3]));
    for way in stage.ways() {
        let round = || {
            let offered = offer(&lender, way, 0xD1);
            let taken = take(&borrower, &offered).expect("it is lent");
            let during = count();
            give_back(&borrower, &taken);
            end(&lender, &offered);
            during
        };
        // What a driver opens at the first time, it keeps.
        round();
        let before = count();
        let during = (0..20).map(|_| round()).next_back();
        println!("fact: {way:?}: descriptors of both: {before:?}, while memory is lent {during:?}");
        assert_eq!(count(), before, "{way:?}");
    }
}
