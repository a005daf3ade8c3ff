//! `Imports`: the segments and leases of other processes that this one has open, each once.

#![expect(unsafe_code, reason = "closes memory of other processes")]

use core::mem;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Weak;

use super::lease::{self, Hold, LeaseName};
use super::message::Message;
use super::open_segment::{OpenSegment, SegmentKey};
use crate::device::{Attachment, Device};
use crate::error::Error;
use crate::sync::{Arc, AtomicU64, Mutex, nap};

/// What is known of a segment. A block of a pool must not be imported a second time before the first is closed: the driver does not
/// survive it. So one thread at a time opens or closes a segment.
enum Place {
    /// Open; or, if nobody has it, a thread is about to open or to close it.
    Open(Weak<OpenSegment>),
    /// It could not be closed.
    Lost,
}

/// The open segments and leases of one device.
#[derive(Default)]
pub(super) struct Imports {
    segments: Mutex<HashMap<SegmentKey, Place>>,
    holds: Mutex<HashMap<LeaseName, Weak<OpenHold>>>,
    /// The containers, and their bytes. Relaxed: figures for people.
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Attachment for Imports {
    fn release(&self) {}
}

impl Imports {
    pub(super) fn of(device: &Device) -> &Self {
        device.attached()
    }

    pub(super) fn figures(&self) -> (usize, usize) {
        (self.count.load(Ordering::Relaxed) as usize, self.bytes.load(Ordering::Relaxed) as usize)
    }
}

/// Memory of another process that is open here, and a part in its lease. Leaked, unless it is [given up](Self::close).
#[derive(Debug)]
pub(super) struct Opened {
    device: Device,
    /// `None` for zero bytes.
    segment: Option<Arc<OpenSegment>>,
    hold: Arc<OpenHold>,
    bytes: usize,
}

impl Opened {
    /// Opens what a message describes.
    pub(super) fn open(
        device: &Device,
        message: &Message,
        descriptor: Option<OwnedFd>,
        directory: &Path,
    ) -> Result<Self, Error> {
        let imports = Imports::of(device);
        let hold = imports.hold(device, message, directory)?;
        let mut opened = Self { device: device.clone(), segment: None, hold, bytes: message.bytes() };
        if message.bytes > 0 {
            let segment = imports.segment(device, message, descriptor);
            // Where it fails, the exporter may have died meanwhile, which says more than the driver does.
            opened.segment = Some(segment.map_err(|error| opened.hold.explain(error))?);
        }
        imports.count.fetch_add(1, Ordering::Relaxed);
        imports.bytes.fetch_add(opened.bytes as u64, Ordering::Relaxed);
        Ok(opened)
    }

    /// Zero bytes were shared.
    pub(super) fn is_empty(&self) -> bool {
        self.segment.is_none()
    }

    /// Where the memory is that the message describes.
    pub(super) fn address(&self, message: &Message) -> Option<u64> {
        self.segment.as_ref().map(|segment| segment.address() + message.offset)
    }

    fn forget_figures(&self) {
        let imports = Imports::of(&self.device);
        imports.count.fetch_sub(1, Ordering::Relaxed);
        imports.bytes.fetch_sub(self.bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn require_exporter(&self) -> Result<(), Error> {
        match &self.hold.hold {
            Some(hold) if !hold.exporter_lives() => Err(Error::stale(lease::OVER)),
            _ => Ok(()),
        }
    }

    /// The error of a call about it that failed, or that the exporter has gone.
    pub(super) fn explain(&self, error: Error) -> Error {
        self.hold.explain(error)
    }

    /// Closes the memory, if nothing else here has it, and gives the lease up. If it cannot be closed, the lease lasts as long as the
    /// process.
    ///
    /// # Safety
    ///
    /// No work that is left uses the memory.
    pub(super) unsafe fn close(self) {
        self.forget_figures();
        if let Some(last) = self.segment.and_then(Arc::into_inner) {
            // SAFETY: the caller's promise, and that of those who have closed before: nobody else has it, and it ends here.
            let closed = unsafe { last.close() };
            Imports::of(&self.device).note_closed(&last, closed.is_ok());
            if closed.is_err() {
                mem::forget(self.hold);
            }
        }
    }

    /// Lets the lease go as a crash does: the driver has stopped, and has taken the memory.
    pub(super) fn abandon(self) {
        self.forget_figures();
        // Relaxed: whoever drops the last reference comes after this.
        self.hold.is_abandoned.store(true, Ordering::Relaxed);
        mem::forget(self.segment);
    }

    /// Leaves everything as it is, for as long as the process lives: work may be left that uses the memory.
    pub(super) fn leak(self) {
        mem::forget(self.segment);
        mem::forget(self.hold);
    }
}

/// A part in a lease, for all that this process has of it. Given up when the last of them is dropped.
#[derive(Debug)]
struct OpenHold {
    /// Taken by the drop.
    hold: Option<Hold>,
    message: Message,
    device: Device,
    is_abandoned: AtomicBool,
}

impl Imports {
    fn hold(&self, device: &Device, message: &Message, directory: &Path) -> Result<Arc<OpenHold>, Error> {
        self.holds.require_same_process()?;
        let known = self.holds.lock().get(&message.lease).and_then(Weak::upgrade);
        if let Some(known) = known {
            return known.of(message);
        }
        let hold = Some(Hold::join(directory, message.lease, &message.to_bytes())?);
        let is_abandoned = AtomicBool::new(false);
        let made =
            Arc::new(OpenHold { hold, message: message.clone(), device: device.clone(), is_abandoned });
        let other = {
            let mut holds = self.holds.lock();
            let other = holds.get(&message.lease).and_then(Weak::upgrade);
            if other.is_none() {
                holds.insert(message.lease, Arc::downgrade(&made));
            }
            other
        };
        // Another thread was first: the place that was taken here is given up, without the lock.
        other.map_or(Ok(made), |other| other.of(message))
    }

    fn segment(
        &self,
        device: &Device,
        message: &Message,
        descriptor: Option<OwnedFd>,
    ) -> Result<Arc<OpenSegment>, Error> {
        let key = SegmentKey::of(message);
        loop {
            match self.find(key)? {
                Found::Open(open) => return Ok(open),
                Found::Mine => break,
                // Another thread opens or closes it, by a few driver calls.
                Found::Busy => nap(),
            }
        }
        let made = OpenSegment::open(device, key, message, descriptor).map(Arc::new);
        let mut segments = self.segments.lock();
        match &made {
            Ok(made) => segments.insert(key, Place::Open(Arc::downgrade(made))),
            Err(_) => segments.remove(&key),
        };
        made
    }

    fn note_closed(&self, segment: &OpenSegment, is_closed: bool) {
        let Some(mut segments) = self.segments.lock_unless_forked() else { return };
        if !is_closed && segment.is_open_once() {
            segments.insert(segment.key(), Place::Lost);
        } else {
            // Other memory may be opened a second time.
            segments.remove(&segment.key());
        }
    }

    /// The segment, if it is open; else the turn to open it, if nobody has that.
    fn find(&self, key: SegmentKey) -> Result<Found, Error> {
        let mut segments = self.segments.lock();
        match segments.get(&key) {
            None => {
                segments.insert(key, Place::Open(Weak::new()));
                Ok(Found::Mine)
            }
            Some(Place::Open(known)) => Ok(known.upgrade().map_or(Found::Busy, Found::Open)),
            Some(Place::Lost) => Err(Error::in_use_that(
                "an earlier import of the same memory could not be closed, and lasts as long as this process"
                    .to_owned(),
            )),
        }
    }
}

enum Found {
    Open(Arc<OpenSegment>),
    Mine,
    Busy,
}

impl OpenHold {
    /// The error of a call that failed, or that the exporter has gone.
    fn explain(&self, error: Error) -> Error {
        match self.hold.as_ref().map(Hold::exporter_lives) {
            Some(false) => Error::stale(lease::OVER),
            _ => error,
        }
    }

    /// What is open already, for somebody who opens it again. An exporter that has died is `Stale` to him too: that its memory is
    /// still here is the merit of those who came before.
    fn of(self: Arc<Self>, message: &Message) -> Result<Arc<Self>, Error> {
        if self.message != *message {
            return Err(Error::malformed_file(
                "the message is not the one that its exporter made".to_owned(),
            ));
        }
        match &self.hold {
            Some(hold) if !hold.exporter_lives() => Err(Error::stale(lease::OVER)),
            _ => Ok(self),
        }
    }
}

impl Drop for OpenHold {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        if let Some(mut holds) = Imports::of(&self.device).holds.lock_unless_forked()
            && holds.get(&self.message.lease).is_some_and(|known| known.strong_count() == 0)
        {
            holds.remove(&self.message.lease);
        }
        // Relaxed: see `abandon`.
        if self.is_abandoned.load(Ordering::Relaxed) { hold.abandon() } else { hold.end() }
    }
}
