//! `priming`: what it is worth to give a pool of the driver its memory before it is asked.

use std::time::Instant;

use alluvion::source::{CudaAsync, CudaAsyncConfig};

use super::figure::{Figure, Report};
use crate::failure::Failure;
use crate::rig::{Driver, Rig};
use crate::timing::ns_since;
use crate::workload::Block;

/// RMM's program takes so many blocks of so many bytes.
const BLOCKS: usize = 100;
const BYTES: usize = 1 << 20;

pub(super) fn run(driver: Driver, quick: bool, json: bool) -> Result<(), Failure> {
    let rig = Rig::open(driver)?;
    let mut report = Report::new(json, rig.name);
    let blocks = if quick { BLOCKS / 10 } else { BLOCKS };
    // What the driver does for the first pool of a process is not what is measured.
    let first = CudaAsync::new(&rig.device)?;
    let stream = rig.stream()?;
    Block::pair(&first, BYTES, stream.as_ref())?;
    stream.synchronize()?;
    drop(first);
    for initial in [0, blocks * BYTES] {
        let start = Instant::now();
        let config = CudaAsyncConfig::default().initial_bytes(initial);
        let pool = CudaAsync::with_config(&rig.device, config)?;
        stream.synchronize()?;
        let made_ms = ns_since(start) / 1e6;
        let mut rounds = [0.0; 2];
        for round in &mut rounds {
            let start = Instant::now();
            let taken: Result<Vec<_>, _> =
                (0..blocks).map(|_| Block::take(&pool, BYTES, stream.as_ref())).collect();
            stream.synchronize()?;
            *round = ns_since(start) / blocks as f64;
            taken?.into_iter().for_each(|block| block.give_back(stream.as_ref()));
            stream.synchronize()?;
        }
        let [first_ns, again_ns] = rounds;
        report.print(&Figure::Priming { initial_mib: initial >> 20, made_ms, first_ns, again_ns })?;
    }
    Ok(())
}
