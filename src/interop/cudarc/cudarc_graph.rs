//! `CudarcGraph`: a graph of cudarc, with the memory that it uses.
//!
//! cudarc launches a graph by a safe function, which asks nobody whether the memory of the graph is still there. Here the graph
//! is inside, so that each launch goes through [`CudarcGraph::launch`]: on one stream, and into no other graph. So the end knows
//! which stream to wait for.

#![expect(unsafe_code, reason = "gives memory back whose graph it has destroyed")]

use core::cell::Cell;
use core::fmt;
use core::mem::ManuallyDrop;

use cudarc::driver::{CudaGraph, CudaStream, sys};

use crate::driver::cuda::CudaDriver;
use crate::driver::{Call, Code, DriverError, RawGraph};
use crate::error::{Error, Returned};
use crate::resource::{AnyResource, Resource};
use crate::stream::Stream;
use crate::suballoc::GraphMemory;
use crate::sync::Arc;

/// A [`CudaGraph`] that owns its memory: [`GraphMemory::end_cudarc`].
///
/// When it is dropped, it destroys the graph, waits on the host for the stream of its launches, and gives the memory back. The
/// memory is leaked instead while that stream captures, while a block of it is out, and where a capture has begun on another
/// thread during a launch.
///
/// # Stream ordering
///
/// Each launch is on the stream of the capture, in the order of that stream.
///
/// # Thread safety
///
/// It stays on its thread, as a `CudaGraph` does.
///
/// # Examples
///
/// ```no_run
/// // Needs a GPU.
/// use std::sync::Arc;
///
/// use alluvion::source::Cuda;
/// use alluvion::{Device, Layout, PoolConfig, Resource, ResourceExt, Stream};
/// use cudarc::driver::sys;
///
/// let theirs = cudarc::driver::CudaContext::new(0)?.new_stream()?;
/// let ours = Stream::from_cudarc(&theirs)?;
/// let pool = Arc::new(Cuda::new(ours.device()).pool(PoolConfig::default())?);
///
/// theirs.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
/// let memory = pool.capture_owned(&ours)?;
/// let output = pool.allocate(Layout::array::<f32>(1000)?, ours.as_ref())?;
/// // Launch kernels here that write to `output.address()`, with scratch memory from the pool.
/// let graph = memory.end_cudarc(&theirs, sys::CUgraphInstantiate_flags(0))?;
/// for _ in 0..1000 {
///     graph.launch()?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the graph is destroyed when this is dropped"]
pub struct CudarcGraph<'p, U: Resource = AnyResource> {
    /// Not dropped by the compiler, because it goes before the wait, and stays where nothing can be waited for.
    graph: ManuallyDrop<CudaGraph>,
    memory: GraphMemory<'p, U>,
    /// The stream of the launches.
    stream: Stream,
    /// A launch may be a part of another graph, which nobody knows.
    is_in_another: Cell<bool>,
}

impl<'p, U: Resource> GraphMemory<'p, U> {
    /// Ends the capture on `stream`, which it was begun on, and keeps the memory with the graph that comes of it.
    ///
    /// # Errors
    ///
    /// With the memory: `InvalidArgument` if the stream takes no part in the capture of this memory, or nothing comes of it; as
    /// cudarc says. Where the capture was broken, it has ended all the same.
    pub fn end_cudarc(
        self,
        stream: &Arc<CudaStream>,
        flags: sys::CUgraphInstantiate_flags,
    ) -> Result<CudarcGraph<'p, U>, Returned<Self>> {
        match self.end_and_compare(stream, flags) {
            Ok((graph, stream)) => {
                // It may have ended before.
                let _ = self.end();
                let is_in_another = Cell::new(false);
                Ok(CudarcGraph { graph: ManuallyDrop::new(graph), memory: self, stream, is_in_another })
            }
            Err(error) => Err(Returned::new(self, error)),
        }
    }

    /// Ends the capture. The graph is the one that uses this memory.
    fn end_and_compare(
        &self,
        theirs: &Arc<CudaStream>,
        flags: sys::CUgraphInstantiate_flags,
    ) -> Result<(CudaGraph, Stream), Error> {
        let stream = Stream::from_cudarc(theirs)?;
        stream.device().require(self.device())?;
        let capture = stream.as_ref().capture_id()?;
        if capture.is_none_or(|capture| capture.number != self.capture().number) {
            return Err(Error::invalid_argument(
                "a stream that takes no part in the capture",
                "the memory belongs to the graph of one capture",
                "pass the stream that the capture was begun on",
            ));
        }
        let graph = theirs.end_capture(flags).map_err(|error| of_cudarc(Call::EndCapture, error))?;
        // Another thread may have ended that capture meanwhile, and begun this one.
        let graph = graph.filter(|graph| RawGraph(graph.cu_graph().addr() as u64) == self.capture().graph);
        let graph = graph.ok_or_else(|| {
            Error::invalid_argument(
                "the end of another capture",
                "the graph is not the one that uses this memory",
                "end the capture on the thread that has begun it",
            )
        })?;
        Ok((graph, stream))
    }
}

impl<'p, U: Resource> CudarcGraph<'p, U> {
    /// Launches the graph on the stream of its capture.
    ///
    /// # Errors
    ///
    /// `Capture` if the stream captures: the other graph would have the memory, too; as cudarc says.
    pub fn launch(&self) -> Result<(), Error> {
        self.require_no_capture()?;
        let launched = self.graph.launch().map_err(|error| of_cudarc(Call::GraphLaunch, error));
        // Another thread may have begun a capture meanwhile.
        self.require_no_capture().inspect_err(|_| self.is_in_another.set(true))?;
        launched
    }

    /// Uploads what the first launch needs, ahead of it.
    ///
    /// # Errors
    ///
    /// As cudarc says.
    pub fn upload(&self) -> Result<(), Error> {
        self.require_no_capture()?;
        self.graph.upload().map_err(|error| of_cudarc(Call::GraphLaunch, error))
    }

    /// The memory of the graph.
    pub fn memory(&self) -> &GraphMemory<'p, U> {
        &self.memory
    }

    /// The stream of the launches.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    fn require_no_capture(&self) -> Result<(), Error> {
        if self.stream.is_capturing()? {
            return Err(DriverError::new(Call::GraphLaunch, Code::CAPTURE_UNSUPPORTED).into());
        }
        Ok(())
    }

    /// Destroys the graph and waits for its launches.
    fn end_launches(&mut self) -> Result<(), Error> {
        if self.is_in_another.get() {
            return Err(DriverError::new(Call::GraphLaunch, Code::CAPTURE_UNSUPPORTED).into());
        }
        self.require_no_capture()?;
        let driver = CudaDriver::load()?;
        {
            let _current = driver.make_current(self.stream.device().ordinal())?;
            // SAFETY: it is dropped once: only here, and this is called once, when the whole is dropped.
            unsafe { ManuallyDrop::drop(&mut self.graph) };
        }
        self.stream.synchronize()
    }
}

impl<U: Resource> Drop for CudarcGraph<'_, U> {
    fn drop(&mut self) {
        if self.end_launches().is_ok() {
            // SAFETY:
            // - the graph is the one that was captured: `end_and_compare` has compared the handles. It was dropped just now, with
            //   its executable; nobody else had either, because a `CudaGraph` cannot be cloned and was never handed out, and what
            //   cudarc's functions for the raw handles give is its user's promise.
            // - it was launched on this stream alone, which has been waited for, and is part of no other graph.
            // Where a block is out, the memory is leaked.
            let _ = unsafe { self.memory.release() };
        }
    }
}

impl<U: Resource> fmt::Debug for CudarcGraph<'_, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudarcGraph({:?} on {:?})", self.memory, self.stream)
    }
}

fn of_cudarc(call: Call, error: cudarc::driver::DriverError) -> Error {
    DriverError::new(call, Code(error.0 as u32)).into()
}
