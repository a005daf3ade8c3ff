//! The contract of `Driver` on the simulated machine.

use alluvion::driver::Driver;
use alluvion::sim::{SimConfig, SimDriver};

use crate::driver_contract;

/// The clauses hold whatever the machine leaves to chance, and none of them is a hazard.
fn on_sim(clause: fn(&dyn Driver)) {
    for seed in 0..2 {
        let sim = SimDriver::new(SimConfig::default().seed(seed));
        clause(&*sim);
        assert!(sim.hazards().is_empty(), "seed {seed}: {:#?}", sim.hazards());
    }
}

/// A broken promise is refused, and reported.
fn on_misused_sim(clause: fn(&dyn Driver)) {
    let sim = SimDriver::new(SimConfig::default());
    clause(&*sim);
    assert!(!sim.hazards().is_empty());
}

driver_contract::clauses!(on_sim, on_misused_sim);
