//! `Lent`: a stream for one call, borrowed from whoever keeps its timeline.

#![expect(unsafe_code, reason = "copies counted pointers without counting")]

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr;
use std::sync::{OnceLock, Weak};

use super::stream::StreamCore;
use super::{StreamKind, StreamRef};
use crate::device::Device;
use crate::order::Timeline;
use crate::sync::Arc;

/// A stream for one call. It costs neither an allocation nor a change of a count that threads share: of the device's, the threads of a
/// program would make one cache line that all of them write.
///
/// Dropping it gives the lease up that the caller has taken, if the stream is fleeting.
pub(super) struct Lent<'s> {
    /// Has no counts of its own, and is not dropped.
    core: ManuallyDrop<StreamCore>,
    _keeps: PhantomData<(&'s Device, &'s Arc<Timeline>)>,
}

impl<'s> Lent<'s> {
    /// Of a fleeting stream the caller has a lease.
    pub(super) fn new(device: &'s Device, timeline: &'s Arc<Timeline>, kind: StreamKind) -> Self {
        Self::copy(device, timeline, kind, false)
    }

    /// A fleeting stream of which the caller has no lease, but keeps the entry: for a visit.
    pub(super) fn visit(device: &'s Device, timeline: &'s Arc<Timeline>) -> Self {
        Self::copy(device, timeline, StreamKind::Foreign, true)
    }

    fn copy(device: &'s Device, timeline: &'s Arc<Timeline>, kind: StreamKind, is_visit: bool) -> Self {
        // SAFETY: the copy is used through a shared reference alone and is not dropped, and the original is borrowed for as long as
        // the copy lives, so its count stays above 0.
        let device = unsafe { ptr::read(device) };
        // SAFETY: as above.
        let timeline = unsafe { ptr::read(timeline) };
        let (courier, this) = (OnceLock::new(), Weak::new());
        let core = StreamCore { device, timeline, kind, is_visit, courier, this };
        Self { core: ManuallyDrop::new(core), _keeps: PhantomData }
    }

    pub(super) fn as_ref(&self) -> StreamRef<'_> {
        StreamRef::to(&self.core)
    }
}

impl Drop for Lent<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.core.timeline.is_fleeting() && !self.core.is_visit {
            self.core.timeline.rest();
        }
        drop(self.core.courier.take());
    }
}

#[cfg(all(test, feature = "testing", not(loom)))]
mod tests {
    use crate::driver::{Driver, RawStream, StreamFlags};
    use crate::testing::Stall;
    use crate::{Sim, Stream};

    /// Calls `body` with the stream of a handle, on the machine's first device.
    fn with<T>(sim: &Sim, raw: RawStream, body: impl FnOnce(crate::StreamRef<'_>) -> T) -> T {
        // SAFETY: the tests name default streams, and streams that they destroy later.
        unsafe { sim.device(0).raw_streams().with(raw, body) }.expect("the stream is known")
    }

    #[test]
    fn a_lent_stream_is_the_one_that_a_handle_is() {
        let sim = Sim::new();
        let device = sim.device(0);
        let own = device.stream().unwrap();
        for raw in [RawStream(0), RawStream::LEGACY, RawStream::PER_THREAD, own.raw()] {
            // SAFETY: default streams, and a live one.
            let found = unsafe { device.raw_streams().stream(raw) }.unwrap();
            let (id, kind) = with(&sim, raw, |stream| (stream.id(), stream.kind()));
            assert_eq!((id, kind), (found.id(), found.kind()));
            assert!(with(&sim, raw, |stream| stream.device() == &device));
        }
    }

    #[test]
    fn what_is_kept_of_a_lent_stream_keeps_it() {
        let sim = Sim::new();
        let raw = sim.stream_create(0, StreamFlags::default()).unwrap();
        for raw in [RawStream(0), RawStream::PER_THREAD, raw] {
            let kept: Stream = with(&sim, raw, |stream| stream.to_stream());
            let mut stall = Stall::on(kept.as_ref());
            let freed = kept.release();
            assert!(!sim.machine().is_quiescent(&crate::Frontier::of(freed)).unwrap());
            assert_eq!(with(&sim, raw, |stream| stream.id()), kept.id());
            stall.let_go();
            kept.synchronize().unwrap();
        }
        // SAFETY: it was made above, and no handle is left.
        unsafe { sim.stream_destroy(0, raw) }.unwrap();
        sim.assert_clean();
    }

    #[test]
    fn a_body_that_panics_gives_the_lease_up() {
        let sim = Sim::new();
        let raw = sim.stream_create(0, StreamFlags::default()).unwrap();
        let thrown = std::panic::catch_unwind(|| {
            with(&sim, raw, |stream| {
                let _ = stream.release();
                std::panic::resume_unwind(Box::new(()))
            })
        });
        assert!(thrown.is_err());
        // SAFETY: it was made above, and nothing has it: the point that was handed out is covered.
        unsafe { sim.stream_destroy(0, raw) }.unwrap();
        let other = sim.stream_create(0, StreamFlags::default()).unwrap();
        with(&sim, other, |stream| stream.synchronize()).unwrap();
        // SAFETY: as above.
        unsafe { sim.stream_destroy(0, other) }.unwrap();
        sim.assert_clean();
    }
}
