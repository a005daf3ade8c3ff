//! Guards, kernels under them, and what is ordered behind what: on a machine that reports every hazard.

#![expect(unsafe_code, reason = "takes containers apart, and drops what outlives its thread")]

use std::mem;
use std::sync::Arc;

use alluvion::driver::Call;
use alluvion::sim::{HazardKind, Kernel, SimConfig, explore};
use alluvion::{DeviceScalar, DeviceVec, ReadGuard, Sim, Stream};

use crate::machine::{SEEDS, check, doubling, launch, sim_of, summing};

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
            launch(&sim, write.stream(), doubling(write.as_device_ptr().unguarded().address(), 64));
            drop(write);
            let (mut low, mut high) = sums.as_mut_slice().split_at_mut(1).unwrap();
            for (stream, sum) in [(&home, &mut low), (&right, &mut high)] {
                let read = vector.read_on(stream.as_ref()).unwrap();
                let write = sum.reborrow().write_on(stream.as_ref()).unwrap();
                let kernel = summing(
                    read.as_device_ptr().unguarded().address(),
                    64,
                    write.as_device_ptr().unguarded().address(),
                );
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
        launch(&sim, other.as_ref(), doubling(write.as_device_ptr().unguarded().address(), 64));
        mem::forget(write);
        vector.resize(100, 2, home.as_ref()).unwrap();
        let read = vector.read_on(other.as_ref()).unwrap();
        let mut sum = DeviceScalar::<u32>::uninit(other.as_ref()).unwrap();
        launch(
            &sim,
            other.as_ref(),
            summing(
                read.as_device_ptr().unguarded().address(),
                100,
                sum.as_mut_slice().as_device_ptr().address(),
            ),
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
        let address = write.as_device_ptr().unguarded().address();
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
            launch(&sim, guard.stream(), doubling(guard.as_device_ptr().unguarded().address(), 32));
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
        launch(
            &sim,
            right.as_ref(),
            Kernel::new("look").reads(read.as_device_ptr().unguarded().address(), 16),
        );
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
