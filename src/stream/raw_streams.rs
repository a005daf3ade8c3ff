//! `RawStreams`: the streams of callers that bring a bare handle with every call.

#![expect(unsafe_code, reason = "asks the driver about raw streams")]

use core::cell::RefCell;
use std::sync::Weak;

use super::lent::Lent;
use super::raw_stream_table::{Part, RawEntry, RawIdentity, RawStreamTable};
use super::{PerThreadStream, Stream, StreamKind, StreamRef};
use crate::device::Device;
use crate::driver::RawStream;
use crate::error::Error;
use crate::order::{Ending, Underlying};
use crate::sync::Arc;

/// The streams of one device by their raw handles: for a C function or a plugin, which is handed a bare stream with every call.
///
/// A raw handle says little. The driver gives the handle of a destroyed stream to a new one, while the work of the old one still
/// runs: on an H200 297 of 300 times. So each call asks the driver for the number of the stream, which is never used twice, and one
/// stream is found again under one [`StreamId`](super::StreamId), with the blocks that were freed on it.
///
/// What is found is lent for a call: the owner of the raw stream may destroy it when the [`Stream`] and its clones are dropped. An
/// event covers each free, and the handle is not used again before it comes with another call. So the table needs not be told of
/// the end of a stream. It keeps 128 streams that are not in use, the ones that came last.
///
/// # Cost
///
/// Two driver calls where the stream is known: whether it captures (18 ns on an H200), because the next one would break a capture, and
/// its number (20 ns). The stream that a thread came with last is found without a shared lock, and a block is given back on it with
/// [no question](Self::visit): what would be another stream by now is found at the next allocation.
///
/// The owner may destroy the stream after any call, so an event has to cover what was freed on it: 136 ns, and 6.6 µs where 16 threads
/// record at once, because the driver has one lock. The first 256 frees of a stream are covered one by one. After that an event covers up
/// to 1,024 frees in a [`Pool`](crate::Pool), and 32 MiB at most; less with more than two such streams, 64 MiB of a device in all. If the
/// stream does not come again, the last of them serve no other stream until its device has been waited for: a trim, a sleep and the end of
/// a pool do that where they must. They do not while a stream of the device captures that is at hand or [registered](Self::register), or a blocking
/// one, for the wait would break the capture: a trim leaves that memory, a sleep fails, and the end of a pool leaks it. A capture of
/// a non-blocking stream that nobody holds is not seen, and is broken.
///
/// A stream that is [registered](Self::register) costs neither.
///
/// # Captures
///
/// A stream that captures cannot be asked for its number. For as long as the capture lasts, it has a [`StreamId`](super::StreamId) of
/// its own, one for each capture: nothing that was freed on the stream before is taken to be ordered with the capture. A block from before
/// that is freed meanwhile, by a thread which has not allocated on the stream since the capture began, is behind the stream as it was
/// before; so is one of the capture that such a thread frees, which must therefore be done with when the graph is.
///
/// # Examples
///
/// ```
/// use alluvion::driver::{Driver, RawStream, StreamFlags};
/// use alluvion::Sim;
///
/// let sim = Sim::new();
/// let device = sim.device(0);
/// // A stream that somebody else made.
/// let raw = sim.stream_create(0, StreamFlags::default())?;
/// // SAFETY: the raw stream is live until it is destroyed below, and what was found for it is dropped by then.
/// let (first, second) = unsafe { (device.raw_streams().stream(raw)?, device.raw_streams().stream(raw)?) };
/// assert_eq!(first.id(), second.id());
/// drop((first, second));
/// // SAFETY: it was made above and is not used again.
/// unsafe { sim.stream_destroy(0, raw) }?;
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RawStreams<'d> {
    device: &'d Device,
    table: &'d RawStreamTable,
}

impl Device {
    /// The streams of this device by their raw handles.
    #[must_use]
    pub fn raw_streams(&self) -> RawStreams<'_> {
        RawStreams { device: self, table: self.attached() }
    }
}

/// The entry that a thread found last, on whatever device.
struct Last {
    machine: u32,
    ordinal: u32,
    identity: RawIdentity,
    /// Keeps neither the timeline nor its driver alive.
    entry: Weak<RawEntry>,
    /// The number of registrations when the stream was none that is registered.
    generation: u64,
}

impl Last {
    /// It came by this handle, and since the last registration.
    #[inline]
    fn is(&self, device: &Device, raw: RawStream, generation: u64) -> bool {
        self.identity.raw == raw
            && self.generation == generation
            && self.machine == device.machine_number()
            && self.ordinal == device.ordinal()
    }
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

impl RawStreams<'_> {
    /// The stream of a raw handle: the one that was found for it before, if it is the same.
    ///
    /// Null and [`RawStream::LEGACY`] are the [default stream](Device::default_stream), [`RawStream::PER_THREAD`] is the calling
    /// thread's [own](Device::per_thread_stream).
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` if the stream is of another device, or of a context that is not the device's primary one. `Unsupported`
    /// from a driver without stream numbers, older than CUDA 12.0. A capture error if the stream is in a broken capture. As the
    /// driver says.
    ///
    /// # Safety
    ///
    /// `raw` is a live stream, of any device of this machine, or names a default stream. It stays live until the last clone of the
    /// returned stream is gone, those in containers included. No other thread begins a capture on it while a call of this crate uses
    /// it.
    pub unsafe fn stream(self, raw: RawStream) -> Result<Stream, Error> {
        if raw == RawStream::PER_THREAD {
            return self.device.per_thread_stream().map(|stream| (*stream).clone());
        }
        if raw.is_default() {
            return Ok(self.device.default_stream());
        }
        if let Some(stream) = self.registered(raw) {
            return Ok(stream);
        }
        // SAFETY: the stream is live, as the caller promises, and none of the default streams.
        let entry = unsafe { self.lease(raw) }?;
        Ok(Stream::leased(self.device, Arc::clone(&entry.timeline)))
    }

    /// Calls `body` with the stream of a raw handle, for functions that are handed one with every call. As [`stream`](Self::stream), but with
    /// no handle of its own: nothing is allocated, and no count changes that threads share.
    ///
    /// ```
    /// use alluvion::driver::RawStream;
    /// use alluvion::{Layout, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let device = sim.device(0);
    /// let pool = Cuda::new(&device).pool(PoolConfig::default())?;
    /// let layout = Layout::from_bytes(1000)?;
    /// // SAFETY: it names a default stream.
    /// let block = unsafe { device.raw_streams().with(RawStream(0), |stream| pool.allocate(layout, stream)) }??;
    /// // SAFETY: it names a default stream.
    /// unsafe {
    ///     // SAFETY: the block came from `pool` with this layout, and nothing uses it.
    ///     device.raw_streams().with(RawStream(0), |stream| unsafe { pool.deallocate(block, layout, stream) })
    /// }?;
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`stream`](Self::stream). `body` is not called then.
    ///
    /// # Safety
    ///
    /// As for [`stream`](Self::stream), until the call is over. A stream that the crate made lives as long as a handle to it is held.
    pub unsafe fn with<T>(self, raw: RawStream, body: impl FnOnce(StreamRef<'_>) -> T) -> Result<T, Error> {
        // SAFETY: the caller's promise.
        unsafe { self.with_or_at_once(raw, |_| None, body) }
    }

    /// As [`with`](Self::with), for a body that seldom needs the handle: `at_once` is asked first, without the locks that let others use it,
    /// and `body` where that returns `None`. For functions that take a block by
    /// [`Resource::allocate_at_once`](crate::Resource::allocate_at_once).
    ///
    /// # Errors
    ///
    /// As [`stream`](Self::stream). Neither is called then.
    ///
    /// # Safety
    ///
    /// As for [`with`](Self::with). `at_once` does nothing with the stream but take blocks by `allocate_at_once`.
    pub unsafe fn with_or_at_once<T>(
        self,
        raw: RawStream,
        at_once: impl FnOnce(StreamRef<'_>) -> Option<T>,
        body: impl FnOnce(StreamRef<'_>) -> T,
    ) -> Result<T, Error> {
        if let Some(entry) = self.of_last_call(raw) {
            self.device.machine().require_same_process()?;
            // SAFETY: `raw` is live until the call is over, as the caller promises.
            let entry = if unsafe { self.identify(raw) }? == entry.identity {
                if let Some(answer) = at_once(Lent::visit(self.device, &entry.timeline).as_ref()) {
                    self.table.note_use(&entry);
                    return Ok(answer);
                }
                self.woken(&entry).then_some(entry)
            } else {
                None
            };
            // SAFETY: as above; it came with the handle of no default stream.
            let entry = entry.map_or_else(|| unsafe { self.lease(raw) }, Ok)?;
            return Ok(body(Lent::new(self.device, &entry.timeline, StreamKind::Foreign).as_ref()));
        }
        let answer = |stream: StreamRef<'_>| at_once(stream).unwrap_or_else(|| body(stream));
        if raw == RawStream::PER_THREAD {
            let timeline = PerThreadStream::timeline(self.device)?;
            return Ok(answer(Lent::new(self.device, &timeline, StreamKind::PerThread).as_ref()));
        }
        if raw.is_default() {
            return Ok(answer(
                Lent::new(self.device, self.device.legacy_timeline(), StreamKind::Legacy).as_ref(),
            ));
        }
        // SAFETY: `raw` is live until the call is over, as the caller promises.
        if let Some(stream) = unsafe { self.table.registered.borrow(self.device, raw) } {
            return Ok(answer(stream));
        }
        if let Some(stream) = self.registered(raw) {
            return Ok(answer(stream.as_ref()));
        }
        // SAFETY: the stream is live, as the caller promises, and none of the default streams.
        let entry = unsafe { self.lease(raw) }?;
        Ok(answer(Lent::new(self.device, &entry.timeline, StreamKind::Foreign).as_ref()))
    }

    /// Calls `free` with the stream of a raw handle, if the driver need not be asked which one it is: for functions that give a block back by
    /// [`Resource::deallocate_at_once`](crate::Resource::deallocate_at_once). `false` if `free` is not called; then, and where it returns
    /// `false`, the caller goes on with [`with`](Self::with).
    ///
    /// A thread that came with the handle last gets the stream of then. That it is the same one is for the next call to find; if it is
    /// not, the block serves nobody before the device has been waited for.
    ///
    /// ```
    /// use alluvion::driver::{Driver, StreamFlags};
    /// use alluvion::{Layout, PoolConfig, Resource, ResourceExt, Sim, StreamRef, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let device = sim.device(0);
    /// let pool = Cuda::new(&device).pool(PoolConfig::default())?;
    /// let (layout, raw) = (Layout::from_bytes(1000)?, sim.stream_create(0, StreamFlags::default())?);
    /// let streams = device.raw_streams();
    /// let mut without_a_call = 0;
    /// for _ in 0..1000 {
    ///     // SAFETY: the stream is live.
    ///     let block = unsafe { streams.with(raw, |stream| pool.allocate(layout, stream)) }??;
    ///     // SAFETY: the block came from `pool` with this layout, on this stream, and nothing uses it.
    ///     let at_once = |stream: StreamRef<'_>| unsafe { pool.deallocate_at_once(block, layout, stream) };
    ///     // SAFETY: the stream is live.
    ///     if unsafe { streams.visit(raw, at_once) } {
    ///         without_a_call += 1;
    ///     } else {
    ///         // SAFETY: as above.
    ///         unsafe { streams.with(raw, |stream| unsafe { pool.deallocate(block, layout, stream) }) }?;
    ///     }
    /// }
    /// assert!(without_a_call > 700);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// `raw` is a live stream of the primary context of *this* device, or names a default stream, until the call is over: where the thread
    /// came with the handle last, nobody finds out that it is another device's. `free` does nothing with the stream but give blocks back by
    /// `deallocate_at_once`, whose uses are ordered on the stream that `raw` is.
    #[inline]
    pub unsafe fn visit(self, raw: RawStream, free: impl FnOnce(StreamRef<'_>) -> bool) -> bool {
        if let Some(entry) = self.of_last_call(raw) {
            return free(Lent::visit(self.device, &entry.timeline).as_ref());
        }
        if raw == RawStream::PER_THREAD {
            return PerThreadStream::timeline(self.device)
                .is_ok_and(|own| free(Lent::new(self.device, &own, StreamKind::PerThread).as_ref()));
        }
        if raw.is_default() {
            return free(Lent::new(self.device, self.device.legacy_timeline(), StreamKind::Legacy).as_ref());
        }
        // SAFETY: `raw` is live until the call is over, as the caller promises.
        unsafe { self.table.registered.borrow(self.device, raw) }.is_some_and(free)
    }

    /// From now on the raw handle of `stream` means this stream, for as long as a handle to it is held: with no driver call, and, if the
    /// stream is the crate's own or has an owner, with no event at a free. For streams that other libraries know by their raw handles.
    ///
    /// A default stream, which is known already, and a stream of another device are left out; so is a stream whose handle means another
    /// one that is held.
    ///
    /// ```
    /// use alluvion::Sim;
    ///
    /// let sim = Sim::new();
    /// let device = sim.device(0);
    /// let stream = device.stream()?;
    /// device.raw_streams().register(&stream);
    /// let before = sim.calls().total();
    /// // SAFETY: the stream is held beyond the call.
    /// assert_eq!(unsafe { device.raw_streams().stream(stream.raw()) }?.id(), stream.id());
    /// assert_eq!(sim.calls().total(), before);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn register(self, stream: &Stream) {
        let raw = stream.raw();
        if stream.device() == self.device && !raw.is_default() && raw != RawStream::PER_THREAD {
            self.table.registered.add(raw, stream);
        }
    }

    /// The registered stream with that handle, if it is held.
    fn registered(self, raw: RawStream) -> Option<Stream> {
        let generation = self.table.registered.generation();
        if generation == 0 || self.is_known_as_not_registered(raw, generation) {
            return None;
        }
        self.table.registered.find(self.device, raw)
    }

    /// The thread has looked for the handle since the last registration, and came with it last.
    fn is_known_as_not_registered(self, raw: RawStream, generation: u64) -> bool {
        let known = LAST.try_with(|last| {
            last.borrow().as_ref().is_some_and(|last| last.is(self.device, raw, generation))
        });
        known.unwrap_or(false)
    }

    /// The entry that this thread came with last, if it had this handle and no stream has been registered since: the stream of the
    /// handle, or one that is gone. Not the part of a stream in a capture, which may be over.
    #[inline]
    fn of_last_call(self, raw: RawStream) -> Option<Arc<RawEntry>> {
        let entry = LAST.try_with(|last| {
            let last = last.borrow();
            let last = last.as_ref()?;
            let is_it = matches!(last.identity.part, Part::Stream(_))
                && last.is(self.device, raw, self.table.registered.generation());
            if is_it { last.entry.upgrade() } else { None }
        });
        entry.ok().flatten()
    }

    /// Takes a lease of an entry; `false` if it has ended.
    fn woken(self, entry: &RawEntry) -> bool {
        let is_woken = entry.timeline.wake();
        if is_woken {
            self.table.note_use(entry);
        }
        is_woken
    }

    /// The entry of a stream, with a lease.
    ///
    /// # Safety
    ///
    /// The stream is live and none of the default streams.
    unsafe fn lease(self, raw: RawStream) -> Result<Arc<RawEntry>, Error> {
        self.device.machine().require_same_process()?;
        // Before the stream is looked up: a registration that comes meanwhile is noticed the next time.
        let generation = self.table.registered.generation();
        // SAFETY: the stream is live, as the caller promises.
        let identity = unsafe { self.identify(raw) }?;
        let entry = match self.of_this_thread(identity).or_else(|| self.table.find(identity)) {
            Some(entry) => entry,
            // SAFETY: the stream is live, as the caller promises, and none of the default streams.
            None => unsafe { self.enter(identity) }?,
        };
        self.remember(identity, &entry, generation);
        Ok(entry)
    }

    /// What tells the stream apart from others with its handle.
    ///
    /// # Safety
    ///
    /// The stream is live.
    unsafe fn identify(self, raw: RawStream) -> Result<RawIdentity, Error> {
        let (driver, ordinal) = (self.device.driver(), self.device.ordinal());
        // Asked first, because the question for the number breaks the capture of the stream, in any mode.
        // SAFETY: the stream is live, as the caller promises. Where it is of another device, both drivers answer the same.
        let capture = unsafe { driver.stream_capture_id(ordinal, raw) }?;
        let part = match capture {
            Some(capture) => Part::Capture(capture.number),
            // SAFETY: as above.
            None => Part::Stream(unsafe { driver.stream_id(ordinal, raw) }?),
        };
        Ok(RawIdentity { raw, part })
    }

    /// The entry that this thread found last, if it is of that stream. Takes no shared lock but that of the stream.
    fn of_this_thread(self, identity: RawIdentity) -> Option<Arc<RawEntry>> {
        let entry = LAST.try_with(|last| {
            let last = last.borrow();
            let last = last.as_ref()?;
            let is_it = last.identity == identity
                && last.machine == self.device.machine_number()
                && last.ordinal == self.device.ordinal();
            if is_it { last.entry.upgrade() } else { None }
        });
        entry.ok().flatten().filter(|entry| self.woken(entry))
    }

    fn remember(self, identity: RawIdentity, entry: &Arc<RawEntry>, generation: u64) {
        // A thread that is ending remembers nothing any more.
        let _ = LAST.try_with(|last| {
            let mut last = last.borrow_mut();
            if let Some(last) = last.as_mut()
                && core::ptr::eq(last.entry.as_ptr(), Arc::as_ptr(entry))
            {
                last.generation = generation;
                return;
            }
            let (machine, ordinal) = (self.device.machine_number(), self.device.ordinal());
            *last = Some(Last { machine, ordinal, identity, entry: Arc::downgrade(entry), generation });
        });
    }

    /// Enters a stream that comes for the first time, with a lease.
    ///
    /// # Safety
    ///
    /// The stream is live and none of the default streams.
    unsafe fn enter(self, identity: RawIdentity) -> Result<Arc<RawEntry>, Error> {
        let ordinal = self.device.ordinal();
        // SAFETY: the caller's promise.
        match unsafe { self.device.driver().stream_context_device(identity.raw) }? {
            Some(of) if of == ordinal => {}
            Some(other) => return Err(Error::device_mismatch(ordinal, other)),
            None => return Err(Error::context_mismatch()),
        }
        let timeline = self.device.enter_timeline(Underlying {
            raw: identity.raw,
            owner: None,
            ending: Ending::Leave(None),
            eager: true,
            fleeting: true,
        })?;
        // Nobody else has it yet, so it has not ended.
        timeline.wake();
        let entry = RawEntry::new(identity, timeline);
        for idle in self.table.add(&entry) {
            // Whoever visits the stream has a share of the entry, and nobody gets one any more once it is taken out of its count.
            match Arc::try_unwrap(idle) {
                Ok(idle) if idle.timeline.end_at_rest() => self.device.note_ended(idle.timeline.id()),
                // It has come again meanwhile, or is visited.
                Ok(idle) => self.table.put_back(Arc::new(idle)),
                Err(idle) => self.table.put_back(idle),
            }
        }
        Ok(entry)
    }
}

#[cfg(all(test, feature = "testing", not(loom)))]
mod tests {
    use super::super::raw_stream_table::KEPT;
    use super::*;
    use crate::driver::{Call, CaptureMode, Code, Driver, StreamFlags};
    use crate::error::ErrorKind;
    use crate::resource::{Layout, Resource};
    use crate::sim::{Fault, SimConfig};
    use crate::source::Cuda;
    use crate::stream::StreamId;
    use crate::suballoc::{Pool, PoolConfig};
    use crate::testing::Stall;
    use crate::{Frontier, Sim};

    /// A stream that somebody else makes.
    fn made(sim: &Sim, ordinal: u32) -> RawStream {
        sim.stream_create(ordinal, StreamFlags::default()).expect("a stream can be made")
    }

    /// Its owner destroys it. A call with the handle after this is a hazard, which the machine reports.
    fn end(sim: &Sim, ordinal: u32, raw: RawStream) {
        // SAFETY: the tests make a stream once, end it once, and drop what was found for it before.
        unsafe { sim.stream_destroy(ordinal, raw) }.expect("it is live");
    }

    fn found(device: &Device, raw: RawStream) -> Result<Stream, Error> {
        // SAFETY: the tests end a stream after they have dropped what was found for it.
        unsafe { device.raw_streams().stream(raw) }
    }

    fn entries(device: &Device) -> usize {
        device.raw_streams().table.entries.lock().len()
    }

    #[test]
    fn a_known_stream_costs_two_questions() {
        let sim = Sim::new();
        let device = sim.device(0);
        let (first, second) = (made(&sim, 0), made(&sim, 0));
        let ids = [first, second].map(|raw| found(&device, raw).unwrap().id());
        assert_ne!(ids[0], ids[1]);
        // The thread's last one, another one, and a thread that has none yet.
        for (raw, id) in [(second, ids[1]), (first, ids[0]), (first, ids[0])] {
            let before = sim.calls();
            let stream = found(&device, raw).unwrap();
            assert_eq!((stream.id(), stream.raw()), (id, raw));
            drop(stream);
            let calls = sim.calls() - before;
            assert_eq!((calls[Call::StreamCaptureId], calls[Call::StreamId], calls.total()), (1, 1, 2));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(found(&device, first).unwrap().id(), ids[0]));
        });
        assert_eq!(entries(&device), 2);
        [first, second].into_iter().for_each(|raw| end(&sim, 0, raw));
        sim.assert_clean();
    }

    #[test]
    fn special_handles_are_the_default_streams() {
        let sim = Sim::new();
        let device = sim.device(0);
        for raw in [RawStream(0), RawStream::LEGACY] {
            assert_eq!(found(&device, raw).unwrap(), device.default_stream());
        }
        let own = device.per_thread_stream().unwrap().id();
        assert_eq!(found(&device, RawStream::PER_THREAD).unwrap().id(), own);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_ne!(found(&device, RawStream::PER_THREAD).unwrap().id(), own));
        });
        assert_eq!(entries(&device), 0);
    }

    #[test]
    fn a_stream_of_another_device_is_refused() {
        let sim = Sim::with_config(SimConfig::default().devices(2));
        let raw = made(&sim, 1);
        let error = found(&sim.device(0), raw).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceMismatch);
        let id = found(&sim.device(1), raw).unwrap().id();
        end(&sim, 1, raw);
        // The handle comes again, on the other device.
        let again = made(&sim, 0);
        assert_eq!(again, raw, "the machine gives handles out again");
        assert_eq!(found(&sim.device(1), again).unwrap_err().kind(), ErrorKind::DeviceMismatch);
        assert_ne!(found(&sim.device(0), again).unwrap().id(), id);
        end(&sim, 0, again);
        sim.assert_clean();
    }

    #[test]
    fn a_recycled_handle_is_another_stream_and_the_old_one_is_not_asked() {
        let sim = Sim::new();
        let device = sim.device(0);
        let other = device.stream().unwrap();
        let old = made(&sim, 0);
        let stream = found(&device, old).unwrap();
        let mut stall = Stall::on(stream.as_ref());
        let (id, block) = (stream.id(), Frontier::of(stream.release()));
        drop(stream);
        end(&sim, 0, old);
        let new = made(&sim, 0);
        assert_eq!(new, old, "the machine gives handles out again");
        let stream = found(&device, new).unwrap();
        assert!(stream.id() != id && !stream.may_reuse(&block));
        stream.wait_for(&block).unwrap();
        other.wait_for(&block).unwrap();
        assert!(stream.may_reuse(&block) && other.may_reuse(&block));
        assert!(!stream.is_idle().unwrap() && !device.machine().is_quiescent(&block).unwrap());
        drop(stream);
        end(&sim, 0, new);
        stall.let_go();
        device.machine().wait_quiescent(&block).unwrap();
        drop(other);
        sim.assert_clean();
    }

    /// Whether a visit with the handle comes to the stream with this number.
    fn visits(device: &Device, raw: RawStream, id: StreamId) -> bool {
        // SAFETY: the tests pass streams that live, and nothing is done with them here.
        unsafe { device.raw_streams().visit(raw, |stream| stream.id() == id) }
    }

    #[test]
    fn a_visit_asks_nothing_and_is_of_the_handle_that_came_last() {
        let sim = Sim::new();
        let device = sim.device(0);
        let (first, second) = (made(&sim, 0), made(&sim, 0));
        let ids = [first, second].map(|raw| found(&device, raw).unwrap().id());
        let own = device.stream().unwrap();
        let before = sim.calls().total();
        assert!(visits(&device, second, ids[1]) && !visits(&device, first, ids[0]));
        for default in [device.default_stream(), (*device.per_thread_stream().unwrap()).clone()] {
            assert!(visits(&device, default.raw(), default.id()));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!visits(&device, second, ids[1]), "another thread has not come with it"));
        });
        assert_eq!(sim.calls().total(), before);
        // What is registered is another stream than the one of before.
        // SAFETY: it lives until it is destroyed below, when the wrapper is gone.
        let wrapped = unsafe { Stream::from_raw(&device, second) }.unwrap();
        device.raw_streams().register(&wrapped);
        assert!(!visits(&device, second, ids[1]));
        device.raw_streams().register(&own);
        assert_eq!(found(&device, own.raw()).unwrap().id(), own.id());
        assert!(visits(&device, own.raw(), own.id()));
        drop(wrapped);
        // A capture is no stream to come back to.
        sim.begin_capture(0, first, CaptureMode::Relaxed).unwrap();
        let captured = found(&device, first).unwrap().id();
        assert!(captured != ids[0] && !visits(&device, first, captured));
        // SAFETY: the capture began above.
        let graph = unsafe { sim.stream_end_capture(0, first) }.unwrap();
        // SAFETY: it came from the capture, and was not launched.
        unsafe { sim.graph_destroy(0, graph) }.unwrap();
        [first, second].into_iter().for_each(|raw| end(&sim, 0, raw));
    }

    #[test]
    fn a_visit_uses_no_handle_that_may_be_another_stream_by_now() {
        let sim = Sim::new();
        let device = sim.device(0);
        let old = made(&sim, 0);
        let id = found(&device, old).unwrap().id();
        end(&sim, 0, old);
        let new = made(&sim, 0);
        assert_eq!(new, old, "the machine gives handles out again");
        let mut kept = None;
        let visit = |stream: StreamRef<'_>| {
            assert_eq!(stream.id(), id, "the one that came last");
            assert!(stream.synchronize().is_err() && stream.is_idle().is_err() && stream.record().is_err());
            kept = Some(stream.to_stream());
            true
        };
        // SAFETY: the stream is live. What is done with it is done to show that nothing comes of it.
        assert!(unsafe { device.raw_streams().visit(new, visit) });
        // What is kept of it is the stream that the handle is.
        let kept = kept.unwrap();
        assert!(kept.id() != id && kept.id() == found(&device, new).unwrap().id());
        let mut stall = Stall::on(&kept);
        assert!(!kept.is_idle().unwrap());
        stall.let_go();
        kept.synchronize().unwrap();
        drop(kept);
        end(&sim, 0, new);
        sim.assert_clean();
    }

    #[test]
    fn a_stream_that_is_visited_does_not_end() {
        let sim = Sim::new();
        let device = sim.device(0);
        let visited = made(&sim, 0);
        let id = found(&device, visited).unwrap().id();
        let others: Vec<_> = (0..2 * KEPT).map(|_| made(&sim, 0)).collect();
        let come = || others.iter().for_each(|&raw| drop(found(&device, raw).unwrap()));
        let visit = |stream: StreamRef<'_>| {
            std::thread::scope(|scope| scope.spawn(come).join()).expect("each is found");
            assert_eq!(stream.id(), id);
            device.raw_streams().table.entries.lock().iter().any(|entry| entry.timeline.id() == id)
        };
        // SAFETY: the stream is live, and nothing is done with it.
        assert!(unsafe { device.raw_streams().visit(visited, visit) });
        come();
        assert!(!visits(&device, visited, id));
        others.into_iter().chain([visited]).for_each(|raw| end(&sim, 0, raw));
        sim.assert_clean();
    }

    #[test]
    fn ten_thousand_streams_leave_a_constant_behind() {
        let sim = Sim::new();
        let device = sim.device(0);
        let pool = Pool::new(Cuda::new(&device), PoolConfig::default()).unwrap();
        let layout = Layout::new(4096, 256).unwrap();
        let kept = made(&sim, 0);
        let kept_id = found(&device, kept).unwrap().id();
        let mut last = None;
        for round in 0..10_000 {
            // Two at a time, so that a handle is not always that of the stream before.
            let raws = [made(&sim, 0), made(&sim, 0)];
            for raw in raws {
                let stream = found(&device, raw).unwrap();
                let block = pool.allocate(layout, stream.as_ref()).unwrap();
                // SAFETY: the block came from this pool just now, and nothing uses it.
                unsafe { pool.deallocate(block, layout, stream.as_ref()) };
                last = Some(stream.release());
            }
            raws.into_iter().for_each(|raw| end(&sim, 0, raw));
            // One that is in use is not among the oldest.
            assert_eq!(found(&device, kept).unwrap().id(), kept_id);
            assert!(entries(&device) <= KEPT + 1, "{} in round {round}", entries(&device));
        }
        end(&sim, 0, kept);
        let other = device.stream().unwrap();
        other.wait_for(&Frontier::of(last.unwrap())).unwrap();
        device.synchronize().unwrap();
        let streams = device.table().timelines().count();
        assert!(streams <= KEPT + 16, "{streams} timelines");
        assert!(sim.live().events <= 6 * KEPT, "{:?}", sim.live());
        drop((pool, other));
        sim.assert_clean();
    }

    #[test]
    fn what_a_free_could_not_cover_the_end_of_the_call_covers() {
        let sim = Sim::new();
        let device = sim.device(0);
        let other = device.stream().unwrap();
        let raw = made(&sim, 0);
        let stream = found(&device, raw).unwrap();
        let mut stall = Stall::on(stream.as_ref());
        sim.inject(Fault::nth(Call::EventRecord, 1, Code::OUT_OF_MEMORY));
        let block = Frontier::of(stream.release());
        assert_eq!(sim.faults_left(), 0, "the free could not record its event");
        let clone = stream.clone();
        drop(stream);
        let before = sim.calls();
        drop(clone);
        assert_eq!((sim.calls() - before)[Call::EventRecord], 1);
        end(&sim, 0, raw);
        other.wait_for(&block).unwrap();
        assert!(!other.is_idle().unwrap());
        stall.let_go();
        device.machine().wait_quiescent(&block).unwrap();
        drop(other);
        sim.assert_clean();
    }

    #[test]
    fn a_capture_stays_whole_and_is_a_stream_of_its_own() {
        let sim = Sim::new();
        let device = sim.device(0);
        let raw = made(&sim, 0);
        let before = found(&device, raw).unwrap().id();
        sim.begin_capture(0, raw, CaptureMode::Global).unwrap();
        let during = found(&device, raw).unwrap();
        let freed = Frontier::of(during.release());
        assert!(during.id() != before && found(&device, raw).unwrap().id() == during.id());
        drop(during);
        // SAFETY: the stream is live.
        let graph = unsafe { sim.stream_end_capture(0, raw) }.expect("nothing broke the capture");
        // SAFETY: it came from the capture, and was not launched.
        unsafe { sim.graph_destroy(0, graph) }.unwrap();
        assert_eq!(found(&device, raw).unwrap().id(), before);
        end(&sim, 0, raw);
        // It was freed where no event can be recorded, and the stream is gone: nobody comes after it, but who waits for all.
        let other = device.stream().unwrap();
        assert!(other.wait_for(&freed).is_err());
        device.synchronize().unwrap();
        assert!(other.may_reuse(&freed));
        drop(other);
        sim.assert_clean();
    }

    #[test]
    fn threads_share_what_they_find() {
        let sim = Sim::new();
        let device = sim.device(0);
        let raws: Vec<RawStream> = (0..4).map(|_| made(&sim, 0)).collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (device, raws) = (&device, &raws);
                scope.spawn(move || {
                    for turn in 0..200 {
                        let stream = found(device, raws[(turn * (thread + 1)) % 4]).unwrap();
                        let freed = Frontier::of(stream.release());
                        let other = found(device, raws[(turn + thread) % 4]).unwrap();
                        drop(stream);
                        other.wait_for(&freed).unwrap();
                        assert!(other.may_reuse(&freed));
                    }
                });
            }
        });
        raws.into_iter().for_each(|raw| end(&sim, 0, raw));
        device.synchronize().unwrap();
        sim.assert_clean();
    }
}
