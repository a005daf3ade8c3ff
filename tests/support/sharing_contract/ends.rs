//! Memory, events and processes that end before those that use them.

use alluvion::driver::Code;

use super::hand_over::{BYTES, Taken, Way, end, give_back, offer, take, take_memory};
use super::process::Process;
use super::worker::Op;
use super::{Stage, fact, refused_as};

/// Processes that are killed, all in all. Each makes a context, which takes a GPU a second.
const KILLED: usize = 100;

pub(crate) fn what_is_gone_is_not_opened(stage: &Stage<'_>) {
    for way in stage.ways() {
        stage.leaves_nothing(|| {
            let (lender, borrower) = stage.two();
            let mut offered = offer(&lender, way, 0x21);
            let [event, handle] = [offered.event_handle, offered.handle];
            let lent = offered.lent.take();
            end(&lender, &offered);
            let what = |of: &str| format!("{way:?}: {of} that its lender has given back");
            if way == Way::Legacy {
                let opened = borrower.open(Op::MemoryOpen, 0, &handle);
                refused_as(&what("memory"), opened, Code::INVALID_VALUE);
            }
            if let (Way::Pool, Some(lent)) = (way, &lent) {
                let _ = fact(&what("a pool"), borrower.import(Op::PoolImport, lent));
            }
            // And when the lender itself is gone.
            lender.leave();
            let what = |of: &str| format!("{way:?}: {of} of a process that has ended");
            // The driver does not notice. An event of nobody has come.
            let opened = borrower.open(Op::EventOpen, 0, &event);
            let event = fact(&what("an event"), opened).expect("it opens");
            borrower.must(Op::EventDestroy, [event, 0, 0]);
            if way == Way::Legacy {
                let opened = borrower.open(Op::MemoryOpen, 0, &handle);
                refused_as(&what("memory"), opened, Code::INVALID_HANDLE);
            }
            if let (Way::Pool, Some(lent)) = (way, &lent) {
                let _ = fact(&what("a pool"), borrower.import(Op::PoolImport, lent));
            }
        });
    }
}

pub(crate) fn a_lender_may_leave_first(stage: &Stage<'_>) {
    lender_ends(stage, Process::leave);
}

pub(crate) fn a_lender_may_be_killed(stage: &Stage<'_>) {
    lender_ends(stage, Process::kill);
}

/// Memory that is open outlives its lender.
fn lender_ends(stage: &Stage<'_>, ends: fn(Process)) {
    for way in stage.ways() {
        stage.leaves_nothing(|| {
            let (lender, borrower) = stage.two();
            let offered = offer(&lender, way, 0x31);
            let taken = take(&borrower, &offered).unwrap_or_else(|code| panic!("{way:?}: {code}"));
            borrower.must(Op::StreamWait, [taken.event, 0, 0]);
            borrower.must(Op::Synchronize, [0; 3]);
            drop(offered);
            ends(lender);
            assert_eq!(borrower.read(taken.address, BYTES), 0x31, "{way:?}");
            borrower.write(taken.address, 0x32, BYTES);
            assert_eq!(borrower.read(taken.address, BYTES), 0x32, "{way:?}");
            let _ = fact(
                &format!("{way:?}: the event of a process that has ended"),
                borrower.ask(Op::EventQuery, [taken.event, 0, 0]),
            );
            give_back(&borrower, &taken);
            // The process goes on.
            let address = borrower.must(Op::Allocate, [BYTES, 0, 0]);
            borrower.write(address, 0x33, BYTES);
        });
    }
}

/// A borrower that asks, and makes no stream wait, goes on.
pub(crate) fn the_event_of_a_lender_that_is_killed_never_comes(stage: &Stage<'_>) {
    for way in stage.ways() {
        stage.leaves_nothing(|| {
            let (lender, borrower) = stage.two();
            let offered = offer(&lender, way, 0x41);
            let taken = take(&borrower, &offered).unwrap_or_else(|code| panic!("{way:?}: {code}"));
            lender.must(Op::Synchronize, [0; 3]);
            assert_eq!(borrower.ask(Op::EventQuery, [taken.event, 0, 0]), Ok(1), "{way:?}");
            lender.must(Op::Stall, [0; 3]);
            lender.must(Op::EventRecord, [offered.event, 0, 0]);
            assert_eq!(borrower.ask(Op::EventQuery, [taken.event, 0, 0]), Ok(0), "{way:?}");
            drop(offered);
            lender.kill();
            assert_eq!(borrower.ask(Op::EventQuery, [taken.event, 0, 0]), Ok(0), "{way:?}");
            borrower.write(taken.address, 0x42, BYTES);
            assert_eq!(borrower.read(taken.address, BYTES), 0x42, "{way:?}");
            assert_eq!(borrower.ask(Op::EventQuery, [taken.event, 0, 0]), Ok(0), "{way:?}");
            give_back(&borrower, &taken);
        });
    }
}

/// The event of a lender that is killed before it has come never comes: whoever waits for it waits until it is killed itself. Its process
/// and the device are as good as before for the rest.
pub(crate) fn a_wait_for_a_lender_that_is_killed_never_ends(stage: &Stage<'_>) {
    for way in stage.ways() {
        stage.leaves_nothing(|| {
            let (lender, borrower) = stage.two();
            let offered = offer(&lender, way, 0x41);
            let taken = take(&borrower, &offered).unwrap_or_else(|code| panic!("{way:?}: {code}"));
            lender.must(Op::Synchronize, [0; 3]);
            lender.must(Op::Stall, [0; 3]);
            lender.must(Op::EventRecord, [offered.event, 0, 0]);
            assert_eq!(borrower.ask(Op::EventQuery, [taken.event, 0, 0]), Ok(0), "{way:?}");
            borrower.must(Op::StreamWait, [taken.event, 0, 0]);
            borrower.must(Op::Fill, [taken.address, 0x42, BYTES]);
            drop(offered);
            lender.kill();
            for _ in 0..100 {
                assert_eq!(borrower.ask(Op::EventQuery, [taken.event, 0, 0]), Ok(0), "{way:?}");
            }
            borrower.kill();
            let other = stage.process();
            let address = other.must(Op::Allocate, [BYTES, 0, 0]);
            other.write(address, 0x43, BYTES);
            assert_eq!(other.read(address, BYTES), 0x43, "{way:?}");
        });
    }
}

/// How far a borrower comes before it ends.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// It has the message, and nothing of what it names.
    Asked,
    /// It has the memory.
    Opened,
    /// It waits for the lender's event, with work behind it.
    Waits,
    /// It uses the memory.
    Works,
    /// It has given it back.
    GaveBack,
}

const STEPS: [Step; 5] = [Step::Asked, Step::Opened, Step::Waits, Step::Works, Step::GaveBack];

/// Brings a borrower as far as that.
fn borrow_until(step: Step, lender: &Process, borrower: &Process, offered: &super::hand_over::Offered) {
    if matches!(step, Step::Asked) {
        return;
    }
    let taken: Taken = take(borrower, offered).unwrap_or_else(|code| panic!("{step:?}: {code}"));
    match step {
        Step::Asked | Step::Opened => {}
        Step::Waits => {
            lender.must(Op::Stall, [0; 3]);
            lender.must(Op::EventRecord, [offered.event, 0, 0]);
            borrower.must(Op::StreamWait, [taken.event, 0, 0]);
            borrower.must(Op::Fill, [taken.address, 0xBB, BYTES]);
        }
        Step::Works => {
            for _ in 0..1000 {
                borrower.must(Op::Fill, [taken.address, 0xCC, BYTES]);
            }
        }
        Step::GaveBack => give_back(borrower, &taken),
    }
}

/// The lender goes on, and gets everything back.
fn borrower_ends(stage: &Stage<'_>, lender: &Process, way: Way, step: Step, ends: fn(Process)) {
    let borrower = stage.process();
    let offered = offer(lender, way, 0xAA);
    borrow_until(step, lender, &borrower, &offered);
    ends(borrower);
    lender.must(Op::Release, [0; 3]);
    lender.must(Op::Synchronize, [0; 3]);
    let byte = lender.read(offered.address, BYTES);
    match step {
        Step::Asked | Step::Opened | Step::GaveBack => assert_eq!(byte, 0xAA, "{way:?}, {step:?}"),
        // What was queued may have run, in part or as a whole.
        Step::Waits | Step::Works => {}
    }
    lender.write(offered.address, 0xDD, BYTES);
    assert_eq!(lender.read(offered.address, BYTES), 0xDD, "{way:?}, {step:?}");
    end(lender, &offered);
}

pub(crate) fn a_borrower_may_leave_or_be_killed_at_every_step(stage: &Stage<'_>) {
    for way in stage.ways() {
        stage.leaves_nothing(|| {
            let lender = stage.process();
            for step in STEPS {
                // To leave is to wait, here for a lender that waits for it to have left.
                if !matches!(step, Step::Waits) {
                    borrower_ends(stage, &lender, way, step, Process::leave);
                }
                borrower_ends(stage, &lender, way, step, Process::kill);
            }
        });
    }
}

/// Borrowers and lenders by turns, at each step, in each way.
pub(crate) fn a_hundred_processes_are_killed(stage: &Stage<'_>) {
    stage.leaves_nothing(|| {
        let ways: Vec<Way> = stage.ways().collect();
        let (lender, borrower) = stage.two();
        let mut fates: Vec<(String, usize)> = Vec::new();
        for round in 0..KILLED {
            let (way, step) = (ways[round % ways.len()], STEPS[round / ways.len() % STEPS.len()]);
            if round % 2 == 0 {
                borrower_ends(stage, &lender, way, step, Process::kill);
                continue;
            }
            // The lender this time, with a borrower that goes on.
            let killed = stage.process();
            let offered = offer(&killed, way, 0xEE);
            let taken = take_memory(&borrower, &offered);
            drop(offered.lent);
            if !matches!(step, Step::Works) {
                killed.must(Op::Synchronize, [0; 3]);
            }
            killed.kill();
            let (holder, address) = taken.expect("it was lent");
            let fate = borrower.ask(Op::Read, [address, BYTES, 0]).and_then(|byte| {
                assert!(byte == 0xEE || matches!(step, Step::Works), "{way:?}: {byte:#x}");
                let_go_of(&borrower, way, holder, address)
            });
            let fate = format!("{way:?}, its lender killed: {fate:?}");
            match fates.iter_mut().find(|(before, _)| *before == fate) {
                Some((_, times)) => *times += 1,
                None => fates.push((fate, 1)),
            }
            assert_eq!(borrower.ask(Op::Synchronize, [0; 3]), Ok(0), "round {round}, {way:?}, {step:?}");
        }
        for (fate, times) in &fates {
            println!("fact: {fate}, {times} times");
        }
        assert!(fates.iter().all(|(fate, _)| fate.ends_with("Ok(0)")), "{fates:?}");
    });
}

/// Gives memory back without the event.
fn let_go_of(borrower: &Process, way: Way, holder: u64, address: u64) -> Result<u64, Code> {
    match way {
        Way::Legacy => borrower.ask(Op::MemoryClose, [address, 0, 0]),
        Way::Pool => borrower
            .ask(Op::FreeAsync, [address, 0, 0])
            .and_then(|_| borrower.ask(Op::Synchronize, [0; 3]))
            .and_then(|_| borrower.ask(Op::PoolDestroy, [holder, 0, 0])),
        Way::Pages => borrower
            .ask(Op::Unmap, [address, BYTES, 0])
            .and_then(|_| borrower.ask(Op::MemoryRelease, [holder, 0, 0])),
    }
}
