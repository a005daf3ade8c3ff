//! The events that suballocators tell `tracing`: which, when, and that no listener can break or hang a call.

#![allow(clippy::disallowed_types, reason = "no model is run here")]

#[allow(dead_code, reason = "each child here has a recipe")]
#[path = "support/child.rs"]
mod child;
#[path = "support/raw_block.rs"]
mod raw_block;
#[path = "support/rerun.rs"]
mod rerun;

use std::ffi::OsStr;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;

use alluvion::source::{Cuda, CudaAsync, Mapped};
use alluvion::suballoc::{Growth, Reuse};
use alluvion::testing::{Bench, Stall};
use alluvion::{AnyResource, DeviceVec, Error, ErrorKind, Pool, PoolConfig, Resource, ResourceExt, Sim};
use raw_block::{Held, layout_of};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Level, Metadata, Subscriber};

const MIB: usize = 1 << 20;

type Listener = dyn Fn() + Send + Sync;

/// Writes down what is told, and then does what its test wants.
#[derive(Clone, Default)]
struct Ear {
    heard: Arc<Mutex<Vec<String>>>,
    listener: Option<Arc<Listener>>,
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).expect("a string takes everything");
    }
}

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "alluvion" && *metadata.level() == Level::DEBUG
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.heard.lock().unwrap().push(line.0);
        if let Some(listener) = &self.listener {
            listener();
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Ear {
    /// What is told while `body` runs, on this thread.
    fn hears(&self, body: impl FnOnce()) -> Vec<String> {
        with_default(self.clone(), body);
        std::mem::take(&mut self.heard.lock().unwrap())
    }
}

fn count(heard: &[String], message: &str) -> usize {
    heard.iter().filter(|line| line.contains(&format!("message={message} "))).count()
}

fn sim() -> Sim {
    Sim::with_config(Bench::config().devices(1))
}

fn pool(sim: &Sim, config: PoolConfig) -> Pool<Cuda> {
    Cuda::new(&sim.device(0)).pool(config.growth(Growth::Exact).checked(false)).unwrap()
}

#[test]
fn growing_and_trimming_are_told_with_their_bytes() {
    let sim = sim();
    let pool = pool(&sim, PoolConfig::default());
    let heard = Ear::default().hears(|| {
        let block = Held::allocate_sync(&pool, layout_of(2 * MIB)).unwrap();
        let address = block.pointer.address();
        block.free_sync();
        // From the cache: nothing to tell.
        Held::allocate_sync(&pool, layout_of(2 * MIB)).unwrap().free_sync();
        assert_eq!(pool.trim(0).unwrap(), 2 * MIB);
        assert!(address > 0);
    });
    assert_eq!((count(&heard, "grow"), count(&heard, "trim")), (1, 1), "{heard:?}");
    let grown = heard.iter().find(|line| line.contains("=grow ")).unwrap();
    assert!(grown.contains(&format!("bytes={} ", 2 * MIB)) && grown.contains("address="), "{grown}");
}

/// Over pages: two are freed, and one moves to where a longer block grows.
#[test]
fn ranges_and_pages_are_told() {
    let sim = sim();
    let stream = sim.device(0).stream().unwrap();
    let config = PoolConfig::default().growth(Growth::Exact).maximum(6 * MIB);
    let pool = Mapped::new(&sim.device(0)).unwrap().pool(config).unwrap();
    let heard = Ear::default().hears(|| {
        let mut pages: Vec<_> = (0..3).map(|_| Held::of(&pool, 2 * MIB, stream.as_ref())).collect();
        pages.sort_by_key(|block| block.pointer);
        let last = pages.pop();
        let middle = pages.pop();
        pages.pop().into_iter().chain(last).for_each(|block| block.free(stream.as_ref()));
        stream.synchronize().unwrap();
        Held::of(&pool, 4 * MIB, stream.as_ref()).free(stream.as_ref());
        middle.into_iter().for_each(|block| block.free(stream.as_ref()));
        stream.synchronize().unwrap();
        assert_eq!(pool.trim(0).unwrap(), 6 * MIB);
    });
    assert_eq!(
        (count(&heard, "reserve"), count(&heard, "grow"), count(&heard, "unmap")),
        (1, 3, 4),
        "{heard:?}"
    );
    let unmapped = heard.iter().find(|line| line.contains("=unmap ")).unwrap();
    assert!(
        unmapped.contains(&format!("bytes={} ", 2 * MIB)) && unmapped.contains("unmapped=true"),
        "{unmapped}"
    );
}

#[test]
fn steals_and_waits_are_told() {
    let sim = sim();
    let (one, other) = (sim.device(0).stream().unwrap(), sim.device(0).stream().unwrap());
    let pool = pool(&sim, PoolConfig::default().maximum(2 * MIB).reuse(Reuse::Wait));
    let heard = Ear::default().hears(|| {
        let block = Held::of(&pool, 2 * MIB, one.as_ref());
        // Not over before the steal is.
        let _stall = Stall::on(one.as_ref());
        block.free(one.as_ref());
        Held::of(&pool, 2 * MIB, other.as_ref()).free(other.as_ref());
    });
    assert_eq!(pool.status().steals, count(&heard, "steal") as u64, "{heard:?}");
    assert_eq!(count(&heard, "steal"), 1, "{heard:?}");
    assert_eq!(count(&heard, "wait on the device"), 1, "{heard:?}");
    assert!(
        heard.iter().any(|line| line.contains("strategy=DeviceWait") && line.contains("served=true")),
        "{heard:?}"
    );
}

#[test]
fn the_strategies_of_running_out_are_told() {
    let sim = sim();
    let pool = pool(&sim, PoolConfig::default().maximum(MIB));
    let heard = Ear::default().hears(|| {
        let _held = Held::allocate_sync(&pool, layout_of(MIB)).unwrap();
        assert!(pool.allocate_sync(layout_of(1000)).unwrap_err().is_out_of_memory());
    });
    let strategies: Vec<&String> = heard.iter().filter(|line| line.contains("message=strategy")).collect();
    for strategy in ["WithinReach", "Grow", "HostWait", "Trim", "TakeThenWait"] {
        assert!(
            strategies.iter().any(|line| line.contains(&format!("strategy={strategy} "))),
            "{strategy}: {heard:?}"
        );
    }
    assert_eq!(count(&heard, "out of memory"), 1, "{heard:?}");
    assert!(heard.iter().any(|line| line.contains("report=Pool of gpu 0 refused 1000 B: ")), "{heard:?}");
}

#[test]
fn an_upstream_that_refuses_is_told() {
    let sim = sim();
    let pool =
        CudaAsync::new(&sim.device(0)).unwrap().pool(PoolConfig::default().growth(Growth::Exact)).unwrap();
    let heard = Ear::default().hears(|| {
        assert!(pool.allocate_sync(layout_of(1 << 36)).is_err());
    });
    assert!(count(&heard, "growth refused") > 0, "{heard:?}");
    assert!(heard.iter().any(|line| line.contains("error=out of memory")), "{heard:?}");
}

#[test]
fn nothing_is_told_where_nobody_listens() {
    let sim = sim();
    let pool = pool(&sim, PoolConfig::default());
    let ear = Ear::default();
    Held::allocate_sync(&pool, layout_of(2 * MIB)).unwrap().free_sync();
    assert!(ear.heard.lock().unwrap().is_empty());
}

#[test]
fn a_listener_that_panics_breaks_no_call() {
    let sim = sim();
    let pool = pool(&sim, PoolConfig::default().maximum(MIB));
    let listener: Arc<Listener> = Arc::new(|| std::panic::resume_unwind(Box::new("on purpose")));
    let ear = Ear { listener: Some(listener), ..Ear::default() };
    let heard = ear.hears(|| {
        let held = Held::allocate_sync(&pool, layout_of(MIB)).unwrap();
        assert!(pool.allocate_sync(layout_of(1000)).unwrap_err().is_out_of_memory());
        held.free_sync();
        assert_eq!(pool.trim(0).unwrap(), MIB);
    });
    assert_eq!((count(&heard, "grow"), count(&heard, "trim"), pool.status().reserved_bytes), (1, 1, 0));
}

/// No lock is held: who listens may ask the very suballocator that tells, and is not told of that.
#[test]
fn a_listener_may_allocate_from_the_pool_that_tells() {
    let sim = sim();
    let pool: Arc<OnceLock<Pool<Cuda>>> = Arc::default();
    assert!(pool.set(self::pool(&sim, PoolConfig::default())).is_ok());
    let asked = Arc::clone(&pool);
    let listener: Arc<Listener> = Arc::new(move || {
        let pool = asked.get().unwrap();
        Held::allocate_sync(pool, layout_of(3 * MIB)).unwrap().free_sync();
        assert!(pool.status().reserved_bytes > 0);
        pool.trim(0).unwrap();
    });
    let ear = Ear { listener: Some(listener), ..Ear::default() };
    let pool = pool.get().unwrap();
    let heard = ear.hears(|| {
        Held::allocate_sync(pool, layout_of(MIB)).unwrap().free_sync();
        pool.trim(0).unwrap();
    });
    assert!(count(&heard, "grow") >= 1 && heard.len() < 20, "{heard:?}");
    assert_eq!(pool.status().reserved_bytes, 0);
}

/// Who listens while the current resource is made cannot have it; it is told so, where it waited for itself before.
#[test]
fn a_listener_may_ask_for_the_resource_that_is_being_made() {
    let test = "a_listener_may_ask_for_the_resource_that_is_being_made";
    let recipe = [("ALLUVION_RESOURCE", OsStr::new("pool(initial=4MiB) | cuda"))];
    child::in_child_with(test, &recipe, 1, || {
        let sim = Sim::new();
        let (device, answers) = (sim.device(0), Arc::new(Mutex::new(Vec::new())));
        let (asked, told) = (device.clone(), Arc::clone(&answers));
        let listener: Arc<Listener> = Arc::new(move || {
            let stream = asked.stream().unwrap();
            let cuda = AnyResource::new(Cuda::new(&asked));
            let mut told = told.lock().unwrap();
            told.push(asked.current_resource().map(drop));
            told.push(asked.set_current_resource(cuda.clone()).map(drop));
            told.push(asked.reset_current_resource().map(drop));
            told.push(DeviceVec::from_slice(&[1], stream.as_ref()).map(drop));
            // Who names a resource is not stopped, nor who has said what is current here.
            assert!(DeviceVec::from_slice_in(&[1], stream.as_ref(), cuda.clone()).is_ok());
            assert_eq!(
                asked.with_current_resource(cuda.clone(), || asked.current_resource()).unwrap().unwrap(),
                cuda
            );
        });
        let ear = Ear { listener: Some(listener), ..Ear::default() };
        let heard = ear.hears(|| {
            let made = device.current_resource().unwrap();
            assert_eq!(made.describe().to_string(), "Pool(4 MiB) > Cuda(gpu 0)");
            assert_eq!(device.current_resource().unwrap(), made);
        });
        assert_eq!(count(&heard, "grow"), 1);
        let answers = answers.lock().unwrap();
        assert_eq!(answers.len(), 4);
        for answer in answers.iter() {
            let error: &Error = answer.as_ref().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains("it is made on this thread"), "{error}");
        }
        child::done();
    });
}

/// A listener that takes its time holds up who wants what is being made, and nobody else.
#[test]
fn a_listener_that_does_not_return_holds_up_nobody_who_names_a_resource() {
    let test = "a_listener_that_does_not_return_holds_up_nobody_who_names_a_resource";
    let recipe = [("ALLUVION_RESOURCE", OsStr::new("pool(initial=4MiB) | cuda"))];
    child::in_child_with(test, &recipe, 1, || {
        let sim = Sim::new();
        let device = sim.device(0);
        let (inside, is_inside) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel::<()>();
        let goes_on = Mutex::new(goes_on);
        let listener: Arc<Listener> = Arc::new(move || {
            inside.send(()).unwrap();
            let _ = goes_on.lock().unwrap().recv();
        });
        let ear = Ear { listener: Some(listener), ..Ear::default() };
        thread::scope(|scope| {
            let maker = scope.spawn(|| with_default(ear, || device.current_resource().unwrap()));
            is_inside.recv().unwrap();
            let cuda = AnyResource::new(Cuda::new(&device));
            assert_eq!(
                device.with_current_resource(cuda.clone(), || device.current_resource()).unwrap().unwrap(),
                cuda
            );
            let stream = device.stream().unwrap();
            assert!(DeviceVec::from_slice_in(&[1], stream.as_ref(), Cuda::new(&device)).is_ok());
            let waiting = scope.spawn(|| device.current_resource().unwrap());
            drop(go_on);
            assert_eq!(maker.join().unwrap(), waiting.join().unwrap());
        });
        child::done();
    });
}
