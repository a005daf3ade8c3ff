//! `StreamHandle`: a stream, and who keeps it alive.

#![expect(unsafe_code, reason = "wraps streams of other owners")]

use std::any::Any;
use std::sync::{Arc, OnceLock};

use alluvion::driver::RawStream;
use alluvion::{Device, Error, Stream, StreamPool, StreamRef};
use pyo3::prelude::*;

/// A stream, and who keeps it alive.
#[derive(Debug)]
pub(crate) enum StreamHandle {
    /// The default stream of the device that it is used on, handle 0 or 1. By RMM's word these are two, by the driver's one.
    Default(u64),
    /// The default stream of the calling thread, handle 2.
    PerThread,
    /// A stream of the library's own.
    Owned(Stream),
    /// A stream of a pool, and the pool.
    Pooled(Stream, #[expect(dead_code, reason = "keeps the pool alive")] Arc<StreamPool>),
    /// A stream that another library made.
    Foreign(Foreign),
}

/// A stream that another library made.
#[derive(Debug)]
pub(crate) struct Foreign {
    raw: u64,
    /// Keeps the stream alive, here and in the library. Without one the caller has promised that it lives.
    owner: Option<Arc<Py<PyAny>>>,
    wrapped: OnceLock<Stream>,
}

impl StreamHandle {
    /// The stream of a number that the driver gave, kept alive by `owner`.
    pub(crate) fn from_number(raw: u64, owner: Option<Py<PyAny>>) -> Self {
        match raw {
            0 | 1 => Self::Default(raw),
            2 => Self::PerThread,
            _ => Self::Foreign(Foreign { raw, owner: owner.map(Arc::new), wrapped: OnceLock::new() }),
        }
    }

    /// A stream of the library's own. Frameworks bring its bare handle back, with every block that they ask for.
    pub(crate) fn owned(stream: Stream) -> Self {
        stream.device().raw_streams().register(&stream);
        Self::Owned(stream)
    }

    /// The number that the driver knows it by.
    pub(crate) fn number(&self) -> u64 {
        match self {
            Self::Default(raw) => *raw,
            Self::PerThread => RawStream::PER_THREAD.0,
            Self::Owned(stream) | Self::Pooled(stream, _) => stream.raw().0,
            Self::Foreign(foreign) => foreign.raw,
        }
    }

    /// The name of the stream for people.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Default(0) => "default".into(),
            Self::Default(_) => "legacy default".into(),
            Self::PerThread => "per-thread default".into(),
            handle => format!("{:#x}", handle.number()),
        }
    }

    /// Whether a copy on it must be waited for, by RMM's rule: the default streams but the thread's own.
    pub(crate) fn is_default(&self) -> bool {
        matches!(self, Self::Default(_))
    }

    /// The object that keeps a foreign stream alive, while the library does not know the stream. Once it does, the object must not
    /// be taken apart before the library's last call for the stream.
    pub(crate) fn idle_owner(&self) -> Option<&Py<PyAny>> {
        match self {
            Self::Foreign(foreign) if foreign.wrapped.get().is_none() => foreign.owner.as_deref(),
            _ => None,
        }
    }

    /// Whether both are one stream for sure. The default stream of a thread has to be [pinned](Self::pinned_to_thread) first.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_per_thread = matches!(self, Self::PerThread) || matches!(other, Self::PerThread);
        core::ptr::eq(self, other)
            || (self.is_default() && other.is_default())
            || (!is_per_thread && self.number() == other.number() && self.number() != RawStream::PER_THREAD.0)
    }

    /// Calls `body` with the stream, as one of `device`.
    pub(crate) fn with<T>(
        &self,
        device: &Device,
        body: impl FnOnce(StreamRef<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self {
            Self::Owned(stream) | Self::Pooled(stream, _) => body(stream.as_ref()),
            // Whoever wraps the same stream again, as CuPy's allocator does with each block, gets the same stream, so that blocks go
            // from one wrapper to the next without a wait.
            // SAFETY: a default stream, or a live stream, by the stream protocol, while its owner lives, which `self` holds beyond the
            // call. A bare number has no owner: who passes one has made the address up and keeps it alive, as the documentation says.
            handle => unsafe { device.raw_streams().with(RawStream(handle.number()), body) }?,
        }
    }

    /// Gives blocks back at once by `free`, on the stream as one of `device`. `false` if they cannot be: then nothing has happened, and
    /// the caller goes on with [`with`](Self::with).
    ///
    /// # Safety
    ///
    /// `free` does nothing with the stream but give blocks back by `deallocate_at_once`.
    pub(crate) unsafe fn visit(&self, device: &Device, free: impl FnOnce(StreamRef<'_>) -> bool) -> bool {
        match self {
            Self::Owned(stream) | Self::Pooled(stream, _) => free(stream.as_ref()),
            // SAFETY: as in `with`; and the caller's promise.
            handle => unsafe { device.raw_streams().visit(RawStream(handle.number()), free) },
        }
    }

    /// The same stream, whichever thread asks for it later: the default stream of a thread is another one on each.
    pub(crate) fn pinned_to_thread(self: Arc<Self>, device: &Device) -> Result<Arc<Self>, Error> {
        match &*self {
            Self::PerThread => Ok(Arc::new(Self::Owned(device.per_thread_stream()?.as_ref().to_stream()))),
            _ => Ok(self),
        }
    }

    /// Lets go of a handle. The calling thread is attached, and is detached where it is the last one, which ends the stream.
    pub(crate) fn release(self: Arc<Self>, py: Python<'_>) {
        if !self.is_default() && Arc::strong_count(&self) == 1 {
            py.detach(move || drop(self));
        }
    }

    /// The stream itself, as one of `device`: for what outlives the call.
    pub(crate) fn to_stream(&self, device: &Device) -> Result<Stream, Error> {
        match self {
            Self::Default(_) => Ok(device.default_stream()),
            Self::Owned(stream) | Self::Pooled(stream, _) => Ok(stream.clone()),
            Self::PerThread => self.with(device, |stream| Ok(stream.to_stream())),
            Self::Foreign(foreign) => foreign.on(device).cloned(),
        }
    }
}

impl Foreign {
    fn on(&self, device: &Device) -> Result<&Stream, Error> {
        if let Some(stream) = self.wrapped.get() {
            device.require(stream.device())?;
            return Ok(stream);
        }
        let owner: Arc<dyn Any + Send + Sync> = match &self.owner {
            Some(owner) => Arc::clone(owner) as Arc<dyn Any + Send + Sync>,
            None => Arc::new(()),
        };
        // SAFETY:
        // - a stream of the device: the object that named it said so by the stream protocol; the driver refuses another one.
        // - it is valid while the owner lives: the stream protocol demands that of the object, which the wrapper holds. A bare
        //   number has no owner: who passes one has made the address up and keeps it alive, as the documentation says.
        // - none of the default streams: `from_number` sorts them out.
        let made = unsafe { Stream::from_owner(device, RawStream(self.raw), owner) }?;
        Ok(self.wrapped.get_or_init(|| made))
    }
}
