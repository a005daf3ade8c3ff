//! The contract of `Driver` on the simulated machine.

#![expect(unsafe_code, reason = "calls the driver")]

mod driver_contract;

use alluvion::driver::Driver;
use alluvion::driver::sim::{SimConfig, SimDriver};

fn on_sim(clause: fn(&dyn Driver)) {
    clause(&*SimDriver::new(SimConfig::default()));
}

driver_contract::clauses!(on_sim);
