//! `StackGraphMemory`: memory of a stack whose type is forgotten, that belongs to a captured graph.

#![expect(unsafe_code, reason = "gives the memory of graphs that are gone back to their pool")]

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::driver::CaptureId;
use crate::error::Error;
use crate::resource::{AnyResource, DevicePtr, Layout, Resource};
use crate::size::Size;
use crate::stream::OnStream;
use crate::suballoc::{Pool, ReservationId, SuballocBook};

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
    /// Not of `sync`, because no protocol depends on it: who releases it twice at once is told so by the book.
    is_released: AtomicBool,
}

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
    /// `Unsupported` for a stack whose outermost suballocator is no pool; else as there.
    pub fn capture<'s>(&self, stream: impl OnStream<'s>) -> Result<StackGraphMemory, Error> {
        let (reservation, capture) = pool_of(self)?.1.open_session(stream.stream_ref(), None)?;
        Ok(StackGraphMemory {
            stack: self.clone(),
            reservation,
            capture,
            is_released: AtomicBool::new(false),
        })
    }
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

    /// As [`GraphMemory::release`](crate::GraphMemory::release). Of threads that call it at once, one releases the memory.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn release(&self) -> Result<usize, Error> {
        // Relaxed: it guards nothing but the words of the answer.
        if self.is_released.swap(true, Ordering::Relaxed) {
            return Ok(0);
        }
        // SAFETY: the caller's promise.
        let released = unsafe { self.release_now() };
        if released.is_err() {
            self.is_released.store(false, Ordering::Relaxed);
        }
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
fn pool_of(stack: &AnyResource) -> Result<(&dyn Resource, &SuballocBook), Error> {
    let mut at: Option<&dyn Resource> = Some(stack);
    while let Some(resource) = at {
        if let Some(layer) = resource.layer() {
            if let Some(book) = layer.of_layer::<Pool>() {
                return Ok((resource, book));
            }
            if layer.is::<SuballocBook>() {
                break;
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
        if !*self.is_released.get_mut() {
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
