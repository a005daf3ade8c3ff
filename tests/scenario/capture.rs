//! Beginning and ending a capture, on either machine: the seam to a driver does neither.

use std::sync::Barrier;
use std::thread;

use alluvion::driver::{CaptureMode, Code};
use alluvion::testing::Bench;
use alluvion::{Error, Sim, Stream};

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
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is live, as above; the graph goes to a place for one.
        let code = unsafe { sys::cuStreamEndCapture(raw_stream(stream), &mut graph) };
        checked(code)?;
        if !graph.is_null() {
            // SAFETY: the graph was made just now and is not used again.
            checked(unsafe { sys::cuGraphDestroy(graph) })?;
        }
        Ok(())
    }
}
