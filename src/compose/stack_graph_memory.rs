//! `StackGraphMemory`: memory of a stack whose type is forgotten, that belongs to a captured graph.

#![expect(unsafe_code, reason = "gives the memory of graphs that are gone back to their pool")]

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};

use crate::driver::CaptureId;
use crate::error::Error;
use crate::resource::{AnyResource, DevicePtr, Layout, Resource};
use crate::size::Size;
use crate::stream::{Frontier, OnStream, StreamRef};
use crate::suballoc::{KeepsBlocks, Pool, ReservationId, SuballocBook};

/// Memory of a stack that belongs to a captured graph: [`AnyResource::capture`]. Keep it beside the graph.
///
/// It is what [`GraphMemory`](crate::GraphMemory) is for a pool, and says there what becomes of blocks; it keeps the stack, and what is
/// allocated from the stack on a stream of the capture comes from it. One that is dropped without [`release`](Self::release) leaves the memory
/// with the graph for good, because nobody has said that the graph is gone.
#[must_use = "the memory stays with the graph for good if nobody releases it"]
pub struct StackGraphMemory {
    stack: AnyResource,
    reservation: ReservationId,
    capture: CaptureId,
    /// [`HELD`], [`GOING`] or [`GONE`]. Not of `sync`, because no protocol depends on it: the book lets nobody release it twice.
    part: AtomicU8,
}

/// It has its part of the memory.
const HELD: u8 = 0;
/// A thread is releasing it.
const GOING: u8 = 1;
/// It has been released.
const GONE: u8 = 2;

static_assertions::assert_impl_all!(StackGraphMemory: Send, Sync);
static_assertions::assert_not_impl_any!(StackGraphMemory: Clone);

impl AnyResource {
    /// Opens memory for the graph that `stream` captures, in the pool of a stack of which only this handle is known, such as that of a
    /// [recipe](crate::Recipe): as [`Pool::capture`].
    ///
    /// ```
    /// use alluvion::driver::CaptureMode;
    /// use alluvion::suballoc::SuballocBook;
    /// use alluvion::{DeviceVec, Recipe, ResourceExt, Sim};
    ///
    /// let sim = Sim::new();
    /// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
    /// let stack = "stats | pool | cuda".parse::<Recipe>()?.build(&device)?;
    /// let mut output = DeviceVec::<u32, _>::zeroed_in(1000, &stream, &stack)?;
    ///
    /// sim.begin_capture(0, stream.raw(), CaptureMode::Global).expect("a stream can capture");
    /// let memory = stack.capture(&stream)?;
    /// let scratch = DeviceVec::filled_in(1000, 7_u32, &stream, &stack)?;
    /// output.copy_from(scratch.as_slice(), &stream)?;
    /// drop(scratch);
    /// let graph = sim.end_capture(0, stream.raw()).expect("the capture is whole");
    /// memory.end()?;
    ///
    /// // SAFETY: the graph touches `output`, whose home is this stream, and the memory of the graph.
    /// unsafe { sim.launch_graph(0, stream.raw(), &graph) }.expect("it can be launched");
    /// assert_eq!(output.to_vec(&stream)?, [7; 1000]);
    /// drop(graph);
    /// // SAFETY: the graph is gone, and its launch is over: the stream was waited for.
    /// assert_eq!(unsafe { memory.release() }?, 2 << 20);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported` for a stack whose outermost suballocator is no pool, or that has bins over it; else as there.
    pub fn capture<'s>(&self, stream: impl OnStream<'s>) -> Result<StackGraphMemory, Error> {
        let (reservation, capture) = pool_of(self)?.1.open_session(stream.stream_ref(), None)?;
        Ok(StackGraphMemory { stack: self.clone(), reservation, capture, part: AtomicU8::new(HELD) })
    }

    /// Has the next free of a block of this stack leave it to the graph that uses it: for an owner whose free on `stream` cannot be made to
    /// come behind `uses`, because `stream` or that of a use captures. The block then serves neither the capture again nor anybody else, and
    /// [`release`](StackGraphMemory::release) waits for `uses`. Where several of these streams capture, each another graph with memory of this
    /// stack, it is there until the memory of the last one is released; but a block of the memory of a graph goes back with that, whoever else uses
    /// it. Returns `false`, and does nothing, if the block is of no graph and none
    /// of the streams captures one with memory of this stack, if it sleeps, and under layers that hand out other addresses than the pool does,
    /// as `guard`: then a block that is freed may be reused under its uses. A block that is left does not sleep any more.
    ///
    /// ```
    /// use alluvion::driver::CaptureMode;
    /// use alluvion::{Frontier, Layout, Recipe, Resource, Sim};
    ///
    /// let sim = Sim::new();
    /// let (main, side) = (sim.device(0).stream()?, sim.device(0).stream()?);
    /// let stack = "pool | cuda".parse::<Recipe>()?.build(&sim.device(0))?;
    /// let layout = Layout::from_bytes(1000)?;
    ///
    /// sim.begin_capture(0, main.raw(), CaptureMode::Global).expect("a stream can capture");
    /// let memory = stack.capture(&main)?;
    /// memory.follow(&side, &main)?;
    /// let block = stack.allocate(layout, main.as_ref())?;
    /// // Work on `side` uses the block, and `main` does not wait for it.
    /// let uses = Frontier::of(side.release());
    /// assert!(main.wait_for(&uses).unwrap_err().is_capture());
    /// assert!(stack.leave_to_graph(block, &main, &uses));
    /// // SAFETY: the block came from there, with this layout; its uses on `side` are the graph's, which has the block.
    /// unsafe { stack.deallocate(block, layout, main.as_ref()) };
    /// assert_ne!(stack.allocate(layout, main.as_ref())?, block, "the graph has it");
    /// # memory.follow(&main, &side)?;
    /// # let _ = sim.end_capture(0, main.raw());
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn leave_to_graph<'s>(&self, block: DevicePtr, stream: impl OnStream<'s>, uses: &Frontier) -> bool {
        leave_to_graph(self, block, stream.stream_ref(), uses)
    }
}

/// As [`AnyResource::leave_to_graph`], for any resource.
pub(crate) fn leave_to_graph(
    resource: &dyn Resource,
    block: DevicePtr,
    stream: StreamRef<'_>,
    uses: &Frontier,
) -> bool {
    pool_of(resource).is_ok_and(|(_, book)| book.leave_to_graph(block, stream, uses))
}

impl StackGraphMemory {
    /// The stack.
    #[must_use]
    pub fn stack(&self) -> &AnyResource {
        &self.stack
    }

    /// The capture that it was opened for.
    #[must_use]
    pub fn capture(&self) -> CaptureId {
        self.capture
    }

    /// The bytes that it has from the pool.
    #[must_use]
    pub fn reserved_bytes(&self) -> usize {
        pool_of(&self.stack).map_or(0, |(_, book)| book.reservation_bytes(self.reservation))
    }

    /// As [`GraphMemory::follow`](crate::GraphMemory::follow).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn follow<'l, 'e>(&self, later: impl OnStream<'l>, earlier: impl OnStream<'e>) -> Result<(), Error> {
        let (later, earlier) = (later.stream_ref(), earlier.stream_ref());
        pool_of(&self.stack)?.1.follow_in_session(self.reservation, self.capture, later, earlier)
    }

    /// As [`GraphMemory::end`](crate::GraphMemory::end).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn end(&self) -> Result<(), Error> {
        pool_of(&self.stack)?.1.end_session(self.reservation, self.capture)
    }

    /// As [`GraphMemory::release`](crate::GraphMemory::release). Of threads that call it at once one gives the memory back and returns its
    /// bytes; whoever comes while that one is at it gets an error, and whoever comes later 0.
    ///
    /// # Errors
    ///
    /// As there; `InUse` while another thread is at it: the memory is back, or still the graph's, when that one has returned.
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn release(&self) -> Result<usize, Error> {
        // Relaxed, here and below: it guards nothing but the words of the answer. What is given back is under the lock of the book.
        match self.part.compare_exchange(HELD, GOING, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {}
            Err(GONE) => return Ok(0),
            Err(_) => {
                return Err(Error::in_use_by_others(
                    "memory of a graph",
                    "another thread is releasing it",
                    "release it once, or again when that thread is done",
                ));
            }
        }
        // SAFETY: the caller's promise.
        let released = unsafe { self.release_now() };
        self.part.store(if released.is_ok() { GONE } else { HELD }, Ordering::Relaxed);
        released
    }

    /// # Safety
    ///
    /// As [`release`](Self::release).
    unsafe fn release_now(&self) -> Result<usize, Error> {
        // It may have ended before.
        let _ = self.end();
        let (pool, book) = pool_of(&self.stack)?;
        let free = |block: DevicePtr, layout: Layout| {
            // SAFETY: the block is live and of this pool, with this layout, and no work uses it, by the text of `release_reservation`.
            unsafe { pool.deallocate_sync(block, layout) };
        };
        // SAFETY: the caller's promise.
        unsafe { book.release_reservation(self.reservation, free) }
    }
}

/// The pool that is the outermost suballocator of a stack, past the layers that watch, and its book.
fn pool_of(stack: &dyn Resource) -> Result<(&dyn Resource, &SuballocBook), Error> {
    let mut at = Some(stack);
    while let Some(resource) = at {
        if let Some(layer) = resource.layer() {
            if let Some(book) = layer.of_layer::<Pool>() {
                return Ok((resource, book));
            }
            if layer.is::<SuballocBook>() {
                break;
            }
            if layer.is::<KeepsBlocks>() {
                return Err(Error::unsupported(
                    "memory for a graph from a pool under bins",
                    "a bin keeps blocks of its own, which it would hand to others while the graph uses them",
                    "capture on a stack without `binning` over its pool",
                ));
            }
        }
        at = resource.upstream();
    }
    Err(Error::unsupported(
        "memory for a graph from this stack",
        "its outermost suballocator is no pool",
        "name `pool` in the recipe, under layers that watch",
    ))
}

impl Drop for StackGraphMemory {
    fn drop(&mut self) {
        if *self.part.get_mut() != GONE {
            // The memory stays with the pool, as the graph's. It may have ended before.
            let _ = self.end();
        }
    }
}

impl fmt::Debug for StackGraphMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StackGraphMemory({})", Size(self.reserved_bytes()))
    }
}
