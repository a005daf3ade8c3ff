//! What containers promise, on simulated machines; and what only these can show: hazards, failures of every call, a
//! lost context.

#![expect(unsafe_code, reason = "launches kernels, and calls the driver beside the containers")]

use std::mem;
use std::sync::Arc;

use alluvion::ResourceExt;
use alluvion::driver::sim::{Fault, HazardKind, Kernel, SimConfig, explore};
use alluvion::driver::{Call, CaptureMode, Code};
use alluvion::source::Cuda;
use alluvion::{
    AnyResource, Device, DeviceBuffer, DeviceScalar, DeviceSlice, DeviceVec, Error, ErrorKind, Machine,
    ReadGuard, Sim, Stream, StreamRef,
};

use crate::container_contract;
use crate::container_contract::rig::{Counting, OneBlock};

/// Enough for every order of a handful of operations to come up; a run takes well under a millisecond.
const SEEDS: u64 = 200;

fn sim_of(seed: u64) -> Sim {
    Sim::with_config(SimConfig::default().devices(2).seed(seed))
}

/// No mistake was made, and nothing is out. The initial resource goes first, with the pool that it has.
fn check(sim: &Sim, context: &str) {
    assert!(sim.hazards().is_empty(), "{context}: {:#?}", sim.hazards());
    sim.machine().reset_current_resources();
    // A pool is destroyed once its frees have run. A device that is lost keeps what it had.
    sim.machine().devices().for_each(|device| drop(device.synchronize()));
    let live = sim.live();
    assert_eq!((live.allocations(), live.pools), (0, 0), "{context}: {live}");
}

/// The clauses hold whatever the machine leaves to chance.
fn on_sim(clause: fn(&Device) -> Result<(), Error>) {
    for seed in 0..3 {
        let sim = sim_of(seed);
        clause(&sim.device(0)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        check(&sim, &format!("seed {seed}"));
    }
}

container_contract::clauses!(on_sim);

fn launch(sim: &Sim, stream: StreamRef<'_>, kernel: Kernel) {
    // SAFETY: the stream is borrowed. The kernel touches memory of a container, in the order that is under test; the
    // simulator reports what conflicts, and what touches memory that is gone.
    unsafe { sim.launch(stream.device().ordinal(), stream.raw(), kernel) }.expect("a kernel can be launched");
}

fn doubling(address: u64, len: usize) -> Kernel {
    Kernel::new("double").writes(address, 4 * len).run(move |memory| {
        for at in (address..).step_by(4).take(len) {
            let value = memory.read_u32(at);
            memory.write_u32(at, value.wrapping_mul(2));
        }
    })
}

fn summing(from: u64, len: usize, to: u64) -> Kernel {
    Kernel::new("sum").reads(from, 4 * len).writes(to, 4).run(move |memory| {
        let values = (from..).step_by(4).take(len).map(|at| memory.read_u32(at));
        let sum = values.fold(0, u32::wrapping_add);
        memory.write_u32(to, sum);
    })
}

#[test]
fn kernels_under_guards_follow_and_are_followed() {
    for seed in 0..SEEDS {
        let sim = sim_of(seed);
        let device = sim.device(0);
        let [home, left, right] = [(); 3].map(|()| device.stream().unwrap());
        let mut vector = DeviceVec::filled(64, 1_u32, home.as_ref()).unwrap();
        let mut sums = DeviceVec::<u32>::uninit(2, right.as_ref()).unwrap();
        for _ in 0..3 {
            let write = vector.write_on(left.as_ref()).unwrap();
            launch(&sim, write.stream(), doubling(write.as_device_ptr().address(), 64));
            drop(write);
            let (mut low, mut high) = sums.as_mut_slice().split_at_mut(1).unwrap();
            for (stream, sum) in [(&home, &mut low), (&right, &mut high)] {
                let read = vector.read_on(stream.as_ref()).unwrap();
                let write = sum.reborrow().write_on(stream.as_ref()).unwrap();
                let kernel = summing(read.as_device_ptr().address(), 64, write.as_device_ptr().address());
                launch(&sim, stream.as_ref(), kernel);
            }
        }
        drop(vector);
        // Most likely the block of the vector that is gone.
        let next = DeviceVec::filled(64, 0_u32, home.as_ref()).unwrap();
        assert_eq!(sums.to_vec(left.as_ref()).unwrap(), [8 * 64; 2], "seed {seed}");
        drop((next, sums));
        check(&sim, &format!("seed {seed}"));
    }
}

#[test]
fn kernels_under_leaked_guards_follow_and_are_followed() {
    for seed in 0..SEEDS {
        let sim = sim_of(seed);
        let device = sim.device(0);
        let (home, other) = (device.stream().unwrap(), device.stream().unwrap());
        let mut vector = DeviceVec::filled(64, 1_u32, home.as_ref()).unwrap();
        let write = vector.write_on(other.as_ref()).unwrap();
        launch(&sim, other.as_ref(), doubling(write.as_device_ptr().address(), 64));
        mem::forget(write);
        vector.resize(100, 2, home.as_ref()).unwrap();
        let read = vector.read_on(other.as_ref()).unwrap();
        let mut sum = DeviceScalar::<u32>::uninit(other.as_ref()).unwrap();
        launch(
            &sim,
            other.as_ref(),
            summing(read.as_device_ptr().address(), 100, sum.as_mut_slice().as_device_ptr().address()),
        );
        mem::forget(read);
        if seed % 2 == 0 {
            vector.clear();
            vector.shrink_to_fit(home.as_ref()).unwrap();
        }
        drop(vector);
        let next = DeviceVec::filled(100, 0_u32, home.as_ref()).unwrap();
        assert_eq!(sum.value(other.as_ref()).unwrap(), 200, "seed {seed}");
        drop((next, sum));
        check(&sim, &format!("seed {seed}"));
    }
}

#[test]
fn a_guard_that_was_leaked_on_a_former_home_is_followed() {
    for seed in 0..SEEDS {
        let sim = sim_of(seed);
        let device = sim.device(0);
        let (home, next) = (device.stream().unwrap(), device.stream().unwrap());
        let mut vector = DeviceVec::filled(64, 1_u32, home.as_ref()).unwrap();
        let write = vector.write_on(home.as_ref()).unwrap();
        let address = write.as_device_ptr().address();
        mem::forget(write);
        vector.set_stream(next.as_ref()).unwrap();
        launch(&sim, home.as_ref(), doubling(address, 64));
        assert_eq!(vector.to_vec(next.as_ref()).unwrap(), [2; 64], "seed {seed}");
        drop(vector);
        check(&sim, &format!("seed {seed}"));
    }
}

/// A guard in a thread-local outlives the thread's hold on its default stream.
#[test]
fn a_guard_may_outlive_the_stream_of_its_thread() {
    use std::cell::RefCell;

    thread_local! {
        static GUARD: RefCell<Option<ReadGuard<'static, u32>>> = const { RefCell::new(None) };
    }
    for home_is_the_threads in [true, false] {
        let sim = sim_of(0);
        let device = sim.device(0);
        let vector = std::thread::spawn(move || {
            // First, so that it is dropped last.
            GUARD.with_borrow_mut(|guard| *guard = None);
            let mine = device.per_thread_stream().unwrap();
            let home = if home_is_the_threads { (*mine).clone() } else { device.stream().unwrap() };
            let vector = Box::leak(Box::new(DeviceVec::filled(4, 1_u32, home.as_ref()).unwrap()));
            let address: *mut DeviceVec<u32> = vector;
            let stream: &'static Stream = Box::leak(Box::new((*mine).clone()));
            let guard = vector.read_on(stream.as_ref()).unwrap();
            GUARD.with_borrow_mut(|place| *place = Some(guard));
            address.expose_provenance()
        })
        .join()
        .expect("the guard is dropped without a panic");
        // SAFETY: the box was leaked by the thread, and its guard went with the thread.
        drop(unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut::<DeviceVec<u32>>(vector)) });
        assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
        let live = sim.live();
        assert_eq!(live.allocations(), 0, "{live}");
    }
}

#[test]
fn guards_of_two_halves_do_not_forget_each_other() {
    for seed in 0..SEEDS {
        let sim = sim_of(seed);
        let device = sim.device(0);
        let [home, left, right] = [(); 3].map(|()| device.stream().unwrap());
        let mut vector = DeviceVec::filled(64, 1_u32, home.as_ref()).unwrap();
        let (low, high) = vector.as_mut_slice().split_at_mut(32).unwrap();
        let low = low.write_on(left.as_ref()).unwrap();
        let high = high.write_on(right.as_ref()).unwrap();
        for guard in [&low, &high] {
            launch(&sim, guard.stream(), doubling(guard.as_device_ptr().address(), 32));
        }
        mem::forget(low);
        drop(high);
        assert_eq!(vector.to_vec(home.as_ref()).unwrap(), [2; 64], "seed {seed}");
        drop(vector);
        check(&sim, &format!("seed {seed}"));
    }
}

#[test]
fn every_schedule_of_three_streams_has_one_outcome() {
    let explored = explore(SimConfig::default(), |driver| {
        let sim = Sim::with_driver(Arc::clone(driver));
        let device = sim.device(0);
        let [home, left, right] = [(); 3].map(|()| device.stream().unwrap());
        let mut vector = DeviceVec::filled(4, 1_u32, home.as_ref()).unwrap();
        vector.fill(2, left.as_ref()).unwrap();
        // Two that read, and need not wait for each other.
        let mut copy = DeviceVec::<u32>::uninit(4, left.as_ref()).unwrap();
        copy.copy_from(vector.as_slice(), left.as_ref()).unwrap();
        let read = vector.read_on(right.as_ref()).unwrap();
        launch(&sim, right.as_ref(), Kernel::new("look").reads(read.as_device_ptr().address(), 16));
        mem::forget(read);
        vector.resize(6, 3, home.as_ref()).unwrap();
        drop(vector);
        let next = DeviceVec::filled(6, 9_u32, home.as_ref()).unwrap();
        let host = copy.download(vec![0; 4], right.as_ref()).unwrap();
        drop(copy);
        assert_eq!(host.wait().unwrap(), [2; 4]);
        assert_eq!(next.to_vec(left.as_ref()).unwrap(), [9; 6]);
        drop(next);
        check(&sim, "exploration");
    });
    println!("{explored:?}");
    assert!(explored.complete && explored.schedules > 10, "{explored:?}");
}

#[test]
fn many_streams_that_are_done_do_not_add_up() {
    let sim = sim_of(0);
    let device = sim.device(0);
    let home = device.stream().unwrap();
    let mut vector = DeviceVec::filled(64, 1_u32, home.as_ref()).unwrap();
    for _ in 0..100 {
        let other = device.stream().unwrap();
        drop(vector.read_on(other.as_ref()).unwrap());
        vector.to_vec(other.as_ref()).unwrap();
    }
    let parts = vector.into_raw_parts();
    assert!(parts.frontier.len() <= 9, "{parts:?}");
    // SAFETY: the parts of this vector, unchanged.
    vector = unsafe { DeviceVec::from_raw_parts(parts) };
    // One that writes follows all of them, and stands for them.
    vector.fill(2, device.stream().unwrap().as_ref()).unwrap();
    let parts = vector.into_raw_parts();
    assert_eq!(parts.frontier.len(), 1);
    // SAFETY: as above.
    drop(unsafe { DeviceVec::<u32, _>::from_raw_parts(parts) });
    drop(home);
    check(&sim, "many streams");
}

#[test]
fn the_stand_in_for_a_threads_stream_is_a_use_of_its_own() {
    let sim = sim_of(0);
    let device = sim.device(0);
    let mine = device.per_thread_stream().unwrap();
    let mut vector = DeviceVec::filled(64, 1_u32, mine.as_ref()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let home = vector.stream().to_stream();
            vector.fill(2, home.as_ref()).unwrap();
        });
    });
    let parts = vector.into_raw_parts();
    let legacy = device.default_stream();
    assert_eq!(parts.frontier.iter().map(|stamp| stamp.stream()).collect::<Vec<_>>(), [legacy.id()]);
    // SAFETY: the parts of this vector, unchanged.
    let vector = unsafe { DeviceVec::<u32, _>::from_raw_parts(parts) };
    assert_eq!(vector.to_vec(mine.as_ref()).unwrap(), [2; 64]);
    drop(vector);
    check(&sim, "stand-in");
}

/// The same without guards: what the guards are for.
#[test]
fn kernels_without_guards_are_hazards() {
    for seed in 0..SEEDS {
        let sim = sim_of(seed);
        let device = sim.device(0);
        let (home, other) = (device.stream().unwrap(), device.stream().unwrap());
        let vector = DeviceVec::filled(64, 1_u32, home.as_ref()).unwrap();
        launch(&sim, other.as_ref(), doubling(vector.as_device_ptr().address(), 64));
        vector.to_vec(home.as_ref()).unwrap();
        device.synchronize().unwrap();
        let hazards = sim.take_hazards();
        assert!(hazards.iter().any(|hazard| hazard.kind() == HazardKind::Race), "seed {seed}: {hazards:#?}");
        launch(&sim, other.as_ref(), doubling(vector.as_device_ptr().address(), 64));
        drop(vector);
        // An error says that the device found what was freed behind nothing to be gone.
        let _ = device.synchronize();
        assert!(!sim.hazards().is_empty(), "seed {seed}: freed while in use");
    }
}

#[test]
fn a_use_that_is_recorded_is_followed() {
    for seed in 0..SEEDS {
        let sim = sim_of(seed);
        let device = sim.device(0);
        let (home, other) = (device.stream().unwrap(), device.stream().unwrap());
        let vector = DeviceVec::filled(64, 1_u32, home.as_ref()).unwrap();
        other.wait_for_stream(&home).unwrap();
        launch(&sim, other.as_ref(), doubling(vector.as_device_ptr().address(), 64));
        vector.record_use(other.as_ref()).unwrap();
        assert_eq!(vector.to_vec(home.as_ref()).unwrap(), [2; 64], "seed {seed}");
        drop(vector);
        check(&sim, &format!("seed {seed}"));
    }
}

#[test]
fn one_stream_costs_no_driver_call() {
    let sim = sim_of(0);
    let stream = sim.device(0).stream().unwrap();
    let mut vector = DeviceVec::filled(64, 1_u32, stream.as_ref()).unwrap();
    let count = |body: &mut dyn FnMut()| {
        let before = sim.calls();
        body();
        sim.calls()
            .iter()
            .map(|(call, made)| (call, made - before[call]))
            .filter(|(_, made)| *made > 0)
            .collect::<Vec<_>>()
    };
    assert_eq!(count(&mut || vector.fill(2, stream.as_ref()).unwrap()), [(Call::FillAsync, 1)]);
    assert_eq!(count(&mut || vector.set(1, 3, stream.as_ref()).unwrap()), [(Call::FillAsync, 1)]);
    assert_eq!(count(&mut || drop(vector.read_on(stream.as_ref()).unwrap())), []);
    assert_eq!(count(&mut || drop(vector.write_on(stream.as_ref()).unwrap())), []);
}

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
        launch(&sim, other.as_ref(), doubling(write.as_device_ptr().address(), 64));
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

#[test]
fn a_capture_is_left_whole() {
    let sim = sim_of(8);
    let device = sim.device(0);
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let (s, o) = (stream.as_ref(), other.as_ref());
    let resource = Counting::new(&device);
    let mut vector = DeviceVec::filled_in(4, 1_u32, s, resource.clone()).unwrap();
    let mut foreign = DeviceVec::filled_in(4, 2_u32, o, resource.clone()).unwrap();
    let mut used = DeviceVec::filled_in(4, 3_u32, s, resource.clone()).unwrap();
    used.fill(4, o).unwrap();
    sim.begin_capture(0, s.raw(), CaptureMode::Global).unwrap();
    let refused = [
        vector.to_vec(s).unwrap_err(),
        vector.get(0, s).unwrap_err(),
        vector.copy_from_slice(&[1; 4], s).unwrap_err(),
        vector.upload(vec![1; 4], s).unwrap_err().into(),
        vector.download(vec![1; 4], s).unwrap_err().into(),
        s.scope(|scope| scope.upload(&mut vector, &[1; 4])).unwrap_err(),
        DeviceVec::filled_in(4, 0.1_f64, s, resource.clone()).unwrap_err(),
        // Into the capture, and out of it.
        foreign.read_on(s).map(drop).unwrap_err(),
        foreign.fill(1, s).unwrap_err(),
        foreign.copy_from(vector.as_slice(), o).unwrap_err(),
        vector.to_vec(o).unwrap_err(),
        vector.set_stream(o).unwrap_err(),
        used.fill(1, s).unwrap_err(),
    ];
    assert!(refused.iter().all(Error::is_capture), "{refused:?}");
    // What is all on the stream is recorded, and what is all beside it goes on.
    vector.fill(7, s).unwrap();
    vector.set(1, 8, s).unwrap();
    assert_eq!(foreign.to_vec(o).unwrap(), [2; 4]);
    // Its home captures, so it waits for the other stream on the host.
    drop(used);
    let graph = sim.end_capture(0, s.raw()).unwrap();
    assert_eq!(vector.to_vec(s).unwrap(), [1; 4]);
    let write = vector.write_on(s).unwrap();
    // SAFETY: the stream is borrowed; the graph touches the vector, which is borrowed for this stream.
    unsafe { sim.launch_graph(0, s.raw(), &graph) }.unwrap();
    drop(write);
    assert_eq!(vector.to_vec(o).unwrap(), [7, 8, 7, 7]);
    drop((graph, vector, foreign));
    assert_eq!(resource.counts(), (4, 4));
    check(&sim, "capture");
}

/// cudarc captures such streams, and launches the graph, by safe functions.
#[test]
fn nothing_of_a_container_is_recorded_for_graphs_that_safe_code_launches() {
    let sim = sim_of(0);
    let device = sim.device(0);
    let owner = Arc::new(device.stream().unwrap());
    // SAFETY: the stream is live while its owner is, and no default stream.
    let foreign =
        unsafe { Stream::from_owner(&device, owner.as_ref().as_ref().raw(), owner.clone()) }.unwrap();
    let mine = device.per_thread_stream().unwrap();
    for stream in [&foreign, &*mine] {
        let raw = stream.as_ref().raw();
        let stream = stream.as_ref();
        let mut vector = DeviceVec::filled(4, 1_u32, stream).unwrap();
        let other = DeviceVec::filled(4, 2_u32, stream).unwrap();
        sim.begin_capture(0, raw, CaptureMode::Relaxed).unwrap();
        for refused in [
            vector.fill(3, stream),
            vector.set(0, 3, stream),
            vector.copy_from(other.as_slice(), stream),
            vector.reserve(100, stream),
            DeviceVec::<u32>::uninit(4, stream).map(drop),
        ] {
            assert!(refused.unwrap_err().is_capture());
        }
        let read = vector.read_on(stream).unwrap();
        drop(read);
        sim.end_capture(0, raw).unwrap();
        assert_eq!(vector.to_vec(stream).unwrap(), [1; 4]);
    }
    drop(mine);
    check(&sim, "captured by others");
}

#[test]
fn a_block_whose_user_captures_is_leaked() {
    let sim = sim_of(8);
    let device = sim.device(0);
    let (home, other) = (device.stream().unwrap(), device.stream().unwrap());
    let resource = Counting::new(&device);
    let mut vector = DeviceVec::filled_in(4, 1_u32, home.as_ref(), resource.clone()).unwrap();
    vector.fill(2, other.as_ref()).unwrap();
    sim.begin_capture(0, other.as_ref().raw(), CaptureMode::Global).unwrap();
    drop(vector);
    sim.end_capture(0, other.as_ref().raw()).unwrap();
    assert_eq!(resource.counts(), (1, 0));
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
}

#[test]
fn a_capture_that_begins_in_a_scope_does_not_hold_it_up() {
    let sim = sim_of(9);
    let device = sim.device(0);
    let (stream, pinned) = (device.stream().unwrap(), OneBlock::new(&device));
    let mut vector = DeviceVec::<u32>::uninit(1000, stream.as_ref()).unwrap();
    let mut host = pinned.filled(1000, 3_u32);
    let raw = stream.as_ref().raw();
    stream
        .scope(|scope| {
            scope.upload(&mut vector, &host)?;
            sim.begin_capture(0, raw, CaptureMode::Global).unwrap();
            Ok(())
        })
        .unwrap();
    host.fill(4);
    let transfer = vector.upload(vec![0; 1000], stream.as_ref()).unwrap_err();
    assert_eq!(transfer.into_host(), Some(vec![0; 1000]));
    sim.end_capture(0, raw).unwrap();
    assert_eq!(vector.to_vec(stream.as_ref()).unwrap(), [3; 1000]);
    drop((vector, host));
    pinned.finish();
    check(&sim, "capture in a scope");
}

#[test]
fn scenario_13_two_devices() {
    let sim = sim_of(5);
    let (first, second) = (sim.device(0), sim.device(1));
    let (here, there) = (first.stream().unwrap(), second.stream().unwrap());
    let elsewhere = sim_of(5);
    let abroad = elsewhere.device(0).stream().unwrap();
    let mut vector = DeviceVec::from_slice(&[1_u32, 2, 3], here.as_ref()).unwrap();
    for stream in [&there, &abroad] {
        let s = stream.as_ref();
        let errors = [
            vector.to_vec(s).unwrap_err(),
            vector.get(0, s).unwrap_err(),
            vector.set(0, 1, s).unwrap_err(),
            vector.fill(0, s).unwrap_err(),
            vector.resize(10, 0, s).unwrap_err(),
            vector.reserve_exact(0, s).unwrap_err(),
            vector.shrink_to_fit(s).unwrap_err(),
            vector.set_stream(s).unwrap_err(),
            vector.copy_from_slice(&[7; 3], s).unwrap_err(),
            vector.upload(vec![7; 3], s).unwrap_err().into(),
            DeviceVec::<u32, _>::uninit_in(0, s, Cuda::new(&first)).unwrap_err(),
        ];
        assert!(errors.iter().all(Error::is_device_mismatch), "{errors:?}");
    }
    // A guard, or a use by another device is for whoever has access between them; by another machine there is none.
    drop(vector.read_on(there.as_ref()).unwrap());
    vector.record_use(there.as_ref()).unwrap();
    assert!(vector.record_use(abroad.as_ref()).unwrap_err().is_device_mismatch());
    assert!(vector.read_on(abroad.as_ref()).unwrap_err().is_device_mismatch());
    assert!(vector.write_on(abroad.as_ref()).unwrap_err().is_device_mismatch());
    // Between devices the stream is of either.
    let mut far = DeviceVec::<u32>::zeroed(3, there.as_ref()).unwrap();
    far.copy_from(vector.as_slice(), here.as_ref()).unwrap();
    vector.fill(9, here.as_ref()).unwrap();
    assert_eq!(far.to_vec(there.as_ref()).unwrap(), [1, 2, 3]);
    vector.copy_from(far.as_slice(), there.as_ref()).unwrap();
    drop(far);
    assert_eq!(vector.to_vec(here.as_ref()).unwrap(), [1, 2, 3]);
    let stranger = DeviceVec::<u32>::zeroed(3, abroad.as_ref()).unwrap();
    assert!(vector.copy_from(stranger.as_slice(), here.as_ref()).unwrap_err().is_device_mismatch());
    drop((vector, stranger));
    check(&sim, "two devices");
    check(&elsewhere, "another machine");
}

#[test]
fn a_container_keeps_its_resource_and_its_machine() {
    let sim = sim_of(6);
    let stream = sim.device(0).stream().unwrap();
    let vector = {
        let resource = Arc::new(Cuda::new(&sim.device(0)));
        DeviceVec::filled_in(8, 1_u8, stream.as_ref(), resource).unwrap()
    };
    let device = sim.device(0);
    device.set_current_resource(AnyResource::new(Cuda::new(&device))).unwrap();
    let current = DeviceVec::filled(8, 1_u8, stream.as_ref()).unwrap();
    device.reset_current_resource().unwrap();
    assert_eq!(format!("{}", current.resource().describe()), "Cuda(gpu 0)");
    let machine: Machine = sim.machine().clone();
    let driver = Arc::clone(sim.sim_driver());
    drop((sim, stream, device, machine));
    assert_eq!(vector.to_vec(vector.stream()).unwrap(), [1; 8]);
    drop((vector, current));
    assert!(driver.hazards().is_empty());
    assert_eq!(driver.live().allocations(), 0);
}

#[test]
fn containers_say_what_they_are() {
    let sim = sim_of(0);
    let stream = sim.device(0).stream().unwrap();
    let mut vector =
        DeviceVec::from_slice_in(&[1_u32, 2], stream.as_ref(), Cuda::new(&sim.device(0))).unwrap();
    vector.reserve_exact(1, stream.as_ref()).unwrap();
    let shown = format!("{vector:?}");
    assert!(shown.starts_with("DeviceVec(2 of 3 u32 in DeviceBuffer(8 of 12 bytes at 0x"), "{shown}");
    assert!(shown.ends_with("Cuda(gpu 0)))"), "{shown}");
    let slice: DeviceSlice<'_, u32> = (&vector).into();
    assert!(format!("{slice:?}").starts_with("DeviceSlice(2 elements at 0x"));
    let read = vector.read_on(stream.as_ref()).unwrap();
    assert!(format!("{read:?}").starts_with("ReadGuard(2 elements at 0x"));
    assert_eq!((read.len(), read.is_empty()), (2, false));
}
