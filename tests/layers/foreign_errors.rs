//! An error of code that is not the crate's goes up through every layer as it is.

#![expect(unsafe_code, reason = "makes resources of closures")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvion::adaptor::{Allowance, FailureCallback, GuardConfig, Log};
use alluvion::error::OutOfMemory;
use alluvion::relief::Relief;
use alluvion::source::{Callback, Cuda};
use alluvion::suballoc::{ArenaConfig, FixedSizeConfig, Reuse};
use alluvion::testing::Bench;
use alluvion::{
    DeviceAccessible, DevicePtr, Error, ErrorKind, Layout, PoolConfig, Resource, ResourceExt, StreamRef,
};

use crate::raw_block::{Held, layout_of};

/// An exception of another language.
#[derive(Debug, PartialEq, Eq)]
struct Interrupted(u32);

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupted for the {}th time", self.0)
    }
}

impl std::error::Error for Interrupted {}

fn number(error: &Error) -> Option<u32> {
    error.foreign_error()?.downcast_ref::<Interrupted>().map(|interrupted| interrupted.0)
}

/// Memory from closures that fails from the `from`-th request on, and how often it was asked.
fn failing(bench: &Bench, from: usize) -> (impl DeviceAccessible + Send + Sync + 'static, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let (cuda, of_closure) = (Arc::new(Cuda::new(&bench.device())), Arc::clone(&asked));
    let back = Arc::clone(&cuda);
    let allocate = move |layout: Layout, stream: StreamRef<'_>| {
        let turn = of_closure.fetch_add(1, Ordering::Relaxed) + 1;
        if turn >= from {
            return Err(Error::foreign(Interrupted(turn as u32)));
        }
        cuda.allocate(layout, stream).map(DevicePtr::address)
    };
    let deallocate = move |block: DevicePtr, layout: Layout, stream: StreamRef<'_>| {
        // SAFETY: the promises of the caller of the callback; the block came from there.
        unsafe { back.deallocate(block, layout, stream) };
    };
    // SAFETY: the closures hand out the blocks of `Cuda`, and give them back to it.
    (unsafe { Callback::new(&bench.device(), allocate, deallocate) }, asked)
}

/// One request of the stack fails with the very error, and the closure was asked once for it.
#[track_caller]
fn goes_up(bench: &Bench, resource: &impl Resource, asked: &AtomicUsize, bytes: usize) {
    let stream = bench.stream();
    for is_synchronous in [false, true] {
        let before = asked.load(Ordering::Relaxed);
        let answer = if is_synchronous {
            resource.allocate_sync(layout_of(bytes))
        } else {
            resource.allocate(layout_of(bytes), stream.as_ref())
        };
        let error = answer.expect_err("the closure fails");
        let made = asked.load(Ordering::Relaxed) - before;
        let name = resource.describe().to_string();
        assert_eq!((error.kind(), made), (ErrorKind::Foreign, 1), "{name}: {error}");
        assert_eq!(number(&error), Some(before as u32 + 1), "{name}");
        assert!(
            error.to_string().ends_with(&format!("interrupted for the {}th time", before + 1)),
            "{error}"
        );
    }
}

#[test]
fn a_foreign_error_of_growth_is_the_error_of_the_request() {
    for reuse in [Reuse::Own, Reuse::Completed, Reuse::Wait] {
        let bench = Bench::sim();
        let (source, asked) = failing(&bench, 2);
        let handler = |_: &OutOfMemory| panic!("it was asked, and nothing is out of memory");
        let config =
            PoolConfig::default().reuse(reuse).maximum(40 << 20).initial(1 << 20).on_out_of_memory(handler);
        let pool = source.pool(config).unwrap();
        let other = bench.stream();
        // What another stream has freed could be had by a wait; it is not long enough.
        let kept = Held::of(&pool, 256, other.as_ref());
        Held::of(&pool, 1 << 19, other.as_ref()).free(other.as_ref());
        goes_up(&bench, &pool, &asked, 2 << 20);
        assert!(asked.load(Ordering::Relaxed) >= 3);
        // What needs no growth is served.
        Held::of(&pool, 1000, other.as_ref()).free(other.as_ref());
        kept.free(other.as_ref());
        let status = pool.status();
        assert_eq!((status.live_blocks, status.reserved_bytes), (0, 1 << 20));
        bench.check();
    }
}

#[test]
fn a_foreign_error_goes_through_every_layer() {
    let bench = Bench::sim();
    macro_rules! each {
        ($($layer:ident => $from:literal $over:expr;)+) => {$({
            let ($layer, asked) = failing(&bench, $from);
            goes_up(&bench, &$over, &asked, 4096);
        })+};
    }
    each! {
        under => 1 under.stats();
        under => 1 under.tracking();
        under => 1 under.limiting(1 << 20);
        under => 1 under.budget(Allowance::new("all", 1 << 20).child("one", 1 << 20));
        under => 1 under.logging(Log::write_to(std::io::sink()).unwrap());
        under => 1 under.aligned(4096).unwrap();
        under => 1 under.thread_safe();
        under => 1 under.guard(GuardConfig::default()).unwrap();
        under => 1 under.failure_callback(|_| panic!("nothing is out of memory"));
        under => 1 under.fallback(Cuda::new(&bench.device())).unwrap();
        under => 1 under.pool(PoolConfig::default()).unwrap().stats().limiting(1 << 20);
        under => 2 under.binning().blocks(2).bin(2048).build().unwrap();
        under => 1 under.pool(PoolConfig::default()).unwrap().pool(PoolConfig::default()).unwrap();
    }
    // What is taken when a suballocator is made.
    let (source, _) = failing(&bench, 1);
    assert_eq!(source.pool(PoolConfig::default().initial(4096)).err().as_ref().and_then(number), Some(1));
    let (source, _) = failing(&bench, 1);
    assert_eq!(source.arena(ArenaConfig::default().bytes(4096)).err().as_ref().and_then(number), Some(1));
    let (source, _) = failing(&bench, 1);
    assert_eq!(source.fixed_size(FixedSizeConfig::default()).err().as_ref().and_then(number), Some(1));
    bench.check();
}

/// A lack of memory that an exception of another language tells of is one for every layer, and the exception is found.
#[test]
fn a_lack_of_memory_may_have_a_foreign_error_behind_it() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let allocate = |layout: Layout, _: StreamRef<'_>| {
        let mut report = OutOfMemory::new("Callback", layout.bytes());
        report.upstream_error = Some(Error::foreign(Interrupted(7)));
        Err(Error::from(report))
    };
    // SAFETY: the closures hand out nothing.
    let source = unsafe { Callback::new(&bench.device(), allocate, |_, _, _| {}) };
    let asked = Arc::new(AtomicUsize::new(0));
    let of_handler = Arc::clone(&asked);
    let resource = source.pool(PoolConfig::default()).unwrap().failure_callback(move |_| {
        of_handler.fetch_add(1, Ordering::Relaxed);
        Relief::None
    });
    let error = resource.allocate(layout_of(100), stream.as_ref()).unwrap_err();
    assert!(error.is_out_of_memory() && !error.is_foreign());
    assert_eq!((number(&error), asked.load(Ordering::Relaxed)), (Some(7), 1));
}

#[test]
fn a_handler_that_fails_decides_the_error() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let turns = AtomicUsize::new(0);
    let resource = FailureCallback::fallible(Cuda::new(&bench.device()).limiting(4096), move |_| {
        let turn = turns.fetch_add(1, Ordering::Relaxed) as u32;
        if turn == 0 { Ok(Relief::Freed) } else { Err(Error::foreign(Interrupted(turn))) }
    });
    for failed in 1..=2 {
        let error = resource.allocate(layout_of(5000), stream.as_ref()).unwrap_err();
        // More than the limit can ever give asks nobody.
        assert!(error.is_out_of_memory() && number(&error).is_none(), "{failed}: {error}");
    }
    let held = Held::of(&resource, 4096, stream.as_ref());
    let error = resource.allocate(layout_of(1), stream.as_ref()).unwrap_err();
    assert_eq!((error.kind(), number(&error)), (ErrorKind::Foreign, Some(1)), "{error}");
    assert_eq!((resource.book().asked(), resource.book().failed()), (2, 1));
    held.free(stream.as_ref());
    Held::of(&resource, 4096, stream.as_ref()).free(stream.as_ref());
    bench.check();
}
