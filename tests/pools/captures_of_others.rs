//! Captures that go on elsewhere while a pool wants to wait for its device: the last frees of a bare stream have no event.

#![expect(unsafe_code, reason = "names streams by their raw handles, and puts a pool to sleep")]

use alluvion::driver::{Call, CaptureMode, Driver, StreamFlags};
use alluvion::source::Mapped;
use alluvion::{Device, Pool, PoolConfig, Resource, ResourceExt, Sim, SleepConfig, StreamRef};

use crate::raw_block::{Held, layout_of};

struct Rig {
    sim: Sim,
    device: Device,
    /// `None` once it has been dropped.
    pool: Option<Pool<Mapped>>,
}

impl Rig {
    /// A pool in which a stream has freed last that came by its raw handle, and is gone.
    fn new() -> Self {
        let sim = Sim::new();
        let device = sim.device(0);
        let pool = Mapped::new(&device).and_then(|mapped| mapped.pool(PoolConfig::default()));
        let pool = pool.expect("the device maps pages");
        let raw = sim.stream_create(0, StreamFlags::default()).expect("a stream can be made");
        for _ in 0..300 {
            let pair = |stream: StreamRef<'_>| Held::of(&pool, 4096, stream).free(stream);
            // SAFETY: the stream is live.
            unsafe { device.raw_streams().with(raw, pair) }.expect("the stream is the device's");
        }
        // SAFETY: it was made above, and nothing has it.
        unsafe { sim.stream_destroy(0, raw) }.expect("it is live");
        Self { sim, device, pool: Some(pool) }
    }

    #[track_caller]
    fn pool(&self) -> &Pool<Mapped> {
        self.pool.as_ref().expect("it was not dropped")
    }

    fn waits(&self) -> u64 {
        self.sim.calls()[Call::ContextSynchronize]
    }
}

/// Whose stream captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// The crate made it.
    Ours,
    /// It came by its raw handle, and is lent for longer than a call.
    Lent,
    /// Nobody has shown it to the crate. It is ordered with the legacy stream, as `cudaStreamCreate` makes them.
    Blocking,
}

/// Does something while a stream of each kind captures, in each mode: the capture is whole afterwards, and nobody has waited for the
/// device. Then does something when the capture is over.
fn beside_captures(during: impl Fn(&mut Rig), after: impl Fn(&mut Rig)) {
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        for whose in [Whose::Ours, Whose::Lent, Whose::Blocking] {
            let mut rig = Rig::new();
            let ours = rig.device.stream().expect("there are numbers left");
            let flags = StreamFlags { blocking: whose == Whose::Blocking, ..StreamFlags::default() };
            let theirs = rig.sim.stream_create(0, flags).expect("a stream can be made");
            // SAFETY: the stream is live until the end of the test.
            let lent =
                (whose == Whose::Lent).then(|| unsafe { rig.device.raw_streams().stream(theirs) }.unwrap());
            let raw = if whose == Whose::Ours { ours.raw() } else { theirs };
            rig.sim.begin_capture(0, raw, mode).expect("it does not capture");
            let before = rig.waits();
            during(&mut rig);
            assert_eq!(rig.waits(), before, "{mode:?}, {whose:?}: the device was waited for");
            let graph = rig.sim.end_capture(0, raw);
            assert!(graph.is_ok(), "{mode:?}, {whose:?}: the capture is broken: {:?}", graph.err());
            after(&mut rig);
            drop(lent);
        }
    }
}

#[test]
fn a_trim_leaves_what_only_a_wait_for_the_device_can_say_to_be_free() {
    beside_captures(
        |rig| {
            rig.pool().trim(0).expect("nothing forbids it");
            assert!(rig.pool().pool_size() > 0, "nobody knows that it is free");
        },
        |rig| {
            rig.pool().trim(0).expect("nothing forbids it");
            assert_eq!((rig.pool().pool_size(), rig.sim.live().mappings), (0, 0));
        },
    );
}

#[test]
fn a_sleep_is_refused_and_nothing_changes() {
    // SAFETY: nothing uses the pool meanwhile.
    let sleep = |rig: &Rig| unsafe { rig.pool().sleep(SleepConfig::default()) }.map(drop);
    beside_captures(
        |rig| {
            let before = rig.pool().status();
            let refused = sleep(rig).expect_err("a stream captures");
            assert!(refused.is_capture(), "{refused}");
            let after = rig.pool().status();
            assert_eq!((after.reserved_bytes, after.asleep_bytes), (before.reserved_bytes, 0));
            Held::allocate_sync(rig.pool(), layout_of(256)).expect("it is awake").free_sync();
        },
        |rig| sleep(rig).expect("nothing captures"),
    );
}

#[test]
fn the_end_of_a_pool_leaks_what_only_a_wait_for_the_device_can_say_to_be_free() {
    beside_captures(
        |rig| {
            rig.pool = None;
            assert!(rig.sim.live().mappings > 0, "nobody knows that it is free");
        },
        |_| {},
    );
    // Without a capture nothing is leaked.
    let mut rig = Rig::new();
    rig.pool = None;
    assert_eq!(rig.sim.live().mappings, 0);
}
