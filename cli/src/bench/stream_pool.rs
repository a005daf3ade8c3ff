//! `stream-pool`: RMM's benchmark of its stream pool.

use alluvion::StreamPool;

use super::figure::{Figure, Report};
use crate::failure::Failure;
use crate::rig::{Driver, Rig};
use crate::timing::per_operation;

/// As many as RMM's pool has by default.
const STREAMS: usize = 16;

pub(super) fn run(driver: Driver, quick: bool, json: bool) -> Result<(), Failure> {
    let rig = Rig::open(driver)?;
    let mut report = Report::new(json, rig.name);
    let pool = StreamPool::new(&rig.device, STREAMS)?;
    let count = if quick { 10 } else { 1000 };
    let ns = per_operation(100 * count, || {
        core::hint::black_box(pool.next());
        Ok(())
    })?;
    report.print(&Figure::StreamPool { what: "next of a pool", ns })?;
    let ns = per_operation(count, || rig.device.stream().map(drop))?;
    report.print(&Figure::StreamPool { what: "made and destroyed", ns })
}
