//! The contract of `Sharing` over each library: the processes are simulated ones, each with a driver of its own.

use std::sync::Arc;

use alluvion::driver::runtime::Runtime;
use alluvion::sim::SimDriver;

use crate::sharing_contract::process::Process;
use crate::sharing_contract::{GPU, Stage};
use crate::stand_in::StandIn;

fn on(stand_in: StandIn, clause: fn(&Stage<'_>)) {
    let sim = SimDriver::new(stand_in.config());
    let driver = stand_in.load_for_thread(Arc::clone(&sim), 1);
    assert_eq!(driver.missing(), [""; 0], "the stand-in has every function");
    let start = || {
        let process = sim.process();
        let killed = Arc::clone(&process);
        Process::of_thread(GPU, move || stand_in.load_for_thread(process, 1), move || killed.kill())
    };
    clause(&Stage { driver: &*driver, start: &start });
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
}

macro_rules! over {
    ($($name:ident = $stand_in:expr;)+) => { $(
        mod $name {
            use super::*;
            use crate::sharing_contract;

            fn lent(clause: fn(&Stage<'_>)) {
                on($stand_in, clause);
            }

            sharing_contract::clauses!(lent);
        }
    )+ };
}

over! {
    cudart_13 = StandIn::new(Runtime::Cudart, 13);
    cudart_12 = StandIn::new(Runtime::Cudart, 12);
    hip_7 = StandIn::new(Runtime::Hip, 7);
    hip_6 = StandIn::new(Runtime::Hip, 6);
    hip_5 = StandIn::new(Runtime::Hip, 5);
    maca = StandIn::new(Runtime::Maca, 3);
}
