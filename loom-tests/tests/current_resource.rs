//! The making of the current resource, as it is shipped: one thread makes it, the others wait, and who is called by the maker does
//! not.

use std::sync::Arc;

use alluvion::driver::{Call, Code, DriverError};
use alluvion::source::Cuda;
use alluvion::{AnyResource, ErrorKind, ResourceExt};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use loom_tests::{Rig, Seen, explore_bounded, spawn};

/// Which of the resources it is: two that are made of one source are equal, and not the same.
fn place(resource: &AnyResource) -> *const Cuda {
    resource.find::<Cuda>().expect("it stands on that source")
}

/// A machine whose driver takes its time, and counts how often a resource is made.
fn rig() -> (Rig, Arc<AtomicU64>) {
    let (rig, made) = (Rig::new(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&made);
    rig.mock.while_probed(move || {
        count.fetch_add(1, Ordering::Relaxed);
        thread::yield_now();
        Ok(())
    });
    (rig, made)
}

#[test]
fn threads_that_ask_at_once_get_one() {
    explore_bounded(Some(3), || {
        let (rig, made) = rig();
        let device = rig.device.clone();
        let other = spawn(move || device.current_resource().expect("it is made"));
        let here = rig.device.current_resource().expect("it is made");
        assert_eq!(place(&here), place(&other.join().unwrap()), "it is made twice");
        assert_eq!(made.load(Ordering::Relaxed), 1);
        rig.device.machine().reset_current_resources();
    });
}

/// Making it fails once. Whoever waited for that tries it itself.
#[test]
fn a_failure_is_told_to_who_made_it_and_leaves_nobody_behind() {
    static TOLD: [Seen; 2] = [Seen::never(), Seen::never()];
    explore_bounded(Some(3), || {
        let (rig, tried) = (Rig::new(), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&tried);
        rig.mock.while_probed(move || match count.fetch_add(1, Ordering::Relaxed) {
            0 => Err(DriverError::new(Call::Attribute, Code::OUT_OF_MEMORY)),
            _ => Ok(()),
        });
        let device = rig.device.clone();
        let other = spawn(move || device.current_resource().is_ok());
        let here = rig.device.current_resource().is_ok();
        let there = other.join().unwrap();
        assert!(here != there, "one of two tries fails");
        TOLD[usize::from(here)].note(true);
        assert_eq!(tried.load(Ordering::Relaxed), 2);
        rig.device.machine().reset_current_resources();
    });
    assert!(TOLD.iter().all(|told| told.times() > 0), "{TOLD:?}");
}

/// What the driver calls asks for the resource that is being made; another thread does so too.
#[test]
fn who_is_called_by_the_maker_does_not_wait_for_it() {
    explore_bounded(Some(3), || {
        let (rig, refused) = (Rig::new(), Arc::new(AtomicU64::new(0)));
        let (device, count) = (rig.device.clone(), Arc::clone(&refused));
        rig.mock.while_probed(move || {
            let error = device.current_resource().expect_err("it is being made");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let device = rig.device.clone();
        let other = spawn(move || device.current_resource().is_ok());
        assert!(rig.device.current_resource().is_ok() && other.join().unwrap());
        assert_eq!(refused.load(Ordering::Relaxed), 1);
        rig.mock.forget_probe();
        rig.device.machine().reset_current_resources();
    });
}

/// One thread sets another while the initial one is made: it stays set, whoever comes first.
#[test]
fn what_is_set_stays() {
    static BEFORE: [Seen; 2] = [Seen::never(), Seen::never()];
    explore_bounded(Some(3), || {
        let (rig, made) = rig();
        let own = AnyResource::new(Cuda::new(&rig.device));
        let (device, set) = (rig.device.clone(), own.clone());
        let other = spawn(move || device.set_current_resource(set).expect("it is of this device"));
        let found = rig.device.current_resource().expect("it is made");
        let before = other.join().unwrap();
        assert_eq!(place(&rig.device.current_resource().expect("it is made")), place(&own));
        let is_own = place(&found) == place(&own);
        assert!(is_own || place(&found) == place(&before));
        BEFORE[usize::from(is_own)].note(true);
        assert_eq!(made.load(Ordering::Relaxed), 1);
        drop((found, before));
        rig.device.machine().reset_current_resources();
    });
    assert!(BEFORE.iter().all(|before| before.times() > 0), "{BEFORE:?}");
}
