//! `Registered`: the streams of a device that are held, by their raw handles.

#![expect(unsafe_code, reason = "borrows streams that their callers keep")]

use core::cell::RefCell;
use std::collections::HashMap;

use super::stream::WeakStream;
use super::{Stream, StreamKind, StreamRef};
use crate::device::Device;
use crate::driver::RawStream;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// The streams of a device that have been registered. Entries of streams that are gone are removed where the table would grow.
#[derive(Debug, Default)]
pub(super) struct Registered {
    by_handle: Mutex<HashMap<u64, WeakStream>>,
    /// The number of registrations so far: what a thread remembers of the time before is looked up again.
    generation: AtomicU64,
}

/// The registered stream that a thread found last, on whatever device.
struct Last {
    machine: u32,
    ordinal: u32,
    raw: RawStream,
    /// Keeps the stream alive no longer than its owner does.
    stream: WeakStream,
    /// The crate made the stream, so that it lives as long as a handle to it is held, and no longer.
    is_own: bool,
}

impl Last {
    #[inline]
    fn is(&self, device: &Device, raw: RawStream) -> bool {
        self.raw == raw && self.machine == device.machine_number() && self.ordinal == device.ordinal()
    }
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

impl Registered {
    /// How many streams have been registered so far.
    pub(super) fn generation(&self) -> u64 {
        // Acquire: pairs with the release in `add`. A thread that was told of a stream after it was registered finds it.
        self.generation.load(Ordering::Acquire)
    }

    /// Enters a stream by its handle. The one that is there already stays while it is held.
    pub(super) fn add(&self, raw: RawStream, stream: &Stream) {
        let gone = {
            let mut streams = self.by_handle.lock();
            if streams.get(&raw.0).is_some_and(WeakStream::is_held) {
                return;
            }
            let mut gone = Vec::new();
            if streams.len() == streams.capacity() {
                // Once in as many registrations as there are entries, so that each costs a constant.
                gone.extend(streams.extract_if(|_, stream| !stream.is_held()));
            }
            gone.extend(streams.insert(raw.0, stream.downgrade()).map(|before| (raw.0, before)));
            gone
        };
        // Outside of the lock: what is left of a stream is memory of the host.
        drop(gone);
        // Release: pairs with the acquire in `generation`.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The stream with that handle, without a handle of its own, if the crate made it and the thread found it last.
    ///
    /// # Safety
    ///
    /// If `raw` is that of a stream which the crate made, the stream lives as long as the answer is used.
    #[inline]
    pub(super) unsafe fn borrow<'s>(&self, device: &Device, raw: RawStream) -> Option<StreamRef<'s>> {
        let known = LAST.try_with(|last| {
            let last = last.borrow();
            let last = last.as_ref()?;
            if !last.is_own || !last.is(device, raw) {
                return None;
            }
            // SAFETY: the crate's own streams are destroyed when their last handle is dropped, and not before. This one lives as long
            // as the answer is used, as the caller promises, so a handle is held for as long.
            unsafe { last.stream.borrow() }
        });
        known.ok().flatten()
    }

    /// The stream with that handle, if it is held. The one that the thread found last costs no shared lock.
    pub(super) fn find(&self, device: &Device, raw: RawStream) -> Option<Stream> {
        let known = LAST.try_with(|last| {
            let last = last.borrow();
            let last = last.as_ref()?;
            if last.is(device, raw) { last.stream.upgrade() } else { None }
        });
        if let Some(stream) = known.ok().flatten() {
            return Some(stream);
        }
        let found = self.by_handle.lock().get(&raw.0)?.upgrade()?;
        let (machine, ordinal) = (device.machine_number(), device.ordinal());
        let is_own = found.kind() == StreamKind::Owned;
        let last = Last { machine, ordinal, raw, stream: found.downgrade(), is_own };
        // A thread that is ending remembers nothing any more.
        let before = LAST.try_with(|place| place.borrow_mut().replace(last));
        drop(before);
        Some(found)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::driver::{Driver, StreamFlags};
    use crate::{Error, Sim};

    fn found(device: &Device, raw: RawStream) -> Result<Stream, Error> {
        // SAFETY: the tests pass streams that live, and drop what they find before they destroy them.
        unsafe { device.raw_streams().stream(raw) }
    }

    #[test]
    fn a_registered_stream_is_found_without_a_driver_call_by_every_thread() {
        let sim = Sim::new();
        let device = sim.device(0);
        let streams = [device.stream().unwrap(), device.stream().unwrap()];
        streams.iter().for_each(|stream| device.raw_streams().register(stream));
        let before = sim.calls().total();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for stream in streams.iter().chain(&streams) {
                        assert_eq!(found(&device, stream.raw()).unwrap().id(), stream.id());
                        // SAFETY: the streams live longer than the threads.
                        let lent =
                            unsafe { device.raw_streams().with(stream.raw(), |stream| stream.id()) }.unwrap();
                        assert_eq!(lent, stream.id());
                    }
                });
            }
        });
        assert_eq!(sim.calls().total(), before);
    }

    #[test]
    fn a_handle_that_comes_again_is_another_stream() {
        let sim = Sim::new();
        let device = sim.device(0);
        let own = device.stream().unwrap();
        device.raw_streams().register(&own);
        let (raw, id) = (own.raw(), own.id());
        assert_eq!(found(&device, raw).unwrap().id(), id);
        drop(own);
        // The driver gives the handle out again.
        let other = sim.stream_create(0, StreamFlags::default()).unwrap();
        assert_eq!(other, raw);
        assert_ne!(found(&device, raw).unwrap().id(), id);
        // SAFETY: it was made above and is not used again.
        unsafe { sim.stream_destroy(0, other) }.unwrap();
        // And again to the crate, which a thread that knows it as another one must notice.
        let own = device.stream().unwrap();
        assert_eq!(own.raw(), raw);
        device.raw_streams().register(&own);
        assert_eq!(found(&device, raw).unwrap().id(), own.id());
        drop(own);
        sim.assert_clean();
    }

    #[test]
    fn the_first_of_two_that_wrap_one_stream_is_the_one_while_it_is_held() {
        let sim = Sim::new();
        let device = sim.device(0);
        let raw = sim.stream_create(0, StreamFlags::default()).unwrap();
        // SAFETY: it lives until it is destroyed below, when both wrappers are gone.
        let wrap = || unsafe { Stream::from_raw(&device, raw) }.unwrap();
        let (first, second) = (wrap(), wrap());
        device.raw_streams().register(&first);
        device.raw_streams().register(&second);
        assert_eq!(found(&device, raw).unwrap().id(), first.id());
        drop(first);
        device.raw_streams().register(&second);
        assert_eq!(found(&device, raw).unwrap().id(), second.id());
        drop(second);
        // SAFETY: it was made above and is not used again.
        unsafe { sim.stream_destroy(0, raw) }.unwrap();
        sim.assert_clean();
    }

    #[test]
    fn what_need_not_be_registered_is_left_out() {
        let sim = Sim::with_config(crate::sim::SimConfig::default().devices(2));
        let (device, other) = (sim.device(0), sim.device(1));
        device.raw_streams().register(&device.default_stream());
        device.raw_streams().register(&device.per_thread_stream().unwrap());
        let foreign = other.stream().unwrap();
        device.raw_streams().register(&foreign);
        assert!(found(&device, foreign.raw()).unwrap_err().is_device_mismatch());
        assert_eq!(found(&device, RawStream(0)).unwrap().id(), device.default_stream().id());
    }

    #[test]
    fn ten_thousand_registrations_leave_a_constant_behind() {
        let sim = Sim::new();
        let device = sim.device(0);
        let table = Registered::default();
        for number in 0..10_000 {
            let stream = device.stream().unwrap();
            // Each under a handle of its own, which the driver would use again.
            table.add(RawStream(0x1000 + number), &stream);
        }
        assert!(table.by_handle.lock().len() < 16, "{}", table.by_handle.lock().len());
    }
}
