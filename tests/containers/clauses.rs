//! What containers promise on every machine.

use alluvion::{Device, Error};

use crate::container_contract;
use crate::machine::{check, sim_of};

/// The clauses hold whatever the machine leaves to chance.
fn on_sim(clause: fn(&Device) -> Result<(), Error>) {
    for seed in 0..3 {
        let sim = sim_of(seed);
        clause(&sim.device(0)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        check(&sim, &format!("seed {seed}"));
    }
}

container_contract::clauses!(on_sim);
