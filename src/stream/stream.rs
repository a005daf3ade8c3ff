//! `Stream`, owned, and `StreamRef<'s>`, borrowed.

#![expect(unsafe_code, reason = "wraps raw streams, and hands live ones to the driver")]
#![expect(clippy::module_inception, reason = "file = type")]

use core::any::Any;
use core::fmt;
use std::sync::{OnceLock, Weak};

use super::thread::{SendTheStreamOrAReferenceToItInstead, ThreadBound};
use super::{Event, Frontier, OnStream, Stamp, StreamId};
use crate::device::Device;
use crate::driver::{Call, CaptureStatus, Code, Driver, DriverError, RawStream, StreamFlags};
use crate::error::Error;
use crate::order::{Cover, Ending, Timeline, Underlying};
use crate::sync::Arc;

/// A queue of work on a device: kernels, copies and frees run in the order in which they were submitted.
///
/// Cloning is a reference count; the stream ends with its last clone. It may end while blocks that were freed on it are still
/// free: one last event keeps their order.
///
/// # Thread safety
///
/// Any thread may submit to a stream. Two threads that do so at once are ordered by chance.
///
/// # Examples
///
/// ```
/// use alluvion::Sim;
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// stream.synchronize()?;
/// assert!(stream.is_idle()?);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream {
    core: Arc<StreamCore>,
}

pub(super) struct StreamCore {
    pub(super) device: Device,
    pub(super) timeline: Arc<Timeline>,
    pub(super) kind: StreamKind,
    /// The driver was not asked whether the handle still is this stream's: see [`RawStreams::visit`](super::RawStreams::visit).
    pub(super) is_visit: bool,
    /// See [`StreamRef::courier`].
    pub(super) courier: OnceLock<Stream>,
    /// The handle that this is in; none in a [`Lent`](super::lent::Lent).
    pub(super) this: Weak<StreamCore>,
}

/// The owner of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamKind {
    /// Made by this crate, destroyed with its last handle.
    Owned,
    /// The legacy default stream of its device.
    Legacy,
    /// The default stream of one thread.
    PerThread,
    /// Wrapped: it has another owner.
    Foreign,
    /// The crate's own, for calls without a stream. Its device keeps it.
    Service,
}

static_assertions::assert_impl_all!(Stream: Send, Sync, Clone);
static_assertions::assert_not_impl_any!(StreamRef<'static>: Send, Sync);
static_assertions::assert_eq_size!(StreamRef<'static>, usize);

impl Stream {
    pub(crate) fn create(device: &Device, flags: StreamFlags) -> Result<Self, Error> {
        device.machine().require_same_process()?;
        Ok(Self::with_timeline(device, device.create_timeline(flags)?, StreamKind::Owned))
    }

    /// A handle for a default stream, whose timeline the device or the thread keeps.
    pub(crate) fn with_timeline(device: &Device, timeline: Arc<Timeline>, kind: StreamKind) -> Self {
        let (device, courier) = (device.clone(), OnceLock::new());
        let core = |this: &Weak<StreamCore>| StreamCore {
            device,
            timeline,
            kind,
            is_visit: false,
            courier,
            this: Weak::clone(this),
        };
        Self { core: Arc::new_cyclic(core) }
    }

    /// Wraps a stream that has another owner.
    ///
    /// Each call makes a stream with an id of its own: wrap once and clone. Where a bare handle comes with every call, there is
    /// [`RawStreams`](super::RawStreams). The owner may destroy the stream at any time after the last clone is dropped, which covers it with
    /// an event. If the stream captures then, there is none, and what was freed since the last one serves nobody any more. So an event
    /// covers the first 256 frees one by one, 0.13 µs each, and after that up to 1,024 frees and 32 MiB of a [`Pool`](crate::Pool). While the
    /// stream captures, those that no event covers yet serve no other stream. A stream with [an owner](Self::from_owner) costs neither.
    ///
    /// # Errors
    ///
    /// If the machine has no more stream numbers.
    ///
    /// # Safety
    ///
    /// `raw` is a stream of the primary context of `device`. It stays valid until the last clone of the returned stream
    /// is gone, those in containers included. While it captures one thread at a time uses it, from the call that begins the capture
    /// to the call that ends it, and no call of this crate uses it while either of the two is made: CUDA does not synchronise
    /// the graph that a capture makes. It is neither [`RawStream::LEGACY`] nor [`RawStream::PER_THREAD`] nor null: for
    /// these there are [`Device::default_stream`] and [`Device::per_thread_stream`].
    pub unsafe fn from_raw(device: &Device, raw: RawStream) -> Result<Self, Error> {
        let stream = Underlying { eager: true, ..Underlying::of(raw, Ending::Leave(None)) };
        Ok(Self::with_timeline(device, device.enter_timeline(stream)?, StreamKind::Foreign))
    }

    /// Wraps a stream that `owner` keeps alive, as cudarc's `Arc<CudaStream>` does.
    ///
    /// Such a stream needs no event at a free: it lives as long as the wrapper.
    ///
    /// # Errors
    ///
    /// If the machine has no more stream numbers.
    ///
    /// # Safety
    ///
    /// `raw` is a stream of the primary context of `device`, and stays valid while `owner` is not dropped. It is none of
    /// the default streams. Its captures are as for [`from_raw`](Self::from_raw).
    pub unsafe fn from_owner(
        device: &Device,
        raw: RawStream,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, Error> {
        let stream = Underlying::of(raw, Ending::Leave(Some(owner)));
        Ok(Self::with_timeline(device, device.enter_timeline(stream)?, StreamKind::Foreign))
    }

    /// A handle to a fleeting stream, whose timeline [`RawStreams`](super::RawStreams) keeps. Its last clone gives the lease up that
    /// the caller has taken.
    pub(super) fn leased(device: &Device, timeline: Arc<Timeline>) -> Self {
        Self::with_timeline(device, timeline, StreamKind::Foreign)
    }

    /// A handle that does not keep the stream.
    pub(super) fn downgrade(&self) -> WeakStream {
        WeakStream { core: Arc::downgrade(&self.core) }
    }

    /// Borrows the stream.
    #[must_use]
    pub fn as_ref(&self) -> StreamRef<'_> {
        StreamRef::to(&self.core)
    }

    /// The device that the stream belongs to.
    #[must_use]
    #[inline]
    pub fn device(&self) -> &Device {
        &self.core.device
    }

    /// The stream's number. For the per-thread stream of another thread, the number of the legacy stream, which replaces it.
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.as_ref().id()
    }

    /// The number of the stream itself, on every thread: never that of the legacy stream.
    pub(crate) fn own_id(&self) -> StreamId {
        self.core.timeline.id()
    }

    /// The owner of the stream.
    #[must_use]
    pub fn kind(&self) -> StreamKind {
        self.core.kind
    }

    /// Waits, on the host, until all work submitted so far is done.
    ///
    /// # Errors
    ///
    /// Those of the work itself, too.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.as_ref().synchronize()
    }

    /// Returns `true` if all work submitted so far is done. Does not wait.
    ///
    /// # Errors
    ///
    /// Those of the work itself, too.
    pub fn is_idle(&self) -> Result<bool, Error> {
        self.as_ref().is_idle()
    }

    /// Makes later work on this stream wait, on the device, for all work that is on `other` now.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` if `other` is of another machine; a capture error while either stream captures.
    pub fn wait_for_stream<'o>(&self, other: impl OnStream<'o>) -> Result<(), Error> {
        self.as_ref().wait_for_stream(other)
    }

    /// As [`StreamRef::wait_for`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn wait_for(&self, frontier: &Frontier) -> Result<(), Error> {
        self.as_ref().wait_for(frontier)
    }

    /// As [`StreamRef::may_reuse`].
    #[must_use]
    pub fn may_reuse(&self, frontier: &Frontier) -> bool {
        self.as_ref().may_reuse(frontier)
    }

    /// As [`StreamRef::release`].
    #[must_use]
    pub fn release(&self) -> Stamp {
        self.as_ref().release()
    }

    /// As [`StreamRef::raw`].
    #[must_use]
    pub fn raw(&self) -> RawStream {
        self.as_ref().raw()
    }

    /// As [`StreamRef::is_capturing`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn is_capturing(&self) -> Result<bool, Error> {
        self.as_ref().is_capturing()
    }

    /// Records an event after all work submitted so far.
    ///
    /// # Errors
    ///
    /// As the driver says; a capture error while the stream captures.
    pub fn record(&self) -> Result<Event, Error> {
        self.as_ref().record()
    }
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        if self.timeline.is_fleeting() {
            return self.timeline.rest();
        }
        // A default stream never ends; the default stream of a thread ends with the thread.
        if matches!(self.kind, StreamKind::Owned | StreamKind::Foreign) {
            self.timeline.retire();
            self.device.note_ended(self.timeline.id());
        }
    }
}

/// A handle that does not keep the stream.
#[derive(Debug)]
pub(super) struct WeakStream {
    core: Weak<StreamCore>,
}

impl WeakStream {
    /// The stream, unless its last handle is gone.
    pub(super) fn upgrade(&self) -> Option<Stream> {
        Some(Stream { core: self.core.upgrade()? })
    }

    /// The stream itself, without a handle; `None` if the last handle is gone.
    ///
    /// # Safety
    ///
    /// A handle to the stream is held as long as the answer is used, if one is held at the call.
    pub(super) unsafe fn borrow<'s>(&self) -> Option<StreamRef<'s>> {
        if !self.is_held() {
            return None;
        }
        // SAFETY: a handle is held, so that the core is there, and remains as long as the answer is used, as the caller promises.
        Some(StreamRef::to(unsafe { &*self.core.as_ptr() }))
    }

    /// Returns `true` unless the last handle of the stream is gone.
    pub(super) fn is_held(&self) -> bool {
        self.core.strong_count() > 0
    }
}

impl fmt::Debug for StreamCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} {:?} on gpu {})", self.timeline.id(), self.kind, self.device.ordinal())
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Stream {}

/// A borrowed stream: one word, `Copy`, and proof that the stream lives.
///
/// `&stream` converts into it at a call, see [`OnStream`]; the methods of [`Resource`](crate::Resource) take it directly. It names
/// a place in the order of work that *this thread* submits, so it cannot be sent to another thread; send the [`Stream`], or a
/// reference to it.
///
/// ```compile_fail,E0277
/// # use alluvion::Sim;
/// let sim = Sim::new();
/// let stream = sim.device(0).stream().unwrap();
/// let borrowed = stream.as_ref();
/// std::thread::scope(|scope| scope.spawn(move || borrowed.id()).join().unwrap());
/// ```
///
/// A closure of a scoped thread takes `&stream`, and converts there:
///
/// ```
/// # use alluvion::{DeviceVec, Sim};
/// # let sim = Sim::new();
/// # let stream = sim.device(0).stream()?;
/// std::thread::scope(|scope| scope.spawn(|| DeviceVec::<u32>::zeroed(8, &stream)).join().unwrap())?;
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct StreamRef<'s> {
    core: &'s StreamCore,
    _thread_bound: ThreadBound<SendTheStreamOrAReferenceToItInstead>,
}

impl<'s> StreamRef<'s> {
    pub(super) fn to(core: &'s StreamCore) -> Self {
        Self { core, _thread_bound: ThreadBound::new() }
    }

    /// The timeline to use from this thread: for the default stream of another thread, that of the legacy stream.
    #[inline]
    pub(super) fn timeline(self) -> &'s Arc<Timeline> {
        let core = self.core;
        if core.timeline.is_mine() { &core.timeline } else { core.device.legacy_timeline() }
    }

    /// The handle to make driver calls with, from this thread.
    #[must_use]
    pub fn raw(self) -> RawStream {
        self.timeline().raw()
    }

    /// The stream's number.
    #[must_use]
    #[inline]
    pub fn id(self) -> StreamId {
        self.timeline().id()
    }

    /// The device that the stream belongs to.
    #[must_use]
    #[inline]
    pub fn device(self) -> &'s Device {
        &self.core.device
    }

    #[inline]
    pub(crate) fn kind(self) -> StreamKind {
        self.core.kind
    }

    #[inline]
    pub(crate) fn driver(self) -> &'s Arc<dyn Driver> {
        self.device().driver()
    }

    /// A private stream of the crate for transfers of this one, made at the first call. It ends with this one, or with the last
    /// handle to it.
    pub(crate) fn courier(self) -> Result<StreamRef<'s>, Error> {
        let kept = &self.core.courier;
        if kept.get().is_none() {
            // The cell is not filled under its own lock, because that would be a driver call under a lock. If two threads make
            // one, one of the two ends.
            let made = Stream::create(self.device(), StreamFlags::default())?;
            drop(kept.set(made));
        }
        match kept.get() {
            Some(courier) => Ok(courier.as_ref()),
            // The cell was filled above, by this thread or by another.
            None => unreachable!(),
        }
    }

    /// An owned handle to the same stream.
    #[must_use]
    pub fn to_stream(self) -> Stream {
        if let Some(core) = self.core.this.upgrade() {
            return Stream { core };
        }
        if self.core.is_visit {
            return self.kept_of_visit();
        }
        // The stream is lent for a call. A default stream never ends. A fleeting one has a lease, so that it can be had once more; not in a
        // child of a fork, where no lease is given up either.
        let timeline = Arc::clone(&self.core.timeline);
        if timeline.is_fleeting() {
            timeline.wake();
        }
        Stream::with_timeline(&self.core.device, timeline, self.core.kind)
    }

    /// The driver was not asked which stream the handle is now: see [`RawStreams::visit`](super::RawStreams::visit).
    #[inline]
    pub(crate) fn is_visit(self) -> bool {
        self.core.is_visit
    }

    /// The stream that the handle of a visit means, which the driver is asked for.
    #[cold]
    fn kept_of_visit(self) -> Stream {
        // SAFETY: the caller of the visit says that the handle is live as long as what is made of it here; it names no default stream.
        let found = unsafe { self.device().raw_streams().stream(self.core.timeline.raw()) };
        // Without an answer the handle is of no use: its capture is broken, its context is lost, or there are no numbers left.
        found.unwrap_or_else(|_| self.device().default_stream())
    }

    /// The point that all work submitted so far lies before. Not covered by an event, even if the stream has another owner.
    #[inline]
    pub(crate) fn now(self) -> Stamp {
        self.timeline().now()
    }

    /// The point that all work submitted so far lies before. A free on this stream carries it.
    ///
    /// No driver call, except on a stream that this crate does not own, which is covered at once.
    #[must_use]
    #[inline]
    pub fn release(self) -> Stamp {
        self.timeline().release()
    }

    /// As [`release`](Self::release), for a block that the caller hands to no other stream before the point is covered.
    #[inline]
    pub(crate) fn release_block(self, bytes: usize) -> Stamp {
        self.timeline().release_block(bytes)
    }

    /// As [`release_block`](Self::release_block), without a driver call; `None` if one is needed.
    #[inline]
    pub(crate) fn release_at_once(self, bytes: usize) -> Option<Stamp> {
        self.timeline().release_at_once(bytes)
    }

    /// Returns `true` if this stream may use, next, memory with that frontier: for each point it is the stream itself, or
    /// has waited for it, or the point is known to be over. No driver call.
    #[must_use]
    pub fn may_reuse(self, frontier: &Frontier) -> bool {
        let timeline = self.timeline();
        frontier.iter().all(|stamp| self.comes_after(timeline, stamp))
    }

    pub(super) fn comes_after(self, timeline: &Timeline, stamp: Stamp) -> bool {
        stamp.stream == timeline.id()
            || timeline.has_waited_for(stamp)
            || (self.device().machine_number() == stamp.stream.machine()
                && self.device().table().is_done(stamp))
    }

    /// Makes later work on this stream wait, on the device, for every point of the frontier that it does not follow yet.
    ///
    /// Costs two driver calls for each stream that is covered: the query whether this stream captures, and a wait. If the other
    /// stream must be covered first, two more: the query whether it captures, and a record. A wait includes all waits that the
    /// other stream had made.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` for a point of another machine; a capture error while a stream concerned captures; `Unsupported` if a
    /// stream ended, or rests, without an event for a point, which is over when its device has been waited for. Points before the
    /// failed one have been waited for.
    pub fn wait_for(self, frontier: &Frontier) -> Result<(), Error> {
        for stamp in frontier.iter() {
            let _ = self.wait_up_to(stamp)?;
        }
        Ok(())
    }

    /// Waits on the device, then adds the points to the clock.
    pub(crate) fn follow(self, cover: &Cover) -> Result<(), Error> {
        self.device().machine().require_same_process()?;
        let timeline = self.timeline();
        if self.is_capturing()? {
            // Within a capture, a wait for work outside of it would break it.
            return Err(DriverError::new(Call::StreamWaitEvent, Code::CAPTURE_ISOLATION).into());
        }
        // SAFETY: the raw stream is live and of this device, because `self` borrows its owner; the cover is of this machine:
        // it came from this machine's table, or `Event` compared the machines.
        let waited = unsafe { cover.make_wait(self.device().ordinal(), timeline.raw()) };
        let table = self.device().table();
        if waited.as_ref().is_err_and(|error| error.code == Code::CAPTURED_EVENT)
            && let Some(recorded_on) = table.timeline(cover.stamp().stream)
        {
            // Another thread began a capture just before the record, and ended it just after. The next event will do.
            recorded_on.disown(cover.epoch());
        }
        waited?;
        timeline.learn(cover);
        timeline.forget(|stamp| table.is_done(stamp));
        Ok(())
    }

    /// As [`Stream::wait_for_stream`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn wait_for_stream<'o>(self, other: impl OnStream<'o>) -> Result<(), Error> {
        self.follow_stream(other.stream_ref())
    }

    fn follow_stream(self, other: StreamRef<'_>) -> Result<(), Error> {
        self.device().require_machine(other.device())?;
        if self.id() == other.id() {
            return Ok(());
        }
        let timeline = other.timeline();
        let cover = timeline.cover(timeline.now().epoch)?.cover;
        self.follow(&cover)
    }

    /// As [`Stream::record`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn record(self) -> Result<Event, Error> {
        let timeline = self.timeline();
        let cover = timeline.cover(timeline.now().epoch)?.cover;
        Ok(Event::new(self.device().clone(), cover))
    }

    /// As [`Stream::synchronize`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn synchronize(self) -> Result<(), Error> {
        let timeline = self.timeline();
        if timeline.raw() == RawStream::LEGACY {
            // By an event, which is queued behind the work of every blocking stream, as all work of the legacy stream is. No
            // document says that a wait for the stream itself waits for the other streams too.
            return self.record()?.synchronize();
        }
        self.device().table().finish_all(&timeline.synchronize()?);
        Ok(())
    }

    /// As [`Stream::is_idle`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn is_idle(self) -> Result<bool, Error> {
        let timeline = self.timeline();
        if timeline.raw() == RawStream::LEGACY {
            // As in `synchronize`.
            return self.record()?.is_complete();
        }
        let over = timeline.query()?;
        let idle = over.is_some();
        over.iter().for_each(|past| self.device().table().finish_all(past));
        Ok(idle)
    }

    /// Returns `true` if the stream records a graph instead of running its work.
    pub fn is_capturing(self) -> Result<bool, Error> {
        // SAFETY: the raw stream is live and of this device, because `self` borrows its owner.
        let status = unsafe { self.driver().stream_capture_status(self.device().ordinal(), self.raw()) }?;
        Ok(status != CaptureStatus::None)
    }
}

impl<'s> From<&'s Stream> for StreamRef<'s> {
    fn from(stream: &'s Stream) -> Self {
        stream.as_ref()
    }
}

impl fmt::Debug for StreamRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

impl PartialEq for StreamRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for StreamRef<'_> {}
