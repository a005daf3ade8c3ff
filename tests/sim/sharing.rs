//! Memory that two processes have, on the simulated machine: the contract of `Sharing`.

use std::sync::Arc;

use alluvion::sim::{SimConfig, SimDriver};

use crate::sharing_contract::process::Process;
use crate::sharing_contract::{self, GPU, Stage};

fn on_simulator(clause: fn(&Stage<'_>)) {
    let driver = SimDriver::new(SimConfig::default());
    let start = || {
        let process = driver.process();
        let killed = Arc::clone(&process);
        Process::simulated(process, GPU, move || killed.kill())
    };
    clause(&Stage { driver: &*driver, start: &start });
}

sharing_contract::clauses!(on_simulator);
