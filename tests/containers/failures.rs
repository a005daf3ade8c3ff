//! Calls that fail and contexts that are lost: what is kept, what is said, and what is leaked.

use std::mem;

use alluvion::driver::{Call, Code};
use alluvion::sim::Fault;
use alluvion::{DeviceBuffer, DeviceVec, Error, ErrorKind, Stream};

use crate::container_contract::rig::{Counting, OneBlock};
use crate::machine::{SEEDS, check, doubling, launch, sim_of};

type Pinned = allocator_api2::vec::Vec<u32, OneBlock>;

/// What a sweep does with two streams and a vector, step by step. Each step may fail, and the vector is whole after it.
fn steps(home: &Stream, other: &Stream, resource: &Counting, mut host: Pinned) -> Result<(), Error> {
    let (h, o) = (home.as_ref(), other.as_ref());
    let mut vector = DeviceVec::from_slice_in(&[1_u32, 2, 3], h, resource.clone())?;
    let mut expected = vec![1, 2, 3];
    // A call that fails may be one that the check itself makes: it is made again.
    let whole = |vector: &DeviceVec<u32, Counting>, expected: &[u32]| {
        let found = vector
            .to_vec(h)
            .or_else(|_| vector.to_vec(h))
            .or_else(|_| vector.to_vec(h))
            .expect("one call fails");
        assert_eq!(found, expected);
    };
    let mut failed = Ok(());
    macro_rules! step {
        ($step:expr, $after:expr) => {
            match $step {
                Ok(_) => $after,
                Err(error) => failed = failed.and(Err(Error::from(error))),
            }
            whole(&vector, &expected);
        };
    }
    step!(vector.resize(1000, 7, o), expected.resize(1000, 7));
    step!(vector.reserve(5000, h), ());
    step!(vector.reserve_exact(10_000, o), ());
    step!(vector.extend_from_slice(&[8; 100], o), expected.extend([8; 100]));
    step!(vector.shrink_to_fit(o), ());
    step!(vector.try_clone(o).map(drop), ());
    step!(vector.set_stream(o), ());
    step!(vector.set(0, 5, h), expected[0] = 5);
    step!(vector.read_on(h).map(drop), ());
    step!(vector.write_on(h).map(mem::forget), ());
    let len = vector.len();
    host.truncate(len);
    step!(vector.download(host, h).map(drop), ());
    let mut back = vec![0; len];
    step!(h.scope(|scope| scope.download(&vector, &mut back)), assert_eq!(back, expected));
    step!(DeviceVec::<f64, _>::filled_in(2000, 0.1, h, resource.clone()).map(drop), ());
    step!(DeviceBuffer::zeroed_in(9, o, resource.clone()).map(drop), ());
    step!(vector.set_stream(h), ());
    vector.truncate(0);
    expected.clear();
    step!(vector.shrink_to_fit(o), ());
    failed
}

#[test]
fn whichever_call_fails_nothing_is_lost() {
    let run = |fail: Option<u64>| {
        let sim = sim_of(7);
        let device = sim.device(0);
        let (home, other) = (device.stream().unwrap(), device.stream().unwrap());
        let (resource, pinned) = (Counting::new(&device), OneBlock::new(&device));
        let host = pinned.filled(1100, 0_u32);
        let before = sim.calls().total();
        if let Some(n) = fail {
            sim.inject(Fault::nth_call(n, Code::OUT_OF_MEMORY));
        }
        let outcome = steps(&home, &other, &resource, host);
        let calls = sim.calls().total() - before;
        sim.clear_faults();
        pinned.finish();
        let (allocated, freed) = resource.counts();
        assert_eq!(allocated, freed, "call {fail:?}");
        (sim, outcome, calls)
    };
    let (sim, outcome, calls) = run(None);
    outcome.unwrap();
    check(&sim, "no failure");
    assert!(calls > 100, "the sweep is long enough to mean something: {calls}");
    let mut failures = 0;
    for n in 1..=calls {
        let (sim, outcome, _) = run(Some(n));
        failures += u64::from(outcome.is_err());
        let context = format!("call {n}");
        assert!(sim.hazards().is_empty(), "{context}: {:#?}", sim.hazards());
    }
    // Many a failure is made up for: a wait on the device by one on the host, an event by a wait.
    assert!(failures > calls / 4, "{failures} of {calls}");
}

#[test]
fn a_wait_that_fails_is_made_again_before_a_borrow_ends() {
    for call in [Call::StreamSynchronize, Call::EventSynchronize, Call::EventRecord, Call::EventCreate] {
        let sim = sim_of(1);
        let device = sim.device(0);
        let (stream, pinned) = (device.stream().unwrap(), OneBlock::new(&device));
        let mut vector = DeviceVec::<u32>::uninit(50_000, stream.as_ref()).unwrap();
        let mut host = pinned.filled(50_000, 4_u32);
        sim.inject(Fault::every(call, Code::OUT_OF_MEMORY));
        vector.copy_from_slice(&host, stream.as_ref()).unwrap();
        host.fill(5);
        stream.scope(|scope| scope.upload(&mut vector, &host)).unwrap();
        host.fill(6);
        let transfer = vector.upload(host, stream.as_ref()).unwrap();
        let mut host = transfer.wait().unwrap();
        host.fill(7);
        sim.clear_faults();
        assert_eq!(vector.to_vec(stream.as_ref()).unwrap(), [6; 50_000], "{call:?}");
        // Every way of waiting fails, twice.
        for n in [1, 2] {
            for call in [Call::StreamSynchronize, Call::ContextSynchronize, Call::EventSynchronize] {
                sim.inject(Fault::nth(call, n, Code::OUT_OF_MEMORY));
            }
        }
        vector.copy_from_slice(&host, stream.as_ref()).unwrap();
        host.fill(8);
        sim.clear_faults();
        assert_eq!(vector.to_vec(stream.as_ref()).unwrap(), [7; 50_000], "{call:?}");
        drop((host, vector));
        pinned.finish();
        check(&sim, call.symbol());
    }
}

#[test]
fn a_drop_that_cannot_wait_on_the_device_waits_on_the_host() {
    for call in [Call::StreamWaitEvent, Call::EventRecord, Call::EventCreate, Call::StreamCaptureStatus] {
        let sim = sim_of(2);
        let device = sim.device(0);
        let (home, other) = (device.stream().unwrap(), device.stream().unwrap());
        let resource = Counting::new(&device);
        let mut vector = DeviceVec::filled_in(64, 1_u32, home.as_ref(), resource.clone()).unwrap();
        let write = vector.write_on(other.as_ref()).unwrap();
        launch(&sim, other.as_ref(), doubling(write.as_device_ptr().unguarded().address(), 64));
        drop(write);
        sim.inject(Fault::every(call, Code::OUT_OF_MEMORY));
        drop(vector);
        assert_eq!(resource.counts(), (1, 1), "{call:?}");
        sim.clear_faults();
        check(&sim, call.symbol());
    }
}

#[test]
fn a_drop_that_cannot_wait_at_all_leaks() {
    let sim = sim_of(2);
    let device = sim.device(0);
    let (home, other) = (device.stream().unwrap(), device.stream().unwrap());
    let resource = Counting::new(&device);
    let mut vector = DeviceVec::filled_in(64, 1_u32, home.as_ref(), resource.clone()).unwrap();
    vector.fill(2, other.as_ref()).unwrap();
    for call in [Call::StreamWaitEvent, Call::EventSynchronize, Call::StreamSynchronize] {
        sim.inject(Fault::every(call, Code::OUT_OF_MEMORY));
    }
    drop(vector);
    assert_eq!((resource.counts(), sim.live().device), ((1, 0), 1));
    sim.clear_faults();
    assert!(sim.hazards().is_empty());
}

#[test]
fn an_old_block_that_is_leaked_leaves_the_new_one_in_order() {
    for seed in 0..SEEDS {
        let sim = sim_of(seed);
        let device = sim.device(0);
        let (home, other) = (device.stream().unwrap(), device.stream().unwrap());
        let resource = Counting::new(&device);
        let mut vector = DeviceVec::filled_in(64, 1_u32, home.as_ref(), resource.clone()).unwrap();
        // The first wait is for the elements, the second one for the copy before the old block is given back.
        sim.inject(Fault::nth(Call::StreamWaitEvent, 2, Code::OUT_OF_MEMORY));
        for call in [Call::EventSynchronize, Call::StreamSynchronize] {
            sim.inject(Fault::every(call, Code::OUT_OF_MEMORY));
        }
        vector.reserve(100, other.as_ref()).unwrap();
        assert_eq!((sim.faults_left(), resource.counts()), (2, (2, 0)));
        sim.clear_faults();
        vector.set(0, 2, home.as_ref()).unwrap();
        assert_eq!(vector.get(0, home.as_ref()).unwrap(), 2, "seed {seed}");
        drop(vector);
        assert!(sim.hazards().is_empty(), "seed {seed}: {:#?}", sim.hazards());
        assert_eq!(resource.counts(), (2, 1));
    }
}

#[test]
fn scenario_19_a_lost_context_is_silent_in_drops_and_loud_elsewhere() {
    let sim = sim_of(3);
    let device = sim.device(0);
    let (home, other) = (device.stream().unwrap(), device.stream().unwrap());
    let pinned = OneBlock::new(&device);
    let mut vector = DeviceVec::filled(64, 1_u32, home.as_ref()).unwrap();
    let mut buffer = DeviceBuffer::zeroed(64, other.as_ref()).unwrap();
    vector.fill(2, other.as_ref()).unwrap();
    let transfer = vector.upload(pinned.filled(64, 3_u32), other.as_ref()).unwrap();
    let dropped = vector.download(vec![0; 64], home.as_ref()).unwrap();
    let guard = vector.read_on(other.as_ref()).unwrap();
    sim.poison(0, Code::ILLEGAL_ADDRESS);
    drop(guard);
    drop(dropped);
    let errors = [
        transfer.wait().unwrap_err(),
        DeviceVec::<u32>::uninit(1, home.as_ref()).unwrap_err(),
        vector.to_vec(home.as_ref()).unwrap_err(),
        vector.get(0, other.as_ref()).unwrap_err(),
        vector.reserve(1000, other.as_ref()).unwrap_err(),
        vector.fill(3, home.as_ref()).unwrap_err(),
        vector.try_clone(other.as_ref()).unwrap_err(),
        buffer.copy_from_slice(&[0; 64], other.as_ref()).unwrap_err(),
        home.scope(|scope| scope.upload(&mut buffer, &[0; 64])).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(
            (error.kind(), error.code()),
            (ErrorKind::ContextLost, Some(Code::ILLEGAL_ADDRESS)),
            "{error}"
        );
    }
    drop((vector, buffer));
    drop((home, other));
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
}

#[test]
fn a_context_that_is_lost_in_a_scope_ends_it() {
    let sim = sim_of(4);
    let device = sim.device(0);
    let stream = device.stream().unwrap();
    let mut vector = DeviceVec::<u32>::uninit(64, stream.as_ref()).unwrap();
    let lost = stream.scope(|scope| {
        scope.upload(&mut vector, &[1; 64])?;
        sim.poison(0, Code::LAUNCH_FAILED);
        Ok(())
    });
    assert!(lost.unwrap_err().is_context_lost());
}
