//! Each clause of the suite fails where it should: one resource for each way to break the contract.

#![expect(unsafe_code, reason = "breaks the contract of resources, on a machine that can be broken")]
#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use alluvion::resource::{Figures, Layer, LayerBook};
use alluvion::source::Cuda;
use alluvion::testing::{Bench, Delayed, Shadow, ShadowHeap, Violation, suite};
use alluvion::{
    AnyResource, Device, DeviceAccessible, DevicePtr, Error, Layout, PoolConfig, Resource, ResourceExt,
    ResourceId, StreamRef,
};

/// A way to break the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// No flaw: the resource below keeps the contract, so that what a clause finds is the flaw.
    None,
    /// Reuses a block on any stream at once.
    ForgetsStreams,
    /// Hands zero bytes to its upstream.
    AllocatesZeroBytes,
    /// Ignores alignments above 256.
    IgnoresAlignment,
    /// Hands out blocks 16 bytes into what its upstream gave.
    Misaligns,
    /// Rounds sizes down, so that neighbours overlap.
    RoundsDown,
    /// Does not look at the device of a stream.
    IgnoresDevices,
    /// Says out of range where it is out of memory.
    MisnamesErrors,
    /// Serves what it has not.
    ServesTheAbsurd,
    /// Loses every fifth block.
    Loses,
    /// Keeps what it was given when it is dropped.
    KeepsOnDrop,
    /// Has an id that depends on where it lies.
    MovingId,
    /// Says that it can free what it cannot.
    OneIdForAll,
    /// Describes itself on two lines.
    Chatty,
    /// Gives live blocks back when it is trimmed.
    TrimsLive,
    /// Keeps what it was given when it is trimmed.
    Hoards,
    /// Says that more is free than there is.
    Boastful,
    /// Blocks that `allocate_sync` returns are ready on one stream only.
    AsynchronousSync,
    /// Fails with a new error once the context is lost.
    ForgetsTheFirstError,
    /// Panics when the context is lost.
    PanicsOnLoss,
    /// Frees on the thread that made it alone.
    ThreadBound,
    /// Has another id each time.
    FickleId,
    /// Writes into a block while it is freed, ordered after nothing.
    Scribbles,
    /// Calls what a capture forbids, without `RelaxedCapture`.
    CallsUnderTheStrictRule,
    /// Asks the driver for what it serves at once.
    CallsAtOnce,
    /// Serves a stream of another device at once.
    ServesOthersAtOnce,
    /// Says that it has not freed at once what it has freed.
    FreesAndDenies,
    /// Forgets at once on which stream a block was freed.
    ForgetsStreamsAtOnce,
}

/// A free list over `Cuda`, and a flaw. Blocks that were freed are used again on the stream that freed them.
struct Flawed {
    upstream: Cuda,
    flaw: Flaw,
    id: ResourceId,
    home: ThreadId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: Vec<(DevicePtr, Layout, Option<alluvion::Stream>)>,
    live: Vec<(DevicePtr, Layout)>,
    frees: usize,
}

impl Flawed {
    fn new(device: &Device, flaw: Flaw) -> Self {
        let id = match flaw {
            Flaw::OneIdForAll => ResourceId::shared::<Self>(&device.machine().device(0).unwrap(), 0),
            _ => ResourceId::unique(),
        };
        Self { upstream: Cuda::new(device), flaw, id, home: thread::current().id(), state: Mutex::default() }
    }

    /// What is asked of the upstream.
    fn outer(&self, layout: Layout) -> Layout {
        let bytes = layout.rounded_bytes() + if self.flaw == Flaw::Misaligns { 256 } else { 0 };
        Layout::from_bytes(bytes.max(1)).unwrap_or(layout)
    }

    fn take(&self, layout: Layout, stream: Option<StreamRef<'_>>) -> Option<DevicePtr> {
        let outer = self.outer(layout);
        let mut state = self.state.lock().unwrap();
        let found = state.free.iter().position(|(_, free, freed_on)| {
            *free == outer
                && match (freed_on, stream) {
                    (None, _) => true,
                    (Some(freed_on), Some(stream)) => {
                        self.flaw == Flaw::ForgetsStreams || freed_on.id() == stream.id()
                    }
                    (Some(_), None) => self.flaw == Flaw::AsynchronousSync,
                }
        })?;
        Some(state.free.swap_remove(found).0)
    }

    fn serve(&self, layout: Layout, stream: Option<StreamRef<'_>>) -> Result<DevicePtr, Error> {
        if self.flaw == Flaw::ServesTheAbsurd && layout.bytes() >= 1 << 50 {
            return Ok(DevicePtr::new(1 << 40).unwrap());
        }
        if self.flaw != Flaw::IgnoresAlignment {
            layout.require_align(Layout::MIN_ALIGN)?;
        }
        if layout.is_empty() && self.flaw != Flaw::AllocatesZeroBytes {
            return Ok(layout.dangling());
        }
        if self.flaw == Flaw::RoundsDown
            && let Some(&(block, _)) = self.state.lock().unwrap().live.last()
        {
            return Ok(block.offset(256));
        }
        let block = match self.take(layout, stream) {
            Some(block) => block,
            None => match self.upstream.allocate_sync(self.outer(layout)) {
                Ok(block) => block,
                Err(error) if error.is_out_of_memory() && self.trim(0)? > 0 => {
                    self.upstream.allocate_sync(self.outer(layout))?
                }
                Err(_) if self.flaw == Flaw::MisnamesErrors => return Err(Error::out_of_range(1, 0)),
                Err(_) if self.flaw == Flaw::ForgetsTheFirstError => return Err(Error::in_use(1)),
                Err(error) => {
                    assert!(self.flaw != Flaw::PanicsOnLoss || !error.is_context_lost());
                    return Err(error);
                }
            },
        };
        let block = if self.flaw == Flaw::Misaligns { block.offset(16) } else { block };
        self.state.lock().unwrap().live.push((block, layout));
        Ok(block)
    }

    fn put(&self, block: DevicePtr, layout: Layout, stream: Option<StreamRef<'_>>) {
        if layout.is_empty() && self.flaw != Flaw::AllocatesZeroBytes {
            return;
        }
        assert!(self.flaw != Flaw::ThreadBound || thread::current().id() == self.home);
        if self.flaw == Flaw::CallsUnderTheStrictRule {
            let _ = self.device().driver().allocate_device(self.device().ordinal(), 1);
        }
        if self.flaw == Flaw::Scribbles {
            let junk = 0xDEAD_BEEF_u32;
            let from = std::ptr::from_ref(&junk).expose_provenance() as u64;
            let device = self.device();
            // SAFETY: both ranges are live; that other work on the block may conflict is the flaw.
            unsafe { device.driver().copy(device.ordinal(), block.address(), from, 4) }.unwrap();
        }
        let mut state = self.state.lock().unwrap();
        state.frees += 1;
        state.live.retain(|&(live, _)| live != block);
        if self.flaw == Flaw::Loses && state.frees.is_multiple_of(5) {
            return;
        }
        if matches!(self.flaw, Flaw::RoundsDown | Flaw::OneIdForAll) {
            return;
        }
        let offset = if self.flaw == Flaw::Misaligns { 16 } else { 0 };
        let block = DevicePtr::new(block.address() - offset).unwrap();
        state.free.push((block, self.outer(layout), stream.map(StreamRef::to_stream)));
    }
}

// SAFETY: it does not keep the contract, but for `Flaw::None`. Its blocks are used by the suite on a simulated machine, which
// finds every wrong access and does none outside of its own memory.
unsafe impl Resource for Flawed {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        if self.flaw != Flaw::IgnoresDevices {
            self.device().require(stream.device())?;
        }
        self.serve(layout, Some(stream))
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        self.put(block, layout, Some(stream));
    }

    fn allocate_at_once(&self, layout: Layout, stream: StreamRef<'_>) -> Option<DevicePtr> {
        if self.flaw == Flaw::CallsAtOnce {
            self.device().memory_info().ok()?;
        }
        let is_here = self.flaw == Flaw::ServesOthersAtOnce || self.device().require(stream.device()).is_ok();
        if layout.is_empty() || layout.align() > Layout::MIN_ALIGN || !is_here {
            return None;
        }
        let of_any_stream = self.flaw == Flaw::ServesOthersAtOnce;
        let block = self.take(layout, (!of_any_stream).then_some(stream))?;
        self.state.lock().unwrap().live.push((block, layout));
        Some(block)
    }

    unsafe fn deallocate_at_once(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) -> bool {
        let freed_on = (self.flaw != Flaw::ForgetsStreamsAtOnce).then_some(stream);
        self.put(block, layout, if self.flaw == Flaw::ServesOthersAtOnce { None } else { freed_on });
        self.flaw != Flaw::FreesAndDenies
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.serve(layout, None)
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        self.put(block, layout, None);
    }

    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn id(&self) -> ResourceId {
        match self.flaw {
            Flaw::MovingId => {
                ResourceId::shared::<Self>(self.device(), std::ptr::from_ref(self).addr() as u64)
            }
            Flaw::FickleId => ResourceId::unique(),
            _ => self.id,
        }
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.flaw == Flaw::Chatty { "Flawed\nin many ways" } else { "Flawed" })
    }

    fn max_align(&self) -> usize {
        Layout::MIN_ALIGN
    }

    fn trim(&self, _: usize) -> Result<usize, Error> {
        if self.flaw == Flaw::Hoards {
            return Ok(0);
        }
        let (mut gone, mut bytes) = (std::mem::take(&mut self.state.lock().unwrap().free), 0);
        if self.flaw == Flaw::TrimsLive {
            let live = self.state.lock().unwrap().live.clone();
            gone.extend(live.into_iter().map(|(block, layout)| (block, self.outer(layout), None)));
        }
        for (block, layout, _) in gone {
            bytes += layout.bytes();
            // SAFETY: the block came from the upstream with this layout; the free waits for the device.
            unsafe { self.upstream.deallocate_sync(block, layout) };
        }
        Ok(bytes)
    }

    fn memory_info(&self) -> Result<alluvion::MemoryInfo, Error> {
        let mut info = self.device().memory_info()?;
        if self.flaw == Flaw::Boastful {
            info.free_bytes = info.total_bytes + 1;
        }
        Ok(info)
    }

    fn upstream(&self) -> Option<&dyn Resource> {
        Some(&self.upstream)
    }
}

// SAFETY: it is memory of the device.
unsafe impl DeviceAccessible for Flawed {}

impl Drop for Flawed {
    fn drop(&mut self) {
        if self.flaw != Flaw::KeepsOnDrop {
            let _ = self.trim(0);
        }
    }
}

/// Runs one clause; says whether it passes.
fn passes(clause: impl Fn(&Bench)) -> bool {
    catch_unwind(AssertUnwindSafe(|| clause(&Bench::sim()))).is_ok()
}

/// As the suite makes what it stamps.
fn erased(flaw: Flaw) -> Box<dyn Fn(&Device) -> AnyResource> {
    Box::new(move |device| AnyResource::new(Flawed::new(device, flaw)))
}

/// As it makes what moves.
fn typed(flaw: Flaw) -> Box<dyn Fn(&Device) -> Flawed> {
    Box::new(move |device| Flawed::new(device, flaw))
}

macro_rules! clauses {
    ($made:ident: $($clause:ident catches $($flaw:ident)+;)+) => {
        $(
            #[test]
            fn $clause() {
                let clause = |flaw: Flaw| passes(|bench| suite::$clause(bench, &*$made(flaw)));
                assert!(clause(Flaw::None), "the clause fails a resource that keeps the contract");
                $( assert!(!clause(Flaw::$flaw), "the clause passes {:?}", Flaw::$flaw); )+
            }
        )+
    };
}

clauses! { erased:
    zero_bytes_reach_nobody catches AllocatesZeroBytes;
    alignments_are_honoured_or_refused catches IgnoresAlignment Misaligns;
    blocks_are_disjoint catches RoundsDown;
    blocks_hold_what_is_written catches RoundsDown;
    absurd_sizes_are_out_of_memory catches ServesTheAbsurd MisnamesErrors;
    exhaustion_is_not_the_end catches Loses MisnamesErrors;
    freeing_synchronously_really_frees catches Loses;
    streams_of_others_are_refused catches IgnoresDevices;
    freed_memory_is_reusable_on_its_stream catches Scribbles;
    freed_memory_is_ordered catches ForgetsStreams;
    every_schedule_keeps_the_order catches ForgetsStreams;
    allocating_synchronously_is_synchronous catches AsynchronousSync;
    random_operations_agree_with_the_oracle catches RoundsDown Misaligns IgnoresAlignment ForgetsStreams;
    free_on_another_thread catches ThreadBound;
    four_threads_at_once catches RoundsDown;
    four_threads_keep_their_bytes catches RoundsDown;
    every_handle_frees_every_block catches FickleId;
    erased_handles_free_every_block catches FickleId;
    the_description_is_one_line catches Chatty;
    trimming_is_harmless catches TrimsLive Hoards;
    memory_info_is_plausible catches Boastful;
    nothing_leaks catches KeepsOnDrop Loses;
    captures_elsewhere_survive catches CallsUnderTheStrictRule;
    at_once_takes_no_driver_call catches CallsAtOnce ServesOthersAtOnce FreesAndDenies;
    blocks_at_once_are_ordered catches ForgetsStreamsAtOnce FreesAndDenies;
    a_lost_context_fails_fast_and_silently catches ForgetsTheFirstError PanicsOnLoss;
}

clauses! { typed:
    ids_say_who_frees_what catches MovingId OneIdForAll FickleId;
}

#[test]
fn the_shadow_refuses_what_overlaps() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let resource = Shadow::new(Flawed::new(&bench.device(), Flaw::RoundsDown));
    let layout = Layout::from_bytes(4096).unwrap();
    resource.allocate(layout, stream.as_ref()).unwrap();
    assert!(resource.allocate(layout, stream.as_ref()).is_err());
    assert!(matches!(resource.violations()[..], [Violation::Overlap { .. }]));
    assert_eq!(resource.live().len(), 1);
}

#[test]
fn the_shadow_stops_wrong_frees() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let resource = Shadow::new(Cuda::new(&bench.device()));
    let layout = Layout::from_bytes(4096).unwrap();
    let block = resource.allocate(layout, stream.as_ref()).unwrap();
    // SAFETY: wrong on purpose, and the shadow hands no wrong free on.
    unsafe { resource.deallocate(block, Layout::from_bytes(4097).unwrap(), stream.as_ref()) };
    // SAFETY: the block is live, with this layout, and nothing uses it.
    unsafe { resource.deallocate(block, layout, stream.as_ref()) };
    // SAFETY: wrong on purpose, as above.
    unsafe { resource.deallocate_sync(block, layout) };
    assert!(
        matches!(resource.violations()[..], [Violation::WrongLayout { .. }, Violation::NotLive { .. }]),
        "{:?}",
        resource.violations()
    );
    bench.check();
}

/// A layer that counts, and that is left out where its upstream serves at once.
struct LeftOut<U> {
    upstream: U,
    count: AtomicU64,
    counts_at_once: bool,
}

impl<U> Layer for LeftOut<U> {
    type Book = AtomicU64;

    fn figures(count: &AtomicU64, to: &mut Figures<'_>) {
        to.counter("requests_total", "Requests that were served.", count.load(Ordering::Relaxed));
    }
}

// SAFETY: the blocks are the upstream's, whose id it has and which keeps the contract. That some are not counted is the flaw.
unsafe impl<U: Resource> Resource for LeftOut<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.upstream.allocate(layout, stream)
    }

    fn allocate_at_once(&self, layout: Layout, stream: StreamRef<'_>) -> Option<DevicePtr> {
        let block = self.upstream.allocate_at_once(layout, stream)?;
        self.count.fetch_add(u64::from(self.counts_at_once), Ordering::Relaxed);
        Some(block)
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(&self.count))
    }

    alluvion::forward_resource!(upstream, except allocate);
}

#[test]
fn a_layer_that_is_left_out_at_once_is_found() {
    for counts_at_once in [true, false] {
        let found = !passes(|bench| {
            suite::at_once_changes_no_figure(bench, |device| LeftOut {
                upstream: Cuda::new(device).pool(PoolConfig::default()).unwrap(),
                count: AtomicU64::new(0),
                counts_at_once,
            });
        });
        assert_eq!(found, !counts_at_once);
    }
}

/// A layer that closes its books after the free has returned: by then the address may be another thread's.
struct LateBooks<U> {
    upstream: U,
    id: ResourceId,
    books: Mutex<ShadowHeap>,
}

// SAFETY: the blocks are the upstream's, which keeps the contract, and go back to it. That the books are wrong is the flaw.
unsafe impl<U: Resource> Resource for LateBooks<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        let block = self.upstream.allocate(layout, stream)?;
        self.books.lock().unwrap().insert(block, layout).expect("nobody has the block");
        Ok(block)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        // SAFETY: the caller's promises, and the block came from the upstream.
        unsafe { self.upstream.deallocate(block, layout, stream) };
        self.books.lock().unwrap().remove(block, layout).expect("the block is on the books");
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    alluvion::forward_resource!(upstream, except allocate, deallocate, id);
}

/// With a source that dawdles after each free, four threads meet in the gap. On a busy machine they may run one after the
/// other and miss it (once in some hundred runs on two cores), so they are given several chances, with longer gaps.
#[test]
fn a_delay_shows_books_that_are_closed_late() {
    let delay = std::time::Duration::from_micros(200);
    let noticed = (0..10).any(|tries| {
        !passes(|bench| {
            suite::four_threads_at_once(bench, |device| LateBooks {
                upstream: Delayed::new(Cuda::new(device), delay * (1 << tries.min(4))),
                id: ResourceId::unique(),
                books: Mutex::default(),
            });
        })
    });
    assert!(noticed, "the books were closed late, and nobody noticed");
    let in_time = passes(|bench| {
        suite::four_threads_at_once(bench, |device| Shadow::new(Delayed::new(Cuda::new(device), delay)));
    });
    assert!(in_time, "the books were closed in time");
}
