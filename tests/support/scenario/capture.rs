//! Beginning and ending a capture, on either machine: the seam to a driver does neither.

use std::sync::Barrier;
use std::thread;

use alluvion::driver::{CaptureMode, Code};
use alluvion::source::Cuda;
use alluvion::testing::Bench;
use alluvion::{DeviceVec, Error, Sim, Stream};

/// Who records.
#[derive(Clone, Copy)]
pub(super) enum Recorder<'a> {
    Simulated(&'a Sim),
    #[cfg(feature = "gpu-tests")]
    Hardware,
}

impl<'a> Recorder<'a> {
    pub(super) fn of(bench: &'a Bench) -> Self {
        match bench.simulated() {
            Some(sim) => Self::Simulated(sim),
            #[cfg(feature = "gpu-tests")]
            None => Self::Hardware,
            #[cfg(not(feature = "gpu-tests"))]
            None => panic!("a capture on hardware needs the feature `gpu-tests`"),
        }
    }

    pub(super) fn begin(self, stream: &Stream, mode: CaptureMode) {
        let (ordinal, raw) = (stream.device().ordinal(), stream.as_ref().raw());
        match self {
            Self::Simulated(sim) => sim.begin_capture(ordinal, raw, mode).expect("the stream can capture"),
            #[cfg(feature = "gpu-tests")]
            Self::Hardware => hardware::begin(raw, mode),
        }
    }

    /// Ends the capture and drops the graph.
    pub(super) fn end(self, stream: &Stream) -> Result<(), Code> {
        let (ordinal, raw) = (stream.device().ordinal(), stream.as_ref().raw());
        match self {
            Self::Simulated(sim) => sim.end_capture(ordinal, raw).map(drop),
            #[cfg(feature = "gpu-tests")]
            Self::Hardware => hardware::end(raw),
        }
    }

    /// A stream captures in the strictest mode on this thread; what is done meanwhile succeeds, and does not break it.
    pub(super) fn is_not_broken_here(
        self,
        capturing: &Stream,
        meanwhile: impl FnOnce() -> Result<(), Error>,
    ) {
        self.begin(capturing, CaptureMode::Global);
        let here = meanwhile();
        assert_eq!(self.end(capturing), Ok(()), "the capture was broken; meanwhile: {here:?}");
        here.unwrap();
    }

    /// The same, with the capture on another thread.
    pub(super) fn is_not_broken_from_here(
        self,
        capturing: &Stream,
        meanwhile: impl FnOnce() -> Result<(), Error>,
    ) {
        let (begun, over) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            let capture = scope.spawn(|| {
                self.begin(capturing, CaptureMode::Global);
                begun.wait();
                over.wait();
                self.end(capturing)
            });
            begun.wait();
            let here = meanwhile();
            over.wait();
            assert_eq!(capture.join().unwrap(), Ok(()), "the capture was broken; meanwhile: {here:?}");
            here.unwrap();
        });
    }

    /// Ends the capture, and runs its graph on the stream, once.
    fn end_and_run(self, stream: &Stream) -> Result<(), Code> {
        let (ordinal, raw) = (stream.device().ordinal(), stream.as_ref().raw());
        match self {
            Self::Simulated(sim) => {
                let graph = sim.end_capture(ordinal, raw)?;
                // SAFETY: what was recorded touches a block that the caller keeps until the stream has been waited for.
                unsafe { sim.launch_graph(ordinal, raw, &graph) }?;
                stream.synchronize().expect("the graph runs");
                Ok(())
            }
            #[cfg(feature = "gpu-tests")]
            Self::Hardware => hardware::end_and_run(raw),
        }
    }

    /// A stream captures in the strictest mode, on this thread or on another. What is done on this thread meanwhile leaves the
    /// capture whole: a graph comes of it, which does what was recorded before and after that.
    pub(super) fn a_graph_comes_of_it(
        self,
        capturing: &Stream,
        is_elsewhere: bool,
        name: &str,
        meanwhile: impl FnOnce(),
    ) {
        let cuda = Cuda::new(capturing.device());
        let word = || DeviceVec::filled_in(100, 1_u32, capturing.as_ref(), &cuda).expect("there is room");
        let (mut first, mut second) = (word(), word());
        let (begun, over) = (Barrier::new(2), Barrier::new(2));
        let (before, after) = (&mut first, &mut second);
        let mut begin = || {
            self.begin(capturing, CaptureMode::Global);
            before.fill(2, capturing.as_ref()).expect("the home is recorded");
        };
        let mut end = || {
            let recorded = after.fill(3, capturing.as_ref());
            self.end_and_run(capturing).map(|()| recorded.expect("the home is recorded"))
        };
        let ran = if is_elsewhere {
            thread::scope(|scope| {
                let capture = scope.spawn(|| {
                    begin();
                    begun.wait();
                    over.wait();
                    end()
                });
                begun.wait();
                meanwhile();
                over.wait();
                capture.join().expect("it does not panic")
            })
        } else {
            begin();
            meanwhile();
            end()
        };
        assert_eq!(ran, Ok(()), "the end of {name} broke a capture; elsewhere: {is_elsewhere}");
        assert_eq!(first.to_vec(capturing.as_ref()).expect("nothing is wrong"), [2; 100], "{name}");
        assert_eq!(second.to_vec(capturing.as_ref()).expect("nothing is wrong"), [3; 100], "{name}");
    }

    /// Does what a capture forbids, and ends the capture that this has broken.
    pub(super) fn break_off(self, stream: &Stream) {
        assert!(stream.synchronize().is_err(), "a capturing stream cannot be waited for");
        assert!(self.end(stream).is_err(), "the capture was broken");
    }
}

#[cfg(feature = "gpu-tests")]
mod hardware {
    use std::ptr;

    use alluvion::driver::{CaptureMode, Code, RawStream};
    use cudarc::driver::sys;

    fn checked(code: sys::CUresult) -> Result<(), Code> {
        match code as u32 {
            0 => Ok(()),
            code => Err(Code(code)),
        }
    }

    fn raw_stream(stream: RawStream) -> sys::CUstream {
        ptr::with_exposed_provenance_mut(stream.0 as usize)
    }

    pub(super) fn begin(stream: RawStream, mode: CaptureMode) {
        let mode = match mode {
            CaptureMode::Global => sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
            CaptureMode::ThreadLocal => sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            CaptureMode::Relaxed => sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
        };
        // SAFETY: the stream is live: the caller borrows its owner.
        let code = unsafe { sys::cuStreamBeginCapture_v2(raw_stream(stream), mode) };
        checked(code).expect("the stream can capture");
    }

    pub(super) fn end(stream: RawStream) -> Result<(), Code> {
        let graph = end_for_graph(stream)?;
        if !graph.is_null() {
            // SAFETY: the graph was made just now and is not used again.
            checked(unsafe { sys::cuGraphDestroy(graph) })?;
        }
        Ok(())
    }

    /// Null where nothing was recorded.
    fn end_for_graph(stream: RawStream) -> Result<sys::CUgraph, Code> {
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is live, as above; the graph goes to a place for one.
        let code = unsafe { sys::cuStreamEndCapture(raw_stream(stream), &mut graph) };
        checked(code).map(|()| graph)
    }

    pub(super) fn end_and_run(stream: RawStream) -> Result<(), Code> {
        // To make a graph launchable a context must be current, which it is not on a thread that has only recorded.
        let context = cudarc::driver::CudaContext::new(0).expect("there is a GPU");
        context.bind_to_thread().expect("it is live");
        let graph = end_for_graph(stream)?;
        let mut launchable = ptr::null_mut();
        // SAFETY: the graph was made just now; what can be launched goes to a place for it.
        checked(unsafe { sys::cuGraphInstantiateWithFlags(&mut launchable, graph, 0) })?;
        // SAFETY: both are live, and so is what the graph touches until the stream has been waited for, below.
        checked(unsafe { sys::cuGraphLaunch(launchable, raw_stream(stream)) })?;
        // SAFETY: the stream is live, as above.
        checked(unsafe { sys::cuStreamSynchronize(raw_stream(stream)) })?;
        // SAFETY: it has run, and is not used again.
        checked(unsafe { sys::cuGraphExecDestroy(launchable) })?;
        // SAFETY: as above.
        checked(unsafe { sys::cuGraphDestroy(graph) })
    }
}
