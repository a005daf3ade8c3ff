//! `OnStream<'s>`: the stream argument of a call.

use super::{PerThreadStream, Stream, StreamRef};

/// The stream argument of a call: `&stream`, of a [`Stream`] or a [`PerThreadStream`], or a [`StreamRef`].
///
/// Methods that work on a stream take `impl OnStream<'s>`, so that a call reads `DeviceVec::zeroed(8, &stream)`. A function of
/// your own may do the same; it converts once, and passes the [`StreamRef`] on, which is `Copy`. The methods of
/// [`Resource`](crate::Resource) take the `StreamRef` itself, because a generic method could not be called through
/// `dyn Resource`: write `stream.as_ref()` there.
///
/// ```
/// use alluvion::{DeviceVec, Error, OnStream, Sim};
///
/// fn ones<'s>(len: usize, stream: impl OnStream<'s>) -> Result<DeviceVec<u32>, Error> {
///     let stream = stream.stream_ref();
///     let mut vector = DeviceVec::uninit(len, stream)?;
///     vector.fill(1, stream)?;
///     Ok(vector)
/// }
///
/// let sim = Sim::new();
/// let device = sim.device(0);
/// let (own, of_this_thread) = (device.stream()?, device.per_thread_stream()?);
/// assert_eq!(ones(3, &own)?.to_vec(&own)?, [1; 3]);
/// assert_eq!(ones(2, &of_this_thread)?.to_vec(&of_this_thread)?, [1; 2]);
/// # Ok::<(), Error>(())
/// ```
///
/// A type that owns a stream can be passed as well:
///
/// ```
/// use alluvion::{DeviceVec, OnStream, Sim, Stream, StreamRef};
///
/// struct Worker {
///     stream: Stream,
/// }
///
/// impl<'s> OnStream<'s> for &'s Worker {
///     fn stream_ref(self) -> StreamRef<'s> {
///         self.stream.as_ref()
///     }
/// }
///
/// let sim = Sim::new();
/// let worker = Worker { stream: sim.device(0).stream()? };
/// assert_eq!(DeviceVec::filled(3, 7_u8, &worker)?.to_vec(&worker)?, [7; 3]);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a stream",
    label = "not `&Stream`, `&PerThreadStream` or `StreamRef`",
    note = "a stream is passed by shared reference, so that it can be used again: write `&stream`",
    note = "a raw handle becomes a stream by `Stream::from_raw`, one of cudarc by `Stream::from_cudarc`"
)]
pub trait OnStream<'s> {
    /// The stream, borrowed. A call converts its argument first.
    fn stream_ref(self) -> StreamRef<'s>;
}

impl<'s> OnStream<'s> for StreamRef<'s> {
    #[inline]
    fn stream_ref(self) -> Self {
        self
    }
}

impl<'s> OnStream<'s> for &StreamRef<'s> {
    #[inline]
    fn stream_ref(self) -> StreamRef<'s> {
        *self
    }
}

impl<'s> OnStream<'s> for &'s Stream {
    #[inline]
    fn stream_ref(self) -> StreamRef<'s> {
        self.as_ref()
    }
}

impl<'s> OnStream<'s> for &'s PerThreadStream {
    #[inline]
    fn stream_ref(self) -> StreamRef<'s> {
        self.as_ref()
    }
}

// The type of `&stream` in a function with `stream: &Stream`, or over an iterator of references.
impl<'s> OnStream<'s> for &&'s Stream {
    #[inline]
    fn stream_ref(self) -> StreamRef<'s> {
        self.as_ref()
    }
}

impl<'s> OnStream<'s> for &&'s PerThreadStream {
    #[inline]
    fn stream_ref(self) -> StreamRef<'s> {
        self.as_ref()
    }
}
