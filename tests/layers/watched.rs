//! Watches of a program's own: which of their methods is called when, and what they cannot break.

#![expect(unsafe_code, reason = "frees what it allocates, also wrongly")]
#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use alluvion::adaptor::{Watch, WatchedBlock, WatchedRequest};
use alluvion::error::freeing;
use alluvion::metrics::Metrics;
use alluvion::relief::Relief;
use alluvion::resource::Figures;
use alluvion::source::{Cuda, Managed, Mapped};
use alluvion::testing::Faulty;
use alluvion::{AnyResource, DeviceVec, Error, Layout, PoolConfig, Resource, ResourceExt, Sim, Stream};

/// Writes down which of its methods are called.
#[derive(Clone, Default)]
struct Calls {
    names: Arc<Mutex<Vec<&'static str>>>,
    refuses: Arc<AtomicBool>,
}

impl Calls {
    fn note(&self, name: &'static str) {
        self.names.lock().unwrap().push(name);
    }

    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.names.lock().unwrap())
    }
}

impl Watch for Calls {
    type Book = Self;
    type Entry = ();

    const SEES_PAGES: bool = true;

    fn book(&self) -> &Self {
        self
    }

    fn admit(&self, _: &WatchedRequest<'_>) -> Result<(), Error> {
        self.note("admit");
        if self.refuses.load(Ordering::Relaxed) { Err(Error::foreign("not today")) } else { Ok(()) }
    }

    fn withdraw(&self, _: &WatchedRequest<'_>) {
        self.note("withdraw");
    }

    fn rescue(
        &self,
        _: &WatchedRequest<'_>,
        error: Error,
        again: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.note("rescue");
        // A second block would be nobody's, and does not come.
        if again().and_then(|()| again()).is_ok() { Ok(()) } else { Err(error) }
    }

    fn fail(&self, _: &WatchedRequest<'_>, _: &Error) {
        self.note("fail");
    }

    fn serve(&self, _: &WatchedBlock<'_>) {
        self.note("serve");
    }

    fn leave(&self, _: &WatchedBlock<'_>) -> Option<()> {
        self.note("leave");
        Some(())
    }

    fn left(&self, _: Layout, (): ()) {
        self.note("left");
    }

    fn stay(&self, _: &WatchedBlock<'_>, (): ()) {
        self.note("stay");
    }

    fn end(&self) {
        self.note("end");
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Calls")
    }
}

fn layout() -> Layout {
    Layout::from_bytes(1000).unwrap()
}

fn stream(sim: &Sim) -> Stream {
    sim.device(0).stream().unwrap()
}

#[test]
fn each_method_is_called_where_the_table_says() {
    let (sim, calls) = (Sim::new(), Calls::default());
    let stream = stream(&sim);
    let on = stream.as_ref();
    let resource = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap().watched(calls.clone());

    assert!(resource.allocate_at_once(layout(), on).is_none(), "nothing was freed yet");
    assert_eq!(calls.take(), ["admit", "withdraw"]);
    let block = resource.allocate(layout(), on).unwrap();
    assert_eq!(calls.take(), ["admit", "serve"]);
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { resource.deallocate(block, layout(), on) };
    assert_eq!(calls.take(), ["leave", "left"]);
    let block = resource.allocate_at_once(layout(), on).expect("the cache has it");
    // SAFETY: as above.
    assert!(unsafe { resource.deallocate_at_once(block, layout(), on) });
    assert_eq!(calls.take(), ["admit", "serve", "leave", "left"]);

    // Zero bytes are none of its business.
    let nothing = Layout::from_bytes(0).unwrap();
    let block = resource.allocate_sync(nothing).unwrap();
    // SAFETY: as above.
    unsafe { resource.deallocate_sync(block, nothing) };
    assert!(calls.take().is_empty());

    calls.refuses.store(true, Ordering::Relaxed);
    assert!(resource.allocate_sync(layout()).unwrap_err().is_foreign());
    assert_eq!(calls.take(), ["admit", "fail"]);
    let coarse = Layout::new(1000, 1 << 30).unwrap();
    assert!(resource.allocate_sync(coarse).unwrap_err().is_alignment(), "what is wrong is said first");
    calls.take();
    drop(resource);
    assert_eq!(calls.take(), ["end"]);
}

#[test]
fn what_the_upstream_refuses_goes_back_before_it_fails() {
    let (sim, calls) = (Sim::new(), Calls::default());
    let stream = stream(&sim);
    let none = Cuda::new(&sim.device(0)).limiting(0).watched(calls.clone());
    assert!(none.allocate(layout(), stream.as_ref()).unwrap_err().is_out_of_memory());
    assert_eq!(calls.take(), ["admit", "rescue", "withdraw", "fail"]);

    // The second attempt succeeds: one block comes, however often the watch asks.
    let once = Faulty::nth(Cuda::new(&sim.device(0)).stats(), 1).watched(calls.clone());
    let block = once.allocate_sync(layout()).unwrap();
    assert_eq!(calls.take(), ["admit", "rescue", "serve"]);
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { once.deallocate_sync(block, layout()) };
    assert!(sim.hazards().is_empty() && sim.live().device == 0, "{:?}", sim.live());
}

#[test]
fn a_page_is_admitted_and_leaves() {
    let (sim, calls) = (Sim::new(), Calls::default());
    let resource = Mapped::new(&sim.device(0)).unwrap().watched(calls.clone());
    let pages = resource.pages().expect("it has those of its upstream");
    let page = pages.create(pages.page_bytes()).unwrap();
    // SAFETY: the page is mapped nowhere.
    unsafe { pages.release(page) };
    assert_eq!(calls.take(), ["admit", "left"]);
    let none = Mapped::new(&sim.device(0)).unwrap().limiting(0).watched(calls.clone());
    let pages = none.pages().expect("it has those of its upstream");
    assert!(pages.create(pages.page_bytes()).unwrap_err().is_out_of_memory());
    assert_eq!(calls.take(), ["admit", "withdraw", "fail"]);
}

/// Panics in each of its methods, and when it is dropped.
struct Panics;

impl Watch for Panics {
    type Book = Self;
    type Entry = ();

    fn book(&self) -> &Self {
        self
    }

    fn admit(&self, request: &WatchedRequest<'_>) -> Result<(), Error> {
        assert!(request.layout().bytes() != 1, "admit");
        Ok(())
    }

    fn withdraw(&self, _: &WatchedRequest<'_>) {
        panic!("withdraw")
    }

    fn rescue(
        &self,
        _: &WatchedRequest<'_>,
        _: Error,
        _: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        panic!("rescue")
    }

    fn fail(&self, _: &WatchedRequest<'_>, _: &Error) {
        panic!("fail")
    }

    fn serve(&self, _: &WatchedBlock<'_>) {
        panic!("serve")
    }

    fn leave(&self, _: &WatchedBlock<'_>) -> Option<()> {
        panic!("leave")
    }

    fn end(&self) {
        panic!("end")
    }

    fn fmt_layer(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("fmt_layer")
    }

    fn figures(_: &Self, _: &mut Figures<'_>) {
        panic!("figures")
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("drop")
    }
}

#[test]
fn a_watch_that_panics_unwinds_into_nobody() {
    let sim = Sim::new();
    let stream = stream(&sim);
    let done = catch_unwind(AssertUnwindSafe(|| {
        let stack = AnyResource::new(Cuda::new(&sim.device(0)).limiting(4096).watched(Panics).stats());
        drop(DeviceVec::<u8, _>::zeroed_in(1000, &stream, stack.clone()).unwrap());
        let one = Layout::from_bytes(1).unwrap();
        assert!(stack.allocate_sync(one).unwrap_err().is_foreign(), "its `admit` panicked");
        let large = Layout::from_bytes(8192).unwrap();
        assert!(stack.allocate(large, stream.as_ref()).unwrap_err().is_foreign(), "its `rescue` panicked");
        let mut metrics = Metrics::new();
        metrics.add_stack("it", &stack);
        assert!(metrics.to_string().contains("alluvion_live_blocks"));
        drop(stack);
    }));
    done.expect("all of its panics are caught");
    sim.device(0).synchronize().unwrap();
    assert!(sim.hazards().is_empty() && sim.live().device == 0);
}

/// Keeps each block from its upstream.
struct Keeps;

impl Watch for Keeps {
    type Book = Self;
    type Entry = ();

    fn book(&self) -> &Self {
        self
    }

    fn leave(&self, _: &WatchedBlock<'_>) -> Option<()> {
        None
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keeps")
    }
}

#[test]
fn a_block_that_a_watch_keeps_is_out_for_all() {
    let sim = Sim::new();
    let stack = Cuda::new(&sim.device(0)).limiting(4096).watched(Keeps).stats().tracking().on_leak(|_| {});
    let stream = stream(&sim);
    let block = stack.allocate(layout(), stream.as_ref()).unwrap();
    for _ in 0..2 {
        // SAFETY: the block came from this stack with this layout, and nothing uses it; it is not freed.
        let told = freeing(|| unsafe { stack.deallocate(block, layout(), stream.as_ref()) }).unwrap_err();
        assert!(told.is_foreign(), "{told}");
        // SAFETY: as above.
        assert!(unsafe { stack.try_deallocate(block, layout(), &stream) }.unwrap_err().is_foreign());
        assert_eq!(stack.outstanding().blocks.len(), 1);
        assert_eq!(stack.upstream().counts().allocations.live, 1);
    }
    assert_eq!(stack.upstream().upstream().upstream().used_bytes(), 1024);
}

/// Frees something of its own wrongly while a block of others goes.
struct FreesWrongly(Box<dyn Fn() + Send + Sync>);

impl Watch for FreesWrongly {
    type Book = u8;
    type Entry = ();

    fn book(&self) -> &u8 {
        &0
    }

    fn leave(&self, _: &WatchedBlock<'_>) -> Option<()> {
        (self.0)();
        Some(())
    }

    fn left(&self, _: Layout, (): ()) {
        (self.0)();
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FreesWrongly")
    }
}

/// Else a layer above would take a block in again that is free: `Tracking` would free it twice.
#[test]
fn what_is_refused_within_a_watch_is_not_what_is_freed_around_it() {
    let (sim, other) = (Sim::new(), Sim::new());
    let stream = stream(&sim);
    let pool = Cuda::new(&other.device(0)).pool(PoolConfig::default().checked(true)).unwrap();
    let gone = pool.allocate_sync(layout()).unwrap();
    // SAFETY: the block came from the pool with this layout, and nothing uses it; the pool is checked, and refuses the second free.
    let free = move || unsafe { pool.deallocate_sync(gone, layout()) };
    free();
    let stack = Cuda::new(&sim.device(0)).watched(FreesWrongly(Box::new(free))).stats().tracking();
    let block = stack.allocate(layout(), stream.as_ref()).unwrap();
    // SAFETY: the block came from this stack with this layout, and nothing uses it.
    freeing(|| unsafe { stack.deallocate(block, layout(), stream.as_ref()) }).unwrap();
    assert!(stack.outstanding().blocks.is_empty());
    assert_eq!(stack.upstream().counts().allocations.live, 0);
    assert!(sim.hazards().is_empty() && !other.hazards().is_empty());
}

#[test]
fn a_prefetch_frees_at_once_and_allocates_with_a_call() {
    let sim = Sim::new();
    let stream = stream(&sim);
    let on = stream.as_ref();
    let resource = Managed::new(&sim.device(0)).unwrap().pool(PoolConfig::default()).unwrap().prefetch();
    let block = resource.allocate(layout(), on).unwrap();
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    assert!(unsafe { resource.deallocate_at_once(block, layout(), on) });
    assert!(resource.allocate_at_once(layout(), on).is_none(), "a migration is queued by the driver");
}

/// A limit that processes share is left when the memory is back, and a register tells of leaks while it is there.
#[test]
fn an_upstream_goes_before_the_watch_and_after_its_end() {
    struct Says(Arc<Mutex<Vec<&'static str>>>, &'static str);
    impl Drop for Says {
        fn drop(&mut self) {
            self.0.lock().unwrap().push(self.1);
        }
    }
    let (sim, said) = (Sim::new(), Arc::new(Mutex::new(Vec::new())));
    let (below, above, leaks) =
        (Says(Arc::clone(&said), "below"), Says(Arc::clone(&said), "above"), Arc::clone(&said));
    let says = |what: Says| {
        move |_: &_| {
            let _ = &what;
            Relief::None
        }
    };
    let stack =
        Cuda::new(&sim.device(0)).failure_callback(says(below)).failure_callback(says(above)).tracking();
    let stack = stack.on_leak(move |_| leaks.lock().unwrap().push("leak"));
    stack.allocate_sync(layout()).unwrap();
    drop(stack);
    assert_eq!(*said.lock().unwrap(), ["leak", "below", "above"]);
}

/// A visit does not know which stream the handle is, and a watch could take memory there.
#[test]
fn a_watch_sees_no_stream_that_was_not_asked_for() {
    use alluvion::StreamRef;
    use alluvion::driver::{Driver, StreamFlags};
    let sim = Sim::new();
    let device = sim.device(0);
    let calls = Calls::default();
    let pool = Cuda::new(&device).pool(PoolConfig::default()).unwrap().watched(calls.clone());
    let raw = sim.stream_create(0, StreamFlags::default()).unwrap();
    let streams = device.raw_streams();
    let pair = || {
        // SAFETY: the stream is live.
        let block = unsafe { streams.with(raw, |stream| pool.allocate(layout(), stream)) }.unwrap().unwrap();
        calls.take();
        // SAFETY: the block came from the pool with this layout, and nothing uses it.
        let at_once = |stream: StreamRef<'_>| unsafe { pool.deallocate_at_once(block, layout(), stream) };
        // SAFETY: the stream is live.
        assert!(!unsafe { streams.visit(raw, at_once) });
        assert!(calls.take().is_empty());
        // SAFETY: as above.
        let free = |stream: StreamRef<'_>| unsafe { pool.deallocate(block, layout(), stream) };
        // SAFETY: the stream is live.
        unsafe { streams.with(raw, free) }.unwrap();
    };
    (0..300).for_each(|_| pair());
    // Without the watch it is given back at once.
    // SAFETY: the stream is live.
    let block = unsafe { streams.with(raw, |stream| pool.upstream().allocate(layout(), stream)) }.unwrap();
    let block = block.unwrap();
    // SAFETY: the block came from the pool below, and nothing uses it.
    let at_once =
        |stream: StreamRef<'_>| unsafe { pool.upstream().deallocate_at_once(block, layout(), stream) };
    // SAFETY: the stream is live.
    assert!(unsafe { streams.visit(raw, at_once) });
    drop(pool);
    // SAFETY: it was made above, and nothing has it.
    unsafe { sim.stream_destroy(0, raw) }.unwrap();
    sim.assert_clean();
}
