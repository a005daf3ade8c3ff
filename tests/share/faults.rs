//! Every driver call of a share, an open and an end fails once: it is an error or goes unnoticed, nothing is lost, and the next try
//! works.

use alluvion::driver::Code;
use alluvion::sim::Fault;
use alluvion::{AnyResource, Device, DeviceVec};

use crate::rig::{Rig, ways};

/// No step of a hand-over makes so many calls.
const MOST_CALLS: u64 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Share,
    Open,
    Close,
    End,
}

/// Fails call `n` of a step. Returns `true` if there was such a call.
fn fails(name: &str, make: fn(&Device) -> AnyResource, step: Step, n: u64, code: Code) -> bool {
    let rig = Rig::new();
    let device = rig.first.device(0);
    let (stream, its_stream) = (device.stream().unwrap(), rig.second.device(0).stream().unwrap());
    let resource = make(&device);
    let is_at = |at: Step| at == step;
    let (mut was_hit, what) = (false, format!("{name}: call {n} of {step:?} fails with {code:?}"));
    let mut watch = |sim: &alluvion::Sim, is_on: bool| {
        if is_on {
            sim.inject(Fault::nth_call(n, code));
        } else {
            was_hit |= sim.faults_left() == 0;
            sim.clear_faults();
        }
    };
    // What the first use of a stream or a pool sets up.
    drop(DeviceVec::from_slice_in(&[1_u8], &stream, resource.clone()).unwrap());
    let mut vector = DeviceVec::filled_in(5000, 6_u8, &stream, resource.clone()).unwrap();
    stream.synchronize().unwrap();

    if is_at(Step::Share) {
        watch(&rig.first, true);
        let shared = alluvion::share::Shared::with_config(vector, rig.share_config(), &stream);
        watch(&rig.first, false);
        vector = match shared {
            Ok(shared) => shared.try_end().expect("nobody has it"),
            Err(refused) => refused.into_value(),
        };
        assert_eq!(rig.directory.files(), 0, "{what}: the file of a lease that is none");
    }
    let shared = rig.share(vector, &stream);
    if is_at(Step::Open) {
        watch(&rig.second, true);
        let opened = rig.open(&shared, &its_stream);
        watch(&rig.second, false);
        drop(opened);
    }
    let imported = rig.open(&shared, &its_stream).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(imported.to_vec(&its_stream).unwrap(), [6; 5000], "{what}");
    if is_at(Step::Close) {
        watch(&rig.second, true);
    }
    drop(imported);
    if is_at(Step::Close) {
        watch(&rig.second, false);
    }
    if is_at(Step::End) {
        watch(&rig.first, true);
    }
    let ended = shared.try_end();
    if is_at(Step::End) {
        watch(&rig.first, false);
    }
    match ended {
        Ok(vector) => assert_eq!(vector.to_vec(&stream).unwrap(), [6; 5000], "{what}"),
        // What cannot be closed is open for as long as the process lives, and the exporter keeps the memory.
        Err(shared) => {
            assert!(step == Step::Close && was_hit, "{what}");
            assert_eq!(shared.importers().unwrap(), 1, "{what}");
            drop(shared);
            drop((resource, stream, its_stream));
            assert!(rig.first.hazards().is_empty() && rig.second.hazards().is_empty(), "{what}");
            return was_hit;
        }
    }
    drop((resource, stream, its_stream));
    if step != Step::Close {
        rig.assert_clean();
    }
    assert_eq!(rig.directory.files(), 0, "{what}");
    was_hit
}

fn every_call_of(step: Step) {
    for (name, make) in ways() {
        for code in [Code::OUT_OF_MEMORY, Code::INVALID_VALUE, Code::UNKNOWN] {
            let mut calls = 0;
            while fails(name, make, step, calls + 1, code) {
                calls += 1;
                assert!(calls < MOST_CALLS, "{name}: {step:?} does not come to an end");
            }
            assert!(calls > 0 || step == Step::End, "{name}: {step:?} makes calls");
        }
    }
}

#[test]
fn of_a_share() {
    every_call_of(Step::Share);
}

#[test]
fn of_an_open() {
    every_call_of(Step::Open);
}

#[test]
fn of_a_close() {
    every_call_of(Step::Close);
}

#[test]
fn of_an_end() {
    every_call_of(Step::End);
}
