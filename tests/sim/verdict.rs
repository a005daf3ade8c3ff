//! The verdict of a `Sim`: what it says when it is asked, and what it does when nobody has asked.

#![expect(unsafe_code, reason = "makes mistakes on purpose, which the machine finds and does not make")]

use std::panic::catch_unwind;
use std::sync::Arc;

use alluvion::sim::{HazardKind, SimConfig, SimDriver};
use alluvion::source::Cuda;
use alluvion::{DeviceVec, Layout, Resource, Sim};

/// Frees what was never allocated.
fn err(sim: &Sim) {
    // SAFETY: the simulator refuses the free and touches nothing.
    let freed = unsafe { sim.device(0).driver().free_device(0, 0x1234_5600) };
    assert!(freed.is_err());
}

/// The words of the panic.
fn words(run: impl FnOnce() + std::panic::UnwindSafe) -> Option<String> {
    let payload = catch_unwind(run).err()?;
    let said = payload.downcast_ref::<String>().cloned();
    said.or_else(|| payload.downcast_ref::<&str>().map(|said| (*said).to_owned()))
}

#[test]
fn hazards_that_nobody_asked_for_end_in_a_panic() {
    let said = words(|| {
        let sim = Sim::new();
        err(&sim);
        err(&sim);
    });
    let said = said.expect("the machine was dropped with two hazards");
    assert!(said.contains("2 hazards that the test has not read"), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("  invalid free")).count(), 2, "{said}");
}

#[test]
fn hazards_that_somebody_asked_for_do_not() {
    let sim = Sim::new();
    err(&sim);
    assert_eq!(sim.hazards().len(), 1);
    drop(sim);
    let sim = Sim::new();
    err(&sim);
    assert_eq!(sim.take_hazards()[0].kind(), HazardKind::InvalidFree);
    drop(sim);
    let said = words(|| {
        let sim = Sim::new();
        err(&sim);
        let _ = sim.take_hazards();
        err(&sim);
    });
    assert!(said.is_some_and(|said| said.contains("1 hazards that the test has not read")), "one came later");
}

#[test]
fn a_machine_that_is_told_not_to_judge_does_not() {
    let sim = Sim::with_config(SimConfig::default().panic_on_unseen_hazards(false));
    err(&sim);
    drop(sim);
    // Whoever made the driver is the one to ask it.
    let driver = SimDriver::new(SimConfig::default());
    let sim = Sim::with_driver(Arc::clone(&driver));
    err(&sim);
    drop(sim);
    assert_eq!(driver.hazards().len(), 1);
}

#[test]
fn a_panic_is_not_followed_by_another() {
    let said = words(|| {
        let sim = Sim::new();
        err(&sim);
        panic!("{} is wrong", 7);
    });
    assert_eq!(said.as_deref(), Some("7 is wrong"));
}

#[test]
fn a_machine_can_be_used_across_a_panic() {
    let sim = Sim::new();
    let said = words(|| {
        let _device = sim.device(0);
        panic!("{}", 1);
    });
    assert_eq!(said.as_deref(), Some("1"));
    sim.assert_clean();
}

#[test]
fn a_clean_machine_may_keep_what_is_its_own() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    // The current resource, a pool of the driver; events; and, for a call that names no stream, a stream of the device's.
    let numbers = DeviceVec::from_slice(&[1, 2, 3], &stream).unwrap();
    let resource = sim.device(0).current_resource().unwrap();
    let layout = Layout::from_bytes(100).unwrap();
    let block = resource.allocate_sync(layout).unwrap();
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { resource.deallocate_sync(block, layout) };
    assert_eq!(numbers.to_vec(&stream).unwrap(), [1, 2, 3]);
    drop((numbers, stream, resource));
    sim.assert_clean();
    assert!(!sim.live().is_empty());
}

#[test]
fn what_is_not_clean_is_named_line_by_line() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let layout = Layout::from_bytes(100).unwrap();
    Cuda::new(&sim.device(0)).allocate_sync(layout).unwrap();
    err(&sim);
    let said = words(|| sim.assert_clean()).expect("it is not clean");
    assert!(said.contains("1 hazards, 2 blocks, pages and streams are out"), "{said}");
    let lines: Vec<&str> = said.lines().skip(1).map(str::trim_start).collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(lines[0].starts_with("invalid free"), "{said}");
    assert!(
        lines[1].starts_with("leak: the allocation of 100 bytes") && lines[1].contains("cuMemFree"),
        "{said}"
    );
    assert!(lines[2].starts_with("leak: stream"), "{said}");
    drop(stream);
}
