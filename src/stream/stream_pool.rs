//! `StreamPool`: a fixed number of streams, handed out in turn.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::{Stream, StreamRef};
use crate::device::Device;
use crate::driver::StreamFlags;
use crate::error::Error;

/// A fixed number of streams, handed out in turn.
///
/// Two callers may get the same stream; for an exclusive one, use [`Device::stream`]. All streams are made at once, so later calls
/// make no driver call.
///
/// ```
/// use alluvion::{Sim, StreamPool};
///
/// let sim = Sim::new();
/// let pool = StreamPool::new(&sim.device(0), StreamPool::DEFAULT_STREAMS)?;
/// let first = pool.next();
/// assert_ne!(first, pool.next());
/// assert_eq!(first, pool.stream(16));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Debug)]
pub struct StreamPool {
    streams: Box<[Stream]>,
    next: AtomicUsize,
}

impl StreamPool {
    /// The number of streams of RMM's pool.
    pub const DEFAULT_STREAMS: usize = 16;

    /// Makes `count` streams that are not ordered with the legacy default stream.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for none; as the driver says.
    pub fn new(device: &Device, count: usize) -> Result<Self, Error> {
        Self::with_flags(device, count, StreamFlags::default())
    }

    /// Makes `count` streams of one kind.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for none; as the driver says.
    pub fn with_flags(device: &Device, count: usize, flags: StreamFlags) -> Result<Self, Error> {
        if count == 0 {
            return Err(Error::invalid_argument(
                "a stream pool of 0 streams",
                "it has none to hand out",
                "ask for 1 or more",
            ));
        }
        let streams = (0..count).map(|_| Stream::create(device, flags)).collect::<Result<_, _>>()?;
        Ok(Self { streams, next: AtomicUsize::new(0) })
    }

    /// The next stream in turn.
    #[must_use]
    pub fn next(&self) -> StreamRef<'_> {
        // Relaxed: numbers need not be fair between threads, only different.
        self.stream(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// The stream `index` modulo the length: the same index gives the same stream.
    #[must_use]
    pub fn stream(&self, index: usize) -> StreamRef<'_> {
        self.streams[index % self.streams.len()].as_ref()
    }

    /// The number of streams.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a stream pool is never empty")]
    pub fn len(&self) -> usize {
        self.streams.len()
    }
}
