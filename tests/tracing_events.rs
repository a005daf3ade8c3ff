//! The events that suballocators tell `tracing`: which, when, and that no listener can break or hang a call.

#![allow(clippy::disallowed_types, reason = "no model is run here")]

mod held;

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, OnceLock};

use alluvion::source::{Cuda, CudaAsync};
use alluvion::suballoc::{Growth, Reuse};
use alluvion::testing::{Bench, Stall};
use alluvion::{Pool, PoolConfig, Resource, Sim};
use held::{Held, layout_of};
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
        heard.iter().any(|line| line.contains("rung=DeviceWait") && line.contains("served=true")),
        "{heard:?}"
    );
}

#[test]
fn the_rungs_of_running_out_are_told() {
    let sim = sim();
    let pool = pool(&sim, PoolConfig::default().maximum(MIB));
    let heard = Ear::default().hears(|| {
        let _held = Held::allocate_sync(&pool, layout_of(MIB)).unwrap();
        assert!(pool.allocate_sync(layout_of(1000)).unwrap_err().is_out_of_memory());
    });
    let rungs: Vec<&String> = heard.iter().filter(|line| line.contains("message=rung")).collect();
    for rung in ["WithinReach", "Grow", "HostWait", "Trim", "TakeThenWait"] {
        assert!(rungs.iter().any(|line| line.contains(&format!("rung={rung} "))), "{rung}: {heard:?}");
    }
    assert_eq!(count(&heard, "out of memory"), 1, "{heard:?}");
    assert!(heard.iter().any(|line| line.contains("report=1000 B wanted")), "{heard:?}");
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
