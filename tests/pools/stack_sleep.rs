//! Stacks of which only a handle is known sleep as their pools do, and keep what they need.

#![expect(unsafe_code, reason = "puts blocks to sleep")]

use alluvion::compose::StackSleeper;
use alluvion::driver::{Call, Code};
use alluvion::sim::{Fault, SimConfig};
use alluvion::source::Pinned;
use alluvion::tag::{Tag, with_tag};
use alluvion::{
    AnyResource, DevicePtr, DeviceVec, ErrorKind, Frontier, Recipe, ResourceExt as _, Sim, SleepConfig,
    Stream,
};

const MIB: usize = 1 << 20;

fn stack_of(sim: &Sim, recipe: &str) -> (AnyResource, Stream) {
    let recipe: Recipe = recipe.parse().expect("a right recipe");
    let device = sim.device(0);
    (recipe.build(&device).expect("the device has it"), device.stream().expect("there are numbers left"))
}

fn kept_on_the_host(sim: &Sim) -> SleepConfig<'static> {
    SleepConfig::default().keep_in(Pinned::new(&sim.device(0)).expect("addresses are common"))
}

fn sleep(stack: &AnyResource, config: SleepConfig<'static>) -> StackSleeper {
    // SAFETY: no test uses what sleeps.
    unsafe { stack.sleep(config) }.expect("nothing forbids it")
}

#[test]
fn a_stack_sleeps_through_its_layers_and_wakes_with_its_contents() {
    let sim = Sim::with_config(SimConfig::default().seed(3));
    let (stack, stream) = stack_of(&sim, "stats | limiting(64MiB) | tracking | pool | mapped");
    let held: Vec<_> = (1..4_u8)
        .map(|value| DeviceVec::filled_in(3 * MIB, value, &stream, stack.clone()).expect("there is room"))
        .collect();
    let addresses: Vec<_> = held.iter().map(|vector| vector.as_device_ptr().address()).collect();
    let before = sim.device(0).memory_info().expect("the driver answers").free_bytes;

    let sleeper = sleep(&stack, kept_on_the_host(&sim));
    assert!(sleeper.is_asleep() && sleeper.stack().is_same(&stack));
    assert_eq!((sleeper.blocks(), sleeper.kept_bytes()), (3, 9 * MIB));
    assert!(sim.device(0).memory_info().expect("the driver answers").free_bytes >= before + 9 * MIB);
    let refused = DeviceVec::<u8, _>::uninit_in(1, &stream, stack.clone()).expect_err("all of it sleeps");
    assert_eq!(refused.kind(), ErrorKind::Asleep);
    // SAFETY: it does nothing.
    let twice = unsafe { stack.sleep(SleepConfig::default()) };
    assert_eq!(twice.expect_err("it sleeps").kind(), ErrorKind::Asleep);

    sleeper.wake().expect("there is room");
    sleeper.wake().expect("it is awake");
    assert!(!sleeper.is_asleep());
    for ((vector, address), value) in held.iter().zip(addresses).zip(1..) {
        assert_eq!(vector.as_device_ptr().address(), address);
        assert_eq!(vector.back(&stream).expect("it is awake"), value);
    }
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
}

#[test]
fn a_tag_sleeps_by_the_layer_or_by_the_pool_that_knows_it() {
    for recipe in ["stats | tracking | pool | mapped", "stats | pool(checked=true) | mapped"] {
        let sim = Sim::new();
        let (stack, stream) = stack_of(&sim, recipe);
        let make = |tag, value: u8| {
            with_tag(tag, || {
                (
                    DeviceVec::filled_in(2 * MIB, value, &stream, stack.clone()).expect("there is room"),
                    Tag::current(),
                )
            })
        };
        let ((weights, tag), (cache, _)) = (make("weights", 1), make("cache", 2));
        let sleeper = sleep(&stack, kept_on_the_host(&sim).tag(tag));
        assert_eq!(sleeper.blocks(), 1);
        assert_eq!(cache.front(&stream).expect("it is awake"), 2);
        let _more = DeviceVec::<u8, _>::uninit_in(MIB, &stream, stack.clone()).expect("the rest goes on");
        sleeper.wake().expect("there is room");
        assert_eq!(weights.front(&stream).expect("it is awake"), 1);
        assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
    }
    let sim = Sim::new();
    let (stack, _) = stack_of(&sim, "stats | pool(checked=false) | mapped");
    // SAFETY: nothing is out.
    let unknown = unsafe { stack.sleep(SleepConfig::default().tag(with_tag("weights", Tag::current))) };
    assert_eq!(unknown.expect_err("nobody knows tags").kind(), ErrorKind::Unsupported);
}

#[test]
fn a_stack_without_pages_does_not_sleep() {
    let sim = Sim::new();
    for recipe in ["stats | pool | cuda", "cuda-async", "arena | cuda"] {
        let (stack, _) = stack_of(&sim, recipe);
        // SAFETY: nothing is out.
        let refused = unsafe { stack.sleep(SleepConfig::default()) }.expect_err("it has no pages");
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(refused.to_string().contains("pool | mapped"), "{refused}");
    }
}

#[test]
fn a_sleeper_keeps_the_stack_and_one_that_is_dropped_lets_it_go_on() {
    let sim = Sim::new();
    let (stack, stream) = stack_of(&sim, "stats | pool | mapped");
    let forgotten = DeviceVec::filled_in(4 * MIB, 5_u8, &stream, stack.clone()).expect("there is room");
    drop(sleep(&stack, SleepConfig::default()));
    let after = DeviceVec::filled_in(4 * MIB, 6_u8, &stream, stack.clone()).expect("it serves again");
    assert_eq!(after.front(&stream).expect("it is awake"), 6);
    // Without memory until it is freed.
    drop(forgotten);
    drop(after);

    let kept = DeviceVec::filled_in(4 * MIB, 7_u8, &stream, stack.clone()).expect("there is room");
    let sleeper = sleep(&stack, kept_on_the_host(&sim));
    drop(stack);
    sleeper.wake().expect("there is room");
    drop(sleeper);
    assert_eq!(kept.front(&stream).expect("it is awake"), 7);
    drop(kept);
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
}

#[test]
fn a_wake_that_fails_is_tried_again() {
    let sim = Sim::new();
    let (stack, stream) = stack_of(&sim, "stats | pool | mapped");
    let held = DeviceVec::filled_in(6 * MIB, 9_u8, &stream, stack.clone()).expect("there is room");
    let sleeper = sleep(&stack, kept_on_the_host(&sim));
    sim.inject(Fault::nth(Call::MemoryCreate, 2, Code::OUT_OF_MEMORY));
    let short = sleeper.wake().expect_err("the driver refuses");
    assert!(short.is_out_of_memory() && sleeper.is_asleep());
    sleeper.wake().expect("there is room now");
    assert_eq!(held.back(&stream).expect("it is awake"), 9);
    drop((held, sleeper));
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
}

#[test]
fn contents_are_kept_in_a_stack_that_the_host_reaches() {
    let sim = Sim::new();
    let (stack, stream) = stack_of(&sim, "pool | mapped");
    let held = DeviceVec::filled_in(6 * MIB, 3_u8, &stream, stack.clone()).expect("there is room");
    let host: Recipe = "stats | pool | pinned".parse().expect("a right recipe");
    let host = host.build(&sim.device(0)).expect("the device has it");
    let config = SleepConfig::default().keep_in_stack(host.clone()).expect("the host reaches it");
    let sleeper = sleep(&stack, config);
    let kept = || host.find::<alluvion::adaptor::Stats>().expect("there are counters").counts().bytes.live;
    assert_eq!(kept(), 6 << 20);
    sleeper.wake().expect("there is room");
    assert_eq!((kept(), held.back(&stream).expect("it is awake")), (0, 3));

    let device_memory = SleepConfig::default().keep_in_stack(stack.clone());
    assert_eq!(device_memory.expect_err("the host does not reach it").kind(), ErrorKind::InvalidArgument);
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
}

#[test]
fn what_is_kept_is_read_while_it_sleeps() {
    let sim = Sim::new();
    let (stack, stream) = stack_of(&sim, "pool | mapped");
    let first = DeviceVec::from_slice_in(&[1_u8, 2, 3, 4], &stream, stack.clone()).expect("there is room");
    let long = DeviceVec::filled_in(6 * MIB, 9_u8, &stream, stack.clone()).expect("there is room");
    let at = |vector: &DeviceVec<u8, AnyResource>, offset: u64| {
        DevicePtr::new(vector.as_device_ptr().address() + offset).expect("it is not null")
    };
    let mut bytes = [0; 3];
    for (config, is_kept) in [(kept_on_the_host(&sim), true), (SleepConfig::default(), false)] {
        let sleeper = sleep(&stack, config);
        assert_eq!(sleeper.read_kept(at(&first, 1), &mut bytes).expect("nobody else reads"), is_kept);
        if is_kept {
            assert_eq!(bytes, [2, 3, 4]);
            assert!(sleeper.read_kept(at(&long, 6 * MIB as u64 - 3), &mut bytes).expect("as before"));
            assert_eq!(bytes, [9; 3]);
        }
        bytes = [7; 3];
        for (from, what) in [
            (at(&long, 6 * MIB as u64 - 2), "it ends before"),
            (at(&long, 6 * MIB as u64), "it begins behind"),
            (DevicePtr::new(256).expect("it is not null"), "nothing is there"),
        ] {
            assert!(!sleeper.read_kept(from, &mut bytes).expect("as before"), "{what}");
        }
        sleeper.wake().expect("there is room");
        assert!(!sleeper.read_kept(at(&long, 0), &mut bytes).expect("as before"), "it is awake");
        assert_eq!(bytes, [7; 3], "nothing is written without an answer");
    }
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
}

/// The contents that were kept are those of the block that was freed asleep, and not of a later one at its address.
#[test]
fn a_block_that_was_freed_asleep_is_read_as_it_was() {
    let sim = Sim::new();
    let (stack, stream) = stack_of(&sim, "pool | mapped");
    let block = DeviceVec::filled_in(4 * MIB, 5_u8, &stream, stack.clone()).expect("there is room");
    stream.synchronize().expect("nothing fails");
    let (address, kept) = (block.as_device_ptr(), kept_on_the_host(&sim));
    // SAFETY: nothing uses the block while it sleeps.
    let sleeper = unsafe { stack.sleep_block(address, &Frontier::quiescent(), kept) }.expect("it has pages");
    drop(block);
    let later = DeviceVec::filled_in(4 * MIB, 6_u8, &stream, stack.clone()).expect("there is room");
    assert_eq!(later.as_device_ptr(), address);
    let mut bytes = [0; 3];
    assert!(sleeper.read_kept(address, &mut bytes).expect("nobody wakes it"));
    assert_eq!(bytes, [5; 3]);
    sleeper.wake().expect("there is nothing to wake");
    assert!(!sleeper.read_kept(address, &mut bytes).expect("nobody wakes it"), "it is awake");
    assert!(later.to_vec(&stream).expect("it is awake").iter().all(|byte| *byte == 6));
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
}
