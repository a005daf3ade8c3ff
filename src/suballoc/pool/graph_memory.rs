//! `GraphMemory`: memory of a pool that belongs to a captured graph.

#![expect(unsafe_code, reason = "implements the contract of resources")]

use core::fmt;

use super::Pool;
use super::handle::PoolHandle;
use crate::device::Device;
use crate::driver::CaptureId;
use crate::error::Error;
use crate::resource::{
    AnyResource, DeviceAccessible, DevicePtr, HostAccessible, Layout, Resource, ResourceId,
};
use crate::size::Size;
use crate::stream::{OnStream, StreamRef};
use crate::suballoc::engine::ReservationId;
use crate::sync::Arc;

/// Memory of a pool that belongs to a captured graph: [`Pool::capture`]. Keep it beside the graph.
///
/// A graph has the addresses of its memory for as long as it can be launched. While this handle is open, whatever is allocated on
/// a stream of the capture comes from memory that serves this graph and nobody else: from the handle itself, which is a resource,
/// and from the pool, so that code in between needs not know. Within the capture, memory is reused in the captured order.
///
/// | freed | becomes |
/// |---|---|
/// | in the capture, a block that was allocated in it | memory for later work of the capture |
/// | in the capture, any other block of the pool | the graph's: it may use the block at each launch |
/// | elsewhere, a block that was allocated in the capture | the graph's, and no more than that |
/// | in the capture, by a container that a stream uses which the home does not wait for | the graph's, and no more than that |
///
/// A suballocator above the pool, as a bin is, keeps blocks of its own that the pool does not see: take none from it in a capture.
///
/// # The end
///
/// [`end`](Self::end) closes the handle when the capture has ended. [`release`](Self::release) gives the memory back when the
/// graph is gone. A handle that is dropped without it leaks the memory: nobody has said that the graph is gone, so that nobody
/// else may have it, nor does it go back to the upstream when the pool ends. [`Status::graph_bytes`](crate::suballoc::Status)
/// counts all of it.
///
/// # Stream ordering
///
/// A stream that waits for an event of the capture joins it, and may allocate here. It reuses what it has freed itself; what
/// another stream of the capture has freed it reuses after [`follow`](Self::follow), which is such a wait that this handle knows
/// of. Memory is taken from the pool by synchronous calls, which no capture forbids.
///
/// # Examples
///
/// ```
/// use alluvion::driver::CaptureMode;
/// use alluvion::{DeviceVec, PoolConfig, ResourceExt, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default())?;
/// let mut output = DeviceVec::<u32, _>::zeroed_in(1000, &stream, &pool)?;
///
/// sim.begin_capture(0, stream.raw(), CaptureMode::Global).expect("a stream can capture");
/// let mut memory = pool.capture(&stream)?;
/// for step in 0..4 {
///     // Scratch memory: each step gets that of the step before.
///     let scratch = DeviceVec::filled_in(1000, step, &stream, &pool)?;
///     output.copy_from(scratch.as_slice(), &stream)?;
/// }
/// let graph = sim.end_capture(0, stream.raw()).expect("the capture is whole");
/// memory.end()?;
/// assert_eq!(pool.status().graph_bytes, 2 << 20);
///
/// for _ in 0..3 {
///     // SAFETY: the graph touches `output`, whose home is this stream, and the memory of the graph.
///     unsafe { sim.launch_graph(0, stream.raw(), &graph) }.expect("it can be launched");
/// }
/// assert_eq!(output.to_vec(&stream)?, [3; 1000]);
/// drop(graph);
/// // SAFETY: the graph is gone, and its launches are over: the stream was waited for.
/// unsafe { memory.release() }?;
/// assert_eq!(pool.status().graph_bytes, 0);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[must_use = "the memory is leaked with its handle"]
pub struct GraphMemory<'p, U: Resource = AnyResource> {
    pool: PoolHandle<'p, U>,
    reservation: ReservationId,
    capture: CaptureId,
    id: ResourceId,
    is_released: bool,
}

static_assertions::assert_impl_all!(GraphMemory<'static, crate::source::Cuda>: Send, Sync, DeviceAccessible);

impl<U: Resource> Pool<U> {
    /// Opens memory for the graph that `stream` captures: see [`GraphMemory`].
    ///
    /// Call it right after the capture has begun. What was allocated before it is the pool's, and its owner keeps it while the graph
    /// can be launched; if it is freed in the capture, the graph keeps it. One thread at a time uses a stream that captures, as CUDA
    /// demands of the graph that is being made.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the stream does not capture, or its capture has such memory already; `DeviceMismatch` for a stream of
    /// another device; as the driver says.
    pub fn capture<'s>(&self, stream: impl OnStream<'s>) -> Result<GraphMemory<'_, U>, Error> {
        GraphMemory::open(PoolHandle::Borrowed(self), stream.stream_ref(), None)
    }

    /// As [`capture`](Self::capture); the handle keeps the pool, so that both can be kept beside the graph.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use alluvion::driver::CaptureMode;
    /// use alluvion::{GraphMemory, Layout, Pool, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// struct Step {
    ///     memory: GraphMemory<'static, Cuda>,
    /// }
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let pool = Arc::new(Cuda::new(&sim.device(0)).pool(PoolConfig::default())?);
    /// sim.begin_capture(0, stream.raw(), CaptureMode::Global).expect("a stream can capture");
    /// let step = Step { memory: pool.capture_owned(&stream)? };
    /// drop(pool);
    /// let block = step.memory.allocate(Layout::from_bytes(1000)?, stream.as_ref())?;
    /// # let _ = (block, sim.end_capture(0, stream.raw()));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As there.
    pub fn capture_owned<'s>(
        self: &Arc<Self>,
        stream: impl OnStream<'s>,
    ) -> Result<GraphMemory<'static, U>, Error>
    where
        U: 'static,
    {
        GraphMemory::open(PoolHandle::Counted(Arc::clone(self)), stream.stream_ref(), None)
    }
}

impl<'p, U: Resource> GraphMemory<'p, U> {
    fn open(
        pool: PoolHandle<'p, U>,
        stream: StreamRef<'_>,
        shared: Option<ReservationId>,
    ) -> Result<Self, Error> {
        let (reservation, capture) = pool.engine.book().open_session(stream, shared)?;
        Ok(Self { pool, reservation, capture, id: ResourceId::unique(), is_released: false })
    }

    /// The pool that the memory comes from.
    #[must_use]
    pub fn pool(&self) -> &Pool<U> {
        &self.pool
    }

    /// The capture that it was opened for.
    #[must_use]
    pub fn capture(&self) -> CaptureId {
        self.capture
    }

    /// The bytes that it has from the pool, with those of other handles that [share](Self::share) it.
    #[must_use]
    pub fn reserved_bytes(&self) -> usize {
        self.pool.engine.book().reservation_bytes(self.reservation)
    }

    /// Makes later work of `later` wait for all that `earlier` has captured so far: `later` may then reuse what `earlier` has
    /// freed. A stream that does not capture yet joins the capture.
    ///
    /// ```
    /// use alluvion::driver::CaptureMode;
    /// use alluvion::{DeviceVec, PoolConfig, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let (main, side) = (sim.device(0).stream()?, sim.device(0).stream()?);
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default())?;
    /// sim.begin_capture(0, main.raw(), CaptureMode::Global).expect("a stream can capture");
    /// let memory = pool.capture(&main)?;
    /// drop(DeviceVec::filled_in(2 << 20, 1_u8, &main, &memory)?);
    /// memory.follow(&side, &main)?;
    /// let behind = DeviceVec::filled_in(2 << 20, 2_u8, &side, &memory)?;
    /// assert_eq!(memory.reserved_bytes(), 2 << 20, "it comes after the free, and has that memory");
    /// // Before the end, the stream of the capture follows all others.
    /// drop(behind);
    /// memory.follow(&main, &side)?;
    /// assert!(sim.end_capture(0, main.raw()).is_ok());
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `earlier` takes no part in the capture, `later` takes part in another one, or the handle has ended;
    /// `DeviceMismatch` for a stream of another machine; as the driver says.
    pub fn follow<'l, 'e>(&self, later: impl OnStream<'l>, earlier: impl OnStream<'e>) -> Result<(), Error> {
        let (later, earlier) = (later.stream_ref(), earlier.stream_ref());
        self.pool.engine.book().follow_in_session(self.reservation, self.capture, later, earlier)
    }

    /// Ends the allocations for this graph: call it when the capture has ended, or is given up. The pool is free of the question
    /// whether a stream captures, and the memory stays the graph's.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if it has ended before.
    pub fn end(&self) -> Result<(), Error> {
        self.pool.engine.book().end_session(self.reservation, self.capture)
    }

    /// Opens the same memory for the graph that `stream` captures, too: both graphs use the same bytes, and the memory goes back
    /// when both handles have been released. What is out stays out; all that is free may be used from the beginning of the second
    /// capture.
    ///
    /// # Errors
    ///
    /// As [`Pool::capture`]; `InvalidArgument` for the capture that has the memory already.
    ///
    /// # Safety
    ///
    /// No two graphs that share memory ever run at once: each launch of one is ordered behind the launches of the others, and
    /// before those that follow. What a graph leaves in memory that it has freed the next one may overwrite.
    pub unsafe fn share<'s>(&self, stream: impl OnStream<'s>) -> Result<Self, Error> {
        if self.is_released {
            return Err(Error::invalid_argument(
                "memory of a graph that has been released",
                "it has gone back to its pool",
                "open another one by `Pool::capture`",
            ));
        }
        Self::open(self.pool.clone(), stream.stream_ref(), Some(self.reservation))
    }

    /// Gives the memory back to the pool, and ends the handle if that has not been done. Waits, on the host, for the work before the frees
    /// that were made outside of the capture. Returns the bytes: none while other handles share the memory, or when it has been
    /// released before.
    ///
    /// # Errors
    ///
    /// `InUse` while a block is out; a capture error while a stream captures that a block was freed on; those of the work itself.
    /// Then nothing has changed, and it can be called again.
    ///
    /// # Safety
    ///
    /// The graph that was captured is gone, so are its executables and copies, and graphs that hold one as a part; none of their
    /// launches is running or queued.
    pub unsafe fn release(&mut self) -> Result<usize, Error> {
        if self.is_released {
            return Ok(0);
        }
        // It may have ended before.
        let _ = self.end();
        let free = |block: DevicePtr, layout: Layout| {
            // SAFETY: the block is live and of this pool, with this layout, and no work uses it, by the text of `release_reservation`.
            unsafe { self.pool.engine.deallocate(block, layout, None) };
        };
        // SAFETY: the caller's promise.
        let bytes = unsafe { self.pool.engine.book().release_reservation(self.reservation, free) }?;
        self.is_released = true;
        Ok(bytes)
    }
}

impl<U: Resource> Drop for GraphMemory<'_, U> {
    fn drop(&mut self) {
        if !self.is_released {
            // The memory stays with the pool, as the graph's. It may have ended before.
            let _ = self.end();
        }
    }
}

// SAFETY: its blocks are pieces of blocks of the pool, carved by a core that hands out none twice; these go back to the pool
// when no piece is out, and whoever has a piece borrows or counts the pool. A piece goes to a stream of the capture only if the
// next work there comes after all captured work that used it. Only the value itself has its id.
unsafe impl<U: Resource> Resource for GraphMemory<'_, U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.pool.engine.allocate_of_session(self.reservation, self.capture, layout, stream)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        self.pool.engine.free_of_reservation(self.reservation, block, layout, Some(stream));
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        layout.require_align(self.max_align())?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        Err(Error::unsupported(
            "a synchronous allocation from memory of a graph",
            "its order is that of the capture",
            "allocate on a stream of the capture, or from the pool",
        ))
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        self.pool.engine.free_of_reservation(self.reservation, block, layout, None);
    }

    fn device(&self) -> &Device {
        self.pool.engine.device()
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GraphMemory({})", Size(self.reserved_bytes()))
    }

    fn host_access(&self) -> bool {
        self.pool.host_access()
    }

    fn trim(&self, _keep_bytes: usize) -> Result<usize, Error> {
        Ok(0)
    }

    fn upstream(&self) -> Option<&dyn Resource> {
        Some(&*self.pool)
    }
}

// SAFETY: its blocks are pieces of the pool's.
unsafe impl<U: DeviceAccessible> DeviceAccessible for GraphMemory<'_, U> {}
// SAFETY: its blocks are pieces of the pool's.
unsafe impl<U: HostAccessible> HostAccessible for GraphMemory<'_, U> {}

impl<U: Resource> fmt::Debug for GraphMemory<'_, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_layer(f)
    }
}
