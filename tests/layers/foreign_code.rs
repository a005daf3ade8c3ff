//! Code that is not the crate's runs under none of its locks: it may call back, panic, and fail to return.
//!
//! Locks are counted in builds with debug assertions, as tests are built.

#![allow(clippy::disallowed_types, reason = "no model is run here")]
#![expect(unsafe_code, reason = "implements the contract of resources, launches kernels, wraps a stream")]

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use alluvion::adaptor::{
    Aligned, Allowance, Fallback, Guard, GuardConfig, LogConfig, Logging, Prefetch, Stats, Tracking,
};
use alluvion::driver::{CaptureMode, Code, MemoryInfo};
use alluvion::relief::Relief;
use alluvion::sim::{HazardKind, Kernel, SimConfig};
use alluvion::source::{Cuda, Managed};
use alluvion::suballoc::{ArenaConfig, FixedSizeConfig, SuballocBook};
use alluvion::testing::{Delayed, Faulty, Shadow, locks_held};
use alluvion::{
    Device, DeviceAccessible, DevicePtr, DeviceVec, Error, Layout, PoolConfig, Resource, ResourceExt,
    ResourceId, Sim, Stream, StreamRef,
};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

/// How often foreign code ran.
#[derive(Clone, Default)]
struct Runs(Arc<AtomicUsize>);

impl Runs {
    #[track_caller]
    fn note(&self) {
        assert_eq!(locks_held().unwrap_or(0), 0, "a lock is held");
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Somebody's resource, which looks whether a lock is held whenever it is asked for anything.
struct Theirs {
    under: Managed,
    runs: Runs,
}

impl Theirs {
    fn new(device: &Device, runs: &Runs) -> Self {
        Self { under: Managed::new(device).expect("the device has managed memory"), runs: runs.clone() }
    }
}

// SAFETY: everything is forwarded to one resource, which keeps the contract.
unsafe impl Resource for Theirs {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.runs.note();
        self.under.allocate(layout, stream)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        self.runs.note();
        // SAFETY: the caller's promises.
        unsafe { self.under.deallocate(block, layout, stream) };
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.runs.note();
        self.under.allocate_sync(layout)
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        self.runs.note();
        // SAFETY: the caller's promises.
        unsafe { self.under.deallocate_sync(block, layout) };
    }

    fn device(&self) -> &Device {
        self.runs.note();
        self.under.device()
    }

    fn id(&self) -> ResourceId {
        self.runs.note();
        self.under.id()
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.runs.note();
        f.write_str("Theirs")
    }

    fn max_align(&self) -> usize {
        self.runs.note();
        self.under.max_align()
    }

    fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
        self.runs.note();
        self.under.trim(keep_bytes)
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        self.runs.note();
        self.under.memory_info()
    }
}

// SAFETY: the blocks are those of a resource that says the same.
unsafe impl DeviceAccessible for Theirs {}

impl Drop for Theirs {
    fn drop(&mut self) {
        self.runs.note();
    }
}

/// A formatter that calls back while it is written to.
struct Nosy<F>(F, usize);

impl<F: FnMut()> Write for Nosy<F> {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        assert_eq!(locks_held().unwrap_or(0), 0, "a lock is held while somebody's formatter runs");
        self.1 += 1;
        (self.0)();
        Ok(())
    }
}

/// Shows a value to a formatter that calls back.
#[track_caller]
fn show(value: &dyn fmt::Debug, call_back: impl FnMut()) {
    let mut nosy = Nosy(call_back, 0);
    write!(nosy, "{value:?} {value:#?}").expect("it takes everything");
    assert!(nosy.1 > 1);
}

/// Asks a stack for everything that there is to ask for, out of memory included.
fn ask<R: DeviceAccessible>(stack: &R) {
    let device = stack.device().clone();
    let (one, other) = (device.stream().expect("a stream"), device.stream().expect("a stream"));
    for bytes in [1000, 5000, 3 * MIB] {
        let blocks: Vec<_> =
            (0..3).filter_map(|_| Held::allocate(stack, layout_of(bytes), one.as_ref()).ok()).collect();
        other.wait_for_stream(&one).expect("nothing is wrong");
        for block in blocks {
            block.free(other.as_ref());
        }
        if let Ok(block) = Held::allocate_sync(stack, layout_of(bytes)) {
            block.free_sync();
        }
    }
    assert!(stack.allocate(layout_of(1 << 46), one.as_ref()).is_err());
    assert!(stack.allocate_sync(layout_of(1 << 46)).is_err());
    let (_, _, _) = (stack.max_align(), stack.memory_info(), stack.trim(0));
    let call_back = || {
        if let Ok(block) = Held::allocate_sync(stack, layout_of(700)) {
            block.free_sync();
        }
        let _ = stack.trim(0);
    };
    let mut nosy = Nosy(call_back, 0);
    write!(nosy, "{} {:#}", stack.describe(), stack.describe()).expect("it takes everything");
    assert!(nosy.1 > 1);
    macro_rules! show_books {
        ($($layer:ty)*) => { $( if let Some(book) = stack.find::<$layer>() { show(book, call_back); } )* };
    }
    show_books!(SuballocBook Stats Tracking Guard Logging Aligned Fallback Prefetch Allowance);
    one.synchronize().and_then(|()| other.synchronize()).expect("nothing is wrong");
}

/// Each layer over somebody's resource.
macro_rules! each_layer {
    ($($name:ident => |$theirs:ident, $runs:ident| $make:expr;)*) => { $(
        #[test]
        fn $name() {
            let sim = Sim::with_config(SimConfig::default().devices(1));
            let runs = Runs::default();
            {
                let $runs = &runs;
                let $theirs = Theirs::new(&sim.device(0), &runs);
                let stack = $make;
                ask(&stack);
            }
            assert!(runs.count() > 10, "the resource was asked {} times", runs.count());
        }
    )* };
}

each_layer! {
    under_a_pool => |theirs, runs| {
        let runs = runs.clone();
        let config = PoolConfig::default().maximum(8 * MIB).checked(true);
        theirs.pool(config.on_out_of_memory(move |_| { runs.note(); Relief::None })).unwrap()
    };
    under_an_arena => |theirs, _runs| theirs.arena(ArenaConfig::default().bytes(8 * MIB)).unwrap();
    under_blocks_of_one_size => |theirs, _runs| {
        theirs.fixed_size(FixedSizeConfig::default().block(8192).blocks(4)).unwrap()
    };
    under_bins => |theirs, _runs| theirs.binning().blocks(8).range(12..=18).build().unwrap();
    under_logging => |theirs, runs| {
        let log = LogConfig::default().room(16).write_to(Sink(runs.clone())).unwrap();
        theirs.logging(log)
    };
    under_limiting => |theirs, _runs| theirs.limiting(2 * MIB);
    under_a_budget => |theirs, runs| {
        let runs = runs.clone();
        let all = Allowance::new("all", 16 * MIB).soft(MIB).on_soft(move |_| runs.note());
        theirs.budget(all.child("half", 8 * MIB))
    };
    under_a_failure_callback => |theirs, runs| {
        let runs = runs.clone();
        theirs.failure_callback(move |_| { runs.note(); Relief::None })
    };
    under_alignment => |theirs, _runs| theirs.aligned(4096).unwrap();
    under_prefetch => |theirs, _runs| theirs.prefetch();
    under_a_fallback => |theirs, runs| {
        let second = Theirs::new(theirs.device(), runs);
        theirs.limiting(2 * MIB).fallback(second).unwrap()
    };
    under_thread_safe => |theirs, _runs| theirs.thread_safe();
    under_stats => |theirs, _runs| theirs.stats();
    under_tracking => |theirs, runs| {
        let runs = runs.clone();
        let tracking = theirs.tracking().on_leak(move |_| runs.note());
        let _ = tracking.allocate_sync(layout_of(100)).unwrap();
        tracking
    };
    under_a_guard => |theirs, runs| {
        let runs = runs.clone();
        theirs.guard(GuardConfig::default().on_violation(move |_| runs.note())).unwrap()
    };
    under_a_shadow => |theirs, _runs| Shadow::new(theirs);
    under_delayed_frees => |theirs, _runs| Delayed::new(theirs, std::time::Duration::from_micros(10));
    under_faults => |theirs, _runs| Faulty::nth(theirs, 3);
    under_a_whole_stack => |theirs, runs| {
        let log = LogConfig::default().tags(true).reserved(true).write_to(Sink(runs.clone())).unwrap();
        theirs.stats().pool(PoolConfig::default()).unwrap().tracking().on_leak(|_| {}).logging(log).limiting(8 * MIB)
    };
}

/// What a log is written to.
struct Sink(Runs);

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.note();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.note();
        Ok(())
    }
}

/// The layer that was written to a formatter under its lock: one that asks back waited for itself.
#[test]
fn a_formatter_may_ask_the_shadow_that_it_shows() {
    let sim = Sim::new();
    let shadow = Shadow::new(Cuda::new(&sim.device(0)));
    let mut nosy = Nosy(|| assert_eq!(shadow.live().len(), 0), 0);
    write!(nosy, "{} {shadow:?}", shadow.describe()).unwrap();
    assert!(nosy.1 > 1);
}

/// What else is shown may hold locks inside as well.
#[test]
fn a_formatter_may_ask_what_it_shows() {
    let sim = Sim::new();
    let (device, stream) = (sim.device(0), sim.device(0).stream().unwrap());
    let pool = Cuda::new(&device).pool(PoolConfig::default()).unwrap();
    let numbers = DeviceVec::from_slice_in(&[1, 2, 3], stream.as_ref(), &pool).unwrap();
    let call_back = || {
        drop(DeviceVec::from_slice_in(&[4], stream.as_ref(), &pool).unwrap());
        let _ = (device.current_resource().unwrap(), device.stream().unwrap());
        assert!(sim.hazards().is_empty() && sim.live().bytes > 0);
    };
    show(&numbers, call_back);
    show(&stream, call_back);
    show(&device, call_back);
    show(sim.machine(), call_back);
    show(&sim, call_back);
    show(&device.current_resource().unwrap(), call_back);
    show(&pool.snapshot(), call_back);
    show(&stream.record().unwrap(), call_back);
}

/// Panics where it is dropped, unless another panic is under way.
struct Bomb(Runs);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.note();
        if !thread::panicking() {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }
}

/// A kernel whose closure panics where it is dropped.
fn armed(runs: &Runs) -> Kernel {
    let bomb = Bomb(runs.clone());
    Kernel::new("armed").run(move |_| {
        let _ = &bomb;
    })
}

/// Whoever waits for a stream is not left behind by a kernel's closure that panics where it goes.
#[test]
fn a_kernel_s_closure_panics_where_it_is_dropped() {
    let (sim, runs) = (Sim::new(), Runs::default());
    let stream = sim.device(0).stream().unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // SAFETY: the kernel touches nothing; the stream is borrowed.
                unsafe { sim.launch(0, stream.as_ref().raw(), armed(&runs)) }.unwrap();
                stream.synchronize().unwrap();
            });
        }
    });
    assert_eq!(runs.count(), 2);
}

/// Nor by one that is thrown away, because its device is lost, because the machine goes, or because a graph does.
#[test]
fn work_that_is_thrown_away_panics_where_it_is_dropped() {
    let (sim, runs) = (Sim::new(), Runs::default());
    let raw = sim.device(0).default_stream().as_ref().raw();
    // SAFETY: the kernel touches nothing, and the legacy stream always exists.
    unsafe { sim.launch(0, raw, armed(&runs)) }.unwrap();
    sim.poison(0, Code::ILLEGAL_ADDRESS);
    assert_eq!(runs.count(), 1);

    let sim = Sim::new();
    // SAFETY: as above.
    unsafe { sim.launch(0, raw, armed(&runs)) }.unwrap();
    drop(sim);
    assert_eq!(runs.count(), 2);

    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    sim.begin_capture(0, stream.as_ref().raw(), CaptureMode::Global).unwrap();
    // SAFETY: as above; the stream is borrowed.
    unsafe { sim.launch(0, stream.as_ref().raw(), armed(&runs)) }.unwrap();
    drop(sim.end_capture(0, stream.as_ref().raw()).unwrap());
    assert_eq!(runs.count(), 3);
}

/// What a kernel throws may panic where it is dropped, too. It is a hazard, and no more.
#[test]
fn what_a_kernel_throws_panics_where_it_is_dropped() {
    let (sim, runs) = (Sim::new(), Runs::default());
    let stream = sim.device(0).stream().unwrap();
    let thrown = Mutex::new(Some(Bomb(runs)));
    let kernel = Kernel::new("throws").run(move |_| {
        if let Some(bomb) = thrown.lock().unwrap().take() {
            std::panic::resume_unwind(Box::new(bomb));
        }
    });
    // SAFETY: the kernel touches nothing; the stream is borrowed.
    unsafe { sim.launch(0, stream.as_ref().raw(), kernel) }.unwrap();
    assert_eq!(stream.synchronize().unwrap_err().code(), Some(Code::LAUNCH_FAILED));
    assert_eq!(sim.take_hazards()[0].kind(), HazardKind::Panic);
}

/// The owner of a foreign stream goes with the last handle, wherever that is: no call of a resource unwinds for it.
#[test]
fn the_owner_of_a_stream_panics_where_it_is_dropped() {
    let (sim, runs) = (Sim::new(), Runs::default());
    let (device, real) = (sim.device(0), sim.device(0).stream().unwrap());
    let owner = Arc::new(Bomb(runs.clone()));
    // SAFETY: the stream is of this device, and outlives all that is done here.
    let wrapped = unsafe { Stream::from_owner(&device, real.as_ref().raw(), owner) }.unwrap();
    let numbers = DeviceVec::from_slice(&[1, 2, 3], wrapped.as_ref()).unwrap();
    drop(wrapped);
    assert_eq!(runs.count(), 0, "the vector has a handle");
    drop(numbers);
    assert_eq!(runs.count(), 1);
}
