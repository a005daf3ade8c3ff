//! Every schedule of a hand-over between two simulated processes.
#![cfg(feature = "sim")]
#![expect(unsafe_code, reason = "drives the driver seam by hand")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "each test keeps its ranges live to its end, or breaks the contract on purpose where the simulator says what \
              happens"
)]

use std::collections::BTreeSet;

use alluvion::driver::{Driver, FillValue};
use alluvion::sim::{Explored, HazardKind, SimConfig, SimDriver, explore};

use super::processes::{fill, lends, shared_event, stream};

/// What a hand-over leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    WaitOfTheImporter,
    WaitOfTheExporter,
}

/// The exporter fills, the importer reads and writes, and the exporter reads that; the bytes that each has seen.
fn hand_over(without: Without) -> (Explored, BTreeSet<(u8, u8)>, BTreeSet<Vec<HazardKind>>) {
    let (mut seen, mut found) = (BTreeSet::new(), BTreeSet::new());
    let explored = explore(SimConfig::default(), |exporter| {
        let importer = exporter.process();
        let view: [(&SimDriver, u64); 2] =
            [exporter, &importer].map(|driver| (&**driver, driver.allocate_managed(0, 1).unwrap()));
        let address = exporter.allocate_device(0, 1).unwrap();
        let opened =
            unsafe { lends(&importer).memory_open(0, lends(exporter).memory_handle(0, address).unwrap()) }
                .unwrap();
        let (event, there) = shared_event(exporter, &importer);
        let (ours, theirs) = (stream(exporter), stream(&importer));
        fill(exporter, ours, address, 1, 1);
        unsafe { exporter.event_record(0, event, ours) }.unwrap();
        if without != Without::WaitOfTheImporter {
            unsafe { importer.stream_wait_event(0, theirs, there) }.unwrap();
        }
        unsafe { importer.copy_async(0, view[1].1, opened, 1, theirs) }.unwrap();
        unsafe { importer.fill_async(0, opened, FillValue::U8(2), 1, theirs) }.unwrap();
        unsafe { importer.event_record(0, there, theirs) }.unwrap();
        if without != Without::WaitOfTheExporter {
            unsafe { exporter.stream_wait_event(0, ours, event) }.unwrap();
        }
        unsafe { exporter.copy_async(0, view[0].1, address, 1, ours) }.unwrap();
        importer.context_synchronize(0).unwrap();
        exporter.context_synchronize(0).unwrap();
        let byte = |(_, at): (&SimDriver, u64)| unsafe {
            core::ptr::with_exposed_provenance::<u8>(at as usize).read_volatile()
        };
        seen.insert((byte(view[1]), byte(view[0])));
        let hazards = [exporter, &importer].into_iter().flat_map(|driver| driver.take_hazards());
        found.insert(hazards.map(|hazard| hazard.kind()).collect());
    });
    (explored, seen, found)
}

#[test]
fn with_an_event_there_is_one_outcome_and_no_hazard() {
    let (explored, seen, found) = hand_over(Without::Nothing);
    assert!(explored.complete);
    assert_eq!(seen, BTreeSet::from([(1, 2)]));
    assert_eq!(found, BTreeSet::from([vec![]]));
}

#[test]
fn without_it_there_are_several_and_the_same_hazard_under_each_schedule() {
    for without in [Without::WaitOfTheImporter, Without::WaitOfTheExporter] {
        let (explored, seen, found) = hand_over(without);
        assert!(explored.complete && explored.schedules > 1);
        assert!(seen.len() > 1, "{without:?}: {seen:?}");
        assert_eq!(found.len(), 1, "{without:?}: {found:?}");
        let kinds = found.first().unwrap();
        assert!(
            !kinds.is_empty() && kinds.iter().all(|kind| *kind == HazardKind::Race),
            "{without:?}: {kinds:?}"
        );
    }
}

#[test]
fn a_process_that_dies_at_any_moment_leaves_the_other_no_hazard() {
    let mut seen = BTreeSet::new();
    let explored = explore(SimConfig::default(), |exporter| {
        let importer = exporter.process();
        let [view, spare] = [0, 1].map(|_| importer.allocate_managed(0, 1).unwrap());
        let address = exporter.allocate_device(0, 1).unwrap();
        let opened =
            unsafe { lends(&importer).memory_open(0, lends(exporter).memory_handle(0, address).unwrap()) }
                .unwrap();
        let (event, there) = shared_event(exporter, &importer);
        let (ours, theirs) = (stream(exporter), stream(&importer));
        fill(exporter, ours, address, 1, 1);
        exporter.context_synchronize(0).unwrap();
        fill(exporter, ours, address, 2, 1);
        unsafe { exporter.event_record(0, event, ours) }.unwrap();
        unsafe { importer.stream_wait_event(0, theirs, there) }.unwrap();
        unsafe { importer.copy_async(0, view, opened, 1, theirs) }.unwrap();
        // Whether the second fill runs before the end is the schedule's. If not, nobody may wait for it any more.
        let is_done = unsafe { importer.event_query(0, there) }.unwrap();
        exporter.kill();
        assert_eq!(unsafe { importer.event_query(0, there) }, Ok(is_done));
        let seen_at = if is_done {
            importer.context_synchronize(0).unwrap();
            view
        } else {
            unsafe { importer.copy(0, spare, opened, 1) }.unwrap();
            spare
        };
        let byte = unsafe { core::ptr::with_exposed_provenance::<u8>(seen_at as usize).read_volatile() };
        seen.insert((is_done, byte));
        assert_eq!(importer.hazards(), []);
        assert_eq!(exporter.hazards(), []);
    });
    assert!(explored.complete);
    assert_eq!(seen, BTreeSet::from([(false, 1), (true, 2)]));
}
