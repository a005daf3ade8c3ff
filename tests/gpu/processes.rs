//! Memory that two processes have, on the GPU of this computer: the contract of `Sharing`, and what it leaves to the driver.

#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::sync::{Arc, Mutex, PoisonError};

use alluvion::Machine;
use alluvion::driver::Driver;

use crate::sharing_contract::hand_over::{BYTES, end, give_back, offer, take};
use crate::sharing_contract::process::{Process, serve_if_child};
use crate::sharing_contract::worker::Op;
use crate::sharing_contract::{self, GPU, Stage, fact};

/// One at a time: they look at how much memory the device has free.
static ALONE: Mutex<()> = Mutex::new(());

/// The driver of this machine, and of the children, who have the same environment.
fn gpu() -> Arc<dyn Driver> {
    Arc::clone(Machine::of_environment().expect("these tests need a GPU").driver())
}

fn on_gpu(clause: fn(&Stage<'_>)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let driver = gpu();
    let start = || Process::start("processes::a_child_is_another_process", GPU);
    clause(&Stage { driver: &*driver, start: &start });
}

sharing_contract::clauses!(on_gpu);

/// The other processes of this module are this test, alone in a program of its own.
#[test]
fn a_child_is_another_process() {
    serve_if_child(gpu);
    on_gpu(|stage| {
        let (one, other) = stage.two();
        let memory = [(&one, 1), (&other, 2)].map(|(process, byte)| {
            let address = process.must(Op::Allocate, [4 << 20, 0, 0]);
            process.write(address, byte, 4 << 20);
            (process, address, byte)
        });
        for (process, address, byte) in memory {
            assert_eq!(process.read(address, 4 << 20), byte.into(), "whatever the other's address is");
        }
    });
}

/// A program over libcuda and one over cudart lend each other memory, in every way.
#[test]
fn libcuda_and_cudart_borrow_from_each_other() {
    let name = gpu().name();
    if !["cuda", "cudart"].contains(&name) || Machine::cudart().is_err() {
        println!("not tested: there is no libcudart, or another vendor's device");
        return;
    }
    on_gpu(|stage| {
        let over = |driver| {
            const TEST: &str = "processes::a_child_is_another_process";
            let process = Process::start_with(TEST, GPU, &[("ALLUVION_DRIVER", driver)]);
            process.must(Op::Synchronize, [0; 3]);
            process
        };
        for way in stage.ways() {
            for (lends, borrows) in [("cuda", "cudart"), ("cudart", "cuda")] {
                let (lender, borrower) = (over(lends), over(borrows));
                assert_eq!(lender.handle(Op::Uuid, 0), borrower.handle(Op::Uuid, 0), "one device");
                let offered = offer(&lender, way, 0xC1);
                let taken = take(&borrower, &offered);
                let taken = taken.unwrap_or_else(|code| panic!("{way:?}, {lends} to {borrows}: {code}"));
                borrower.must(Op::StreamWait, [taken.event, 0, 0]);
                assert_eq!(borrower.read(taken.address, BYTES), 0xC1, "{way:?}, {lends} to {borrows}");
                borrower.write(taken.address, 0xC2, BYTES);
                assert_eq!(lender.read(offered.address, BYTES), 0xC2, "{way:?}, {lends} to {borrows}");
                give_back(&borrower, &taken);
                end(&lender, &offered);
            }
        }
    });
}

/// The manual does not define it. What this driver does is worth knowing.
#[test]
fn memory_that_its_lender_frees_too_early() {
    on_gpu(|stage| {
        let (lender, borrower) = stage.two();
        let address = lender.must(Op::Allocate, [4 << 20, 0, 0]);
        lender.write(address, 0x77, 4 << 20);
        let handle = lender.handle(Op::MemoryHandle, address).expect("it is lent");
        let opened = borrower.open(Op::MemoryOpen, 0, &handle).expect("it is lent");
        let _ =
            fact("plain memory is freed while it is open elsewhere", lender.ask(Op::Free, [address, 0, 0]));
        let _ = fact("and read there", borrower.ask(Op::Read, [opened, 4 << 20, 0]));
        let _ = fact("and closed there", borrower.ask(Op::MemoryClose, [opened, 0, 0]));
    });
}
