//! `vectors`: RMM's benchmark of `device_uvector`.

use alluvion::source::{Cuda, CudaAsync};
use alluvion::{DeviceAccessible, DeviceVec, PoolConfig, ResourceExt};

use super::figure::{Figure, Report};
use crate::failure::Failure;
use crate::rig::{Driver, Rig};
use crate::timing::per_operation;

/// Elements of four bytes.
const ELEMENTS: [usize; 6] = [10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

pub(super) fn run(driver: Driver, quick: bool, json: bool) -> Result<(), Failure> {
    let rig = Rig::open(driver)?;
    let mut report = Report::new(json, rig.name);
    report.begin("pool");
    over(&Cuda::new(&rig.device).pool(PoolConfig::default())?, &rig, quick, &mut report)?;
    report.begin("cuda-async");
    over(&CudaAsync::new(&rig.device)?, &rig, quick, &mut report)
}

fn over<R: DeviceAccessible>(
    resource: &R,
    rig: &Rig,
    quick: bool,
    report: &mut Report,
) -> Result<(), Failure> {
    let stream = rig.stream()?;
    let free = rig.device.memory_info()?.free_bytes;
    // Three vectors of a kind are out at a time.
    let fits = |elements: &&usize| 4 * 4 * **elements <= free && (!quick || **elements <= 100_000);
    for &elements in ELEMENTS.iter().filter(fits) {
        let count = if quick { 3 } else { 100 };
        let ns =
            per_operation(count, || DeviceVec::<i32, &R>::uninit_in(elements, &stream, resource).map(drop))?;
        report.print(&Figure::Vectors { what: "made and dropped", elements, ns })?;
        let ns = per_operation(count, || {
            let first = DeviceVec::<i32, &R>::uninit_in(elements, &stream, resource)?;
            let second = DeviceVec::from_device_in(first.as_slice(), &stream, resource)?;
            let third = DeviceVec::from_device_in(second.as_slice(), &stream, resource)?;
            stream.synchronize()?;
            drop((first, second, third));
            Ok(())
        })?;
        report.print(&Figure::Vectors { what: "three, two copies", elements, ns })?;
    }
    Ok(())
}
