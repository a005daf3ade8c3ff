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
/// a pool do that where they must; the end of a pool with live blocks, and a sleep of all of it, must once such a stream has come, because
/// its owner may have submitted work after its last call. They do not while a stream of the device captures that is at hand or [registered](Self::register), or a blocking
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
}

/// Those that are no default streams, which are looked for in a table.
#[derive(Clone, Copy)]
struct Created<'d> {
    device: &'d Device,
    table: &'d RawStreamTable,
}

impl Device {
    /// The streams of this device by their raw handles.
    #[must_use]
    #[inline]
    pub fn raw_streams(&self) -> RawStreams<'_> {
        RawStreams { device: self }
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
    /// The entry came by this handle, and since the last registration.
    #[inline]
    fn is(&self, raw: RawStream, generation: u64) -> bool {
        self.identity.raw == raw && self.generation == generation
    }
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

impl<'d> RawStreams<'d> {
    /// The table is not looked for before it is needed: a default stream is in none.
    fn created(self) -> Created<'d> {
        Created { device: self.device, table: self.device.attached() }
    }
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
        let created = self.created();
        let generation = created.table.registered.generation();
        if let Some(stream) = created.registered(raw, generation) {
            return Ok(stream);
        }
        // SAFETY: the stream is live, as the caller promises, and none of the default streams.
        let entry = unsafe { created.lease(raw, generation) }?;
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
        if raw.is_default() {
            return self.with_default(raw, |stream| at_once(stream).unwrap_or_else(|| body(stream)));
        }
        // SAFETY: the caller's promise; it is none of the default streams.
        unsafe { self.created().with_or_at_once(raw, at_once, body) }
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
        if raw.is_default() {
            return self.with_default(raw, free).unwrap_or(false);
        }
        let created = self.created();
        if let Some(entry) = created.of_last_call(raw, created.table.registered.generation()) {
            return free(Lent::visit(self.device, &entry.timeline).as_ref());
        }
        // SAFETY: the caller's promise.
        unsafe { created.table.registered.borrow(self.device, raw) }.is_some_and(free)
    }

    /// Calls `body` with the default stream that a handle names.
    #[inline]
    fn with_default<T>(self, raw: RawStream, body: impl FnOnce(StreamRef<'_>) -> T) -> Result<T, Error> {
        if raw == RawStream::PER_THREAD {
            let timeline = PerThreadStream::timeline(self.device)?;
            return Ok(body(Lent::new(self.device, &timeline, StreamKind::PerThread).as_ref()));
        }
        let timeline = self.device.legacy_timeline();
        Ok(body(Lent::new(self.device, timeline, StreamKind::Legacy).as_ref()))
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
            self.created().table.registered.add(raw, stream);
        }
    }
}

impl Created<'_> {
    /// As [`RawStreams::with_or_at_once`].
    ///
    /// # Safety
    ///
    /// As there, and the stream is none of the default streams.
    unsafe fn with_or_at_once<T>(
        self,
        raw: RawStream,
        at_once: impl FnOnce(StreamRef<'_>) -> Option<T>,
        body: impl FnOnce(StreamRef<'_>) -> T,
    ) -> Result<T, Error> {
        let generation = self.table.registered.generation();
        if let Some(entry) = self.of_last_call(raw, generation) {
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
            let entry = entry.map_or_else(|| unsafe { self.lease(raw, generation) }, Ok)?;
            return Ok(body(Lent::new(self.device, &entry.timeline, StreamKind::Foreign).as_ref()));
        }
        let answer = |stream: StreamRef<'_>| at_once(stream).unwrap_or_else(|| body(stream));
        // SAFETY: `raw` is live until the call is over, as the caller promises.
        if let Some(stream) = unsafe { self.table.registered.borrow(self.device, raw) } {
            return Ok(answer(stream));
        }
        if let Some(stream) = self.registered(raw, generation) {
            return Ok(answer(stream.as_ref()));
        }
        // SAFETY: the stream is live, as the caller promises, and none of the default streams.
        let entry = unsafe { self.lease(raw, generation) }?;
        Ok(answer(Lent::new(self.device, &entry.timeline, StreamKind::Foreign).as_ref()))
    }

    /// The registered stream with that handle, if it is held. `generation` was read before.
    fn registered(self, raw: RawStream, generation: u64) -> Option<Stream> {
        if generation == 0 || self.is_known_as_not_registered(raw, generation) {
            return None;
        }
        self.table.registered.find(self.device, raw)
    }

    /// The thread has looked for the handle since the last registration, and came with it last.
    fn is_known_as_not_registered(self, raw: RawStream, generation: u64) -> bool {
        self.of_last(|last| last.is(raw, generation).then_some(())).is_some()
    }

    /// The entry that this thread came with last, if it had this handle and no stream has been registered since: the stream of the
    /// handle, or one that is gone. Not the part of a stream in a capture, which may be over.
    #[inline]
    fn of_last_call(self, raw: RawStream, generation: u64) -> Option<Arc<RawEntry>> {
        self.of_last(|last| {
            let is_it = matches!(last.identity.part, Part::Stream(_)) && last.is(raw, generation);
            if is_it { last.entry.upgrade() } else { None }
        })
    }

    /// What `look` finds in the entry that this thread came with last, if it is of this device. A thread that is ending has none.
    #[inline]
    fn of_last<T>(self, look: impl FnOnce(&Last) -> Option<T>) -> Option<T> {
        let found = LAST.try_with(|last| {
            let last = last.borrow();
            let (machine, ordinal) = (self.device.machine_number(), self.device.ordinal());
            last.as_ref().filter(|last| last.machine == machine && last.ordinal == ordinal).and_then(look)
        });
        found.ok().flatten()
    }

    /// Takes a lease of an entry; `false` if it has ended.
    fn woken(self, entry: &RawEntry) -> bool {
        let is_woken = entry.timeline.wake();
        if is_woken {
            self.table.note_use(entry);
        }
        is_woken
    }

    /// The entry of a stream, with a lease. `generation` was read before the stream was looked for among the registered ones, so that one
    /// that is registered meanwhile is found by the next call.
    ///
    /// # Safety
    ///
    /// The stream is live and none of the default streams.
    unsafe fn lease(self, raw: RawStream, generation: u64) -> Result<Arc<RawEntry>, Error> {
        self.device.machine().require_same_process()?;
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
            Some(capture) => Part::Capture(capture),
            // SAFETY: as above.
            None => Part::Stream(unsafe { driver.stream_id(ordinal, raw) }?),
        };
        Ok(RawIdentity { raw, part })
    }

    /// The entry that this thread found last, if it is of that stream. Takes no shared lock but that of the stream.
    fn of_this_thread(self, identity: RawIdentity) -> Option<Arc<RawEntry>> {
        let entry = self.of_last(|last| if last.identity == identity { last.entry.upgrade() } else { None });
        entry.filter(|entry| self.woken(entry))
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
        let capture = match identity.part {
            Part::Capture(capture) => Some(capture),
            Part::Stream(_) => None,
        };
        let timeline = self.device.enter_timeline(Underlying {
            eager: true,
            fleeting: true,
            capture,
            ..Underlying::of(identity.raw, Ending::Leave(None))
        })?;
        // Nobody else has it yet, so it has not ended.
        timeline.wake();
        let entry = RawEntry::new(identity, timeline);
        for idle in self.table.add(&entry) {
            // A visit has a share of the entry, and once the entry is taken out of its count no visit gets one.
            match Arc::try_unwrap(idle) {
                Ok(idle) if idle.timeline.end_at_rest() => self.device.note_ended(idle.timeline.id()),
                // The stream has come again meanwhile, or is visited.
                Ok(idle) => self.table.put_back(Arc::new(idle)),
                Err(idle) => self.table.put_back(idle),
            }
        }
        Ok(entry)
    }
}

#[cfg(all(test, feature = "testing", not(loom)))]
mod tests;
