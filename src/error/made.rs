//! How an [`Error`] is made: for each kind, from what is known.

use core::fmt;
use core::ops::Range;
use std::sync::Arc;

use super::detail::Detail;
use super::foreign_error::ForeignError;
use super::pointed::Pointed;
use super::{Error, ErrorKind, Misuse, OutOfMemory, Unsupported};
#[cfg(any(feature = "cuda", feature = "runtime"))]
use crate::driver::LoadError;
use crate::driver::{Code, DriverError};
use crate::order::{NotEntered, Uncovered};

impl Error {
    #[cold]
    const fn new(kind: ErrorKind, first: usize, second: usize) -> Self {
        Self { kind, call: None, code: 0, first, second, detail: None }
    }

    #[cold]
    fn with_detail(kind: ErrorKind, what: &'static str, why: &'static str, instead: &'static str) -> Self {
        Self::new(kind, 0, 0).and(Detail::Unsupported(Unsupported { what, why, instead }))
    }

    #[cold]
    fn and(self, detail: Detail) -> Self {
        Self { detail: Some(Arc::new(detail)), ..self }
    }

    /// Out of memory: `bytes` were wanted. For resources of your own.
    #[cold]
    #[must_use]
    pub const fn out_of_memory(bytes: usize) -> Self {
        Self::new(ErrorKind::OutOfMemory, bytes, usize::MAX)
    }

    /// Out of memory against a limit: `bytes` were wanted where at most `limit_bytes` may be had.
    #[cold]
    #[must_use]
    pub const fn over_limit(bytes: usize, limit_bytes: usize) -> Self {
        Self::new(ErrorKind::OutOfMemory, bytes, limit_bytes)
    }

    /// `count` elements of `element_bytes` do not fit in an allocation.
    #[cold]
    #[must_use]
    pub const fn size_overflow(count: usize, element_bytes: usize) -> Self {
        Self::new(ErrorKind::SizeOverflow, count, element_bytes)
    }

    /// `align` is not a power of two.
    #[cold]
    #[must_use]
    pub const fn invalid_alignment(align: usize) -> Self {
        Self::new(ErrorKind::InvalidAlignment, align, 0)
    }

    /// `align` is more than `max_align`, the most that the resource honours.
    #[cold]
    #[must_use]
    pub const fn unsupported_alignment(align: usize, max_align: usize) -> Self {
        Self::new(ErrorKind::UnsupportedAlignment, align, max_align)
    }

    /// An object of device `given` was passed to device `wanted`.
    #[cold]
    #[must_use]
    pub const fn device_mismatch(wanted: u32, given: u32) -> Self {
        Self::new(ErrorKind::DeviceMismatch, wanted as usize, given as usize)
    }

    /// An object of another machine was passed: of another driver, or of another simulator.
    #[cold]
    #[must_use]
    pub fn machine_mismatch() -> Self {
        Self::with_detail(
            ErrorKind::DeviceMismatch,
            "something of another machine",
            "its streams and addresses mean nothing here",
            "take both from clones of one `Machine`",
        )
    }

    /// A stream of a context was passed that is not the primary one of a device.
    #[cold]
    #[must_use]
    pub fn context_mismatch() -> Self {
        Self::with_detail(
            ErrorKind::DeviceMismatch,
            "a stream of a context that is not the primary one of its device",
            "all memory of this crate is of primary contexts",
            "make the stream while the primary context is current, as after `cudaSetDevice`",
        )
    }

    /// `index` is outside of `length` elements.
    #[cold]
    #[must_use]
    pub const fn out_of_range(index: usize, length: usize) -> Self {
        Self::new(ErrorKind::OutOfRange, index, length)
    }

    /// `given` elements where exactly `wanted` are needed.
    #[cold]
    #[must_use]
    pub const fn length_mismatch(wanted: usize, given: usize) -> Self {
        Self::new(ErrorKind::LengthMismatch, wanted, given)
    }

    /// There is no device `ordinal`; there are `count`.
    #[cold]
    #[must_use]
    pub const fn no_device(ordinal: u32, count: u32) -> Self {
        Self::new(ErrorKind::NoDevice, ordinal as usize, count as usize)
    }

    /// `blocks` blocks of the resource are still live.
    #[cold]
    #[must_use]
    pub const fn in_use(blocks: usize) -> Self {
        Self::new(ErrorKind::InUse, blocks, 0)
    }

    /// `what` is not available, because of `why`; `instead` names a replacement.
    #[cold]
    #[must_use]
    pub fn unsupported(what: &'static str, why: &'static str, instead: &'static str) -> Self {
        Self::with_detail(ErrorKind::Unsupported, what, why, instead)
    }

    /// The argument `what` breaks the rule `why`; `instead` says what to pass.
    #[cold]
    #[must_use]
    pub fn invalid_argument(what: &'static str, why: &'static str, instead: &'static str) -> Self {
        Self::with_detail(ErrorKind::InvalidArgument, what, why, instead)
    }

    /// `what` sleeps; `why` it cannot be served, and what to do `instead`.
    #[cold]
    #[must_use]
    pub(crate) fn asleep(what: &'static str, why: &'static str, instead: &'static str) -> Self {
        Self::with_detail(ErrorKind::Asleep, what, why, instead)
    }

    /// No event covers the last work of a stream, and none can be recorded now.
    #[cold]
    pub(crate) fn no_last_event() -> Self {
        Self::new(ErrorKind::Unsupported, 0, 0).and(Detail::NoLastEvent)
    }

    /// What another process shared is gone; `why` it may be.
    #[cold]
    #[must_use]
    pub(crate) fn stale(why: &'static str) -> Self {
        Self::new(ErrorKind::Stale, 0, 0).and(Detail::Text(why.into()))
    }

    /// What this process shares was to be opened in it.
    #[cold]
    #[must_use]
    pub(crate) fn own_process() -> Self {
        let why = "no process opens what it shares itself: use the container, which its `Shared` lends out";
        Self::new(ErrorKind::OwnProcess, 0, 0).and(Detail::Text(why.into()))
    }

    /// Something of one device was given to another; `why` names them.
    #[cold]
    #[must_use]
    pub(crate) fn device_mismatch_that(why: String) -> Self {
        Self::new(ErrorKind::DeviceMismatch, 0, 0).and(Detail::Text(why.into()))
    }

    /// An argument breaks a rule; `why` has the numbers.
    #[cold]
    #[must_use]
    pub(crate) fn invalid_argument_that(why: String) -> Self {
        Self::new(ErrorKind::InvalidArgument, 0, 0).and(Detail::Text(why.into()))
    }

    /// There is no driver.
    #[cold]
    #[must_use]
    pub fn no_driver(why: &'static str, instead: &'static str) -> Self {
        Self::with_detail(ErrorKind::NoDriver, "the driver", why, instead)
    }

    /// Line `line`, counted from 1, is malformed, for the reason `why`.
    #[cold]
    #[must_use]
    pub fn malformed(line: usize, why: impl Into<Box<str>>) -> Self {
        Self::new(ErrorKind::Malformed, line, 0).and(Detail::Text(why.into()))
    }

    /// A file is malformed that has no lines.
    #[cold]
    pub(crate) fn malformed_file(why: String) -> Self {
        Self::malformed(0, why)
    }

    /// A place that others have.
    #[cold]
    pub(crate) fn in_use_that(why: String) -> Self {
        Self::new(ErrorKind::InUse, 0, 0).and(Detail::Text(why.into()))
    }

    /// Others use `what`, as `why` says; `instead` says what to do.
    #[cold]
    #[must_use]
    pub fn in_use_by_others(what: &'static str, why: &'static str, instead: &'static str) -> Self {
        Self::with_detail(ErrorKind::InUse, what, why, instead)
    }

    /// Line `line`, counted from 1, cannot be read.
    #[cold]
    #[must_use]
    pub fn unreadable(line: usize, error: &std::io::Error) -> Self {
        Self::new(ErrorKind::Unreadable, line, 0).and(Detail::Text(error.to_string().into()))
    }

    /// A file cannot be read, or not further.
    #[cold]
    pub(crate) fn unreadable_file(what: impl fmt::Display, error: &std::io::Error) -> Self {
        Self::new(ErrorKind::Unreadable, 0, 0).and(Detail::Text(format!("{what}: {error}").into()))
    }

    /// `what`, a file or another writer, cannot be written.
    #[cold]
    #[must_use]
    pub fn unwritable(what: impl fmt::Display, error: &std::io::Error) -> Self {
        Self::new(ErrorKind::Unwritable, 0, 0).and(Detail::Text(format!("{what}: {error}").into()))
    }

    /// An error of code that is not the crate's, such as a callback, which goes up through every layer unchanged.
    /// [`foreign_error`](Self::foreign_error) returns it, and so does [`source`](core::error::Error::source).
    ///
    /// It is not out of memory: nobody frees memory for it, and no suballocator looks elsewhere. For a lack of memory with such an
    /// error behind it there is [`OutOfMemory::upstream_error`].
    ///
    /// ```
    /// use alluvion::source::Callback;
    /// use alluvion::{Error, ErrorKind, Layout, PoolConfig, Resource, ResourceExt, Sim};
    ///
    /// let sim = Sim::new();
    /// let device = sim.device(0);
    /// let fails = |_: Layout, _: alluvion::StreamRef<'_>| Err(Error::foreign("interrupted".parse::<u32>().unwrap_err()));
    /// // SAFETY: the closures hand out nothing.
    /// let callback = unsafe { Callback::new(&device, fails, |_, _, _| {}) };
    /// let pool = callback.pool(PoolConfig::default())?;
    /// let error = pool.allocate_sync(Layout::from_bytes(100)?).unwrap_err();
    /// assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Foreign, "foreign error: invalid digit found in string"));
    /// assert!(error.foreign_error().is_some_and(|error| error.is::<std::num::ParseIntError>()));
    /// # Ok::<(), Error>(())
    /// ```
    #[cold]
    #[must_use]
    pub fn foreign(error: impl Into<Box<dyn core::error::Error + Send + Sync>>) -> Self {
        Self::new(ErrorKind::Foreign, 0, 0).and(Detail::Foreign(ForeignError::new(error.into())))
    }

    /// As [`of_driver`](Self::of_driver), with what is known beside the code.
    #[cold]
    pub(crate) fn of_driver_that(error: DriverError, bytes: usize, why: String) -> Self {
        Self::of_driver(error, bytes).and(Detail::Text(why.into()))
    }

    /// An error at a position in a text: of the kind of `of`, the error that occurred there, or else `Malformed`.
    #[cold]
    pub(crate) fn pointing(text: &str, place: Range<usize>, why: String, of: Option<Self>) -> Self {
        let (kind, call, code) =
            of.as_ref().map_or((ErrorKind::Malformed, None, 0), |error| (error.kind, error.call, error.code));
        let (pointed, line, column) = Pointed::new(text, place, why, of);
        Self { call, code, ..Self::new(kind, line, column) }.and(Detail::Pointed(pointed))
    }

    /// The same error, said of one of several devices.
    #[cold]
    pub(crate) fn on_device(self, ordinal: u32) -> Self {
        if self.device().is_some() {
            return self;
        }
        let Self { kind, call, code, first, second, .. } = self;
        Self { kind, call, code, first, second, detail: None }.and(Detail::OnDevice(ordinal, self))
    }

    /// Names the variable that holds the text that this error points at. An error that points at no text, because there was no
    /// memory for the resource that `text` describes, then points at all of it.
    #[cold]
    pub(crate) fn found_in(self, variable: &'static str, text: &str) -> Self {
        let pointing = match self.detail.as_deref() {
            Some(Detail::Pointed(_)) => self,
            Some(Detail::OutOfMemory(report)) => {
                Self::pointing(text, 0..text.len(), report.to_string(), Some(self.clone()))
            }
            _ => return self,
        };
        match pointing.detail.as_deref() {
            Some(Detail::Pointed(pointed)) => {
                let pointed = Detail::Pointed(pointed.found_in(variable));
                Self { detail: None, ..pointing }.and(pointed)
            }
            _ => pointing,
        }
    }

    /// Device `peer` cannot access memory of device `own`.
    #[cold]
    pub(crate) fn peer_without_access(own: u32, peer: u32, said: Option<DriverError>) -> Self {
        let said = said.map_or_else(String::new, |error| format!(" ({error})"));
        let why =
            format!("gpu {peer} has no access to memory of gpu {own}{said}: leave gpu {peer} out of `peers`");
        Self::new(ErrorKind::InvalidArgument, 0, 0).and(Detail::RefusedPeer(peer, why.into()))
    }

    /// A block was given back wrongly.
    #[cold]
    pub(crate) fn of_misuse(misuse: Misuse) -> Self {
        Self::new(ErrorKind::Misuse, misuse.bytes, 0).and(Detail::Misuse(misuse))
    }

    /// The error of a driver call that was asked for `bytes`.
    #[cold]
    #[must_use]
    pub fn of_driver(error: DriverError, bytes: usize) -> Self {
        let kind = match error.code {
            Code::OUT_OF_MEMORY => ErrorKind::OutOfMemory,
            Code::NOT_SUPPORTED | Code::NOT_FOUND => ErrorKind::Unsupported,
            Code::NO_DEVICE | Code::INVALID_DEVICE => ErrorKind::NoDevice,
            Code::STUB_LIBRARY | Code::SYSTEM_DRIVER_MISMATCH => ErrorKind::NoDriver,
            code if code.is_capture() => ErrorKind::Capture,
            code if code.is_shut_down() => ErrorKind::ShutDown,
            code if code.is_sticky() => ErrorKind::ContextLost,
            _ => ErrorKind::Driver,
        };
        Self { call: Some(error.call), code: error.code.0, ..Self::new(kind, bytes, usize::MAX) }
    }
}

/// An out-of-memory error with its report. The driver's call and code are those of the upstream's error, if it has them.
impl From<OutOfMemory> for Error {
    #[cold]
    fn from(report: OutOfMemory) -> Self {
        let (call, code) = report.upstream_error.as_ref().map_or((None, 0), |error| (error.call, error.code));
        let limit = report.maximum_bytes.unwrap_or(usize::MAX);
        let plain = Self::new(ErrorKind::OutOfMemory, report.requested_bytes, limit);
        Self { call, code, ..plain }.and(Detail::OutOfMemory(report))
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        Self::of_driver(error, 0)
    }
}

#[cfg(any(feature = "cuda", feature = "runtime"))]
impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::NoDriver { why, instead } => Self::no_driver(why, instead),
            LoadError::Refused(error) => error.into(),
        }
    }
}

impl From<Uncovered> for Error {
    fn from(uncovered: Uncovered) -> Self {
        match uncovered {
            Uncovered::Ended { .. } => Self::no_last_event(),
            Uncovered::Refused(error) => error.into(),
        }
    }
}

impl From<NotEntered> for Error {
    fn from(reason: NotEntered) -> Self {
        match reason {
            NotEntered::Refused(error) => error.into(),
            NotEntered::Full => Self::unsupported(
                "another stream",
                "this machine has 1048576 that are not over",
                "reuse streams, through a `StreamPool`",
            ),
        }
    }
}
