//! `Error`: one error for the whole crate.

use core::fmt;
use core::ops::Range;
use std::sync::Arc;

use super::detail::Detail;
use super::foreign_error::ForeignError;
use super::pointed::Pointed;
use super::{Misuse, OutOfMemory};
#[cfg(any(feature = "cuda", feature = "runtime"))]
use crate::driver::LoadError;
use crate::driver::{Call, Code, DriverError};
use crate::order::NotEntered;
use crate::size::Size;

/// Why something could not be done: a kind, the numbers that belong to it, and the driver's own code if it had one.
///
/// Four words, so that `Result<DevicePtr, Error>` stays in registers where it matters. Larger details, such as the report of a
/// suballocator that ran out of memory, are in one small box on the heap of the host. Making an error needs no device memory.
///
/// ```
/// use alluvion::{Error, Layout};
///
/// let error = Layout::array::<f64>(usize::MAX).unwrap_err();
/// assert!(error.is_size_overflow());
/// assert_eq!(
///     error.to_string(),
///     "size overflow: 18446744073709551615 elements of 8 bytes are more than an allocation can hold",
/// );
/// ```
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    /// The driver call that failed, if one did; `code` belongs to it.
    call: Option<Call>,
    code: u32,
    /// The first number of the kind: bytes asked for, an alignment, an index.
    first: usize,
    /// The second number of the kind: a limit, an element size, a length.
    second: usize,
    detail: Option<Arc<Detail>>,
}

const _: () = assert!(size_of::<Error>() <= 4 * size_of::<usize>());
static_assertions::assert_impl_all!(Error: Send, Sync, Clone, core::error::Error);

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is not enough memory; freeing some and asking again may succeed.
    OutOfMemory,
    /// A size does not fit: more than `isize::MAX` bytes, or a product that overflows.
    SizeOverflow,
    /// An alignment is not a power of two.
    InvalidAlignment,
    /// An alignment is larger than the resource can honour.
    UnsupportedAlignment,
    /// A stream, an event or a block of one device was given to another.
    DeviceMismatch,
    /// An index or a range is outside of a container.
    OutOfRange,
    /// Two lengths that must be equal are not.
    LengthMismatch,
    /// An argument breaks a documented rule.
    InvalidArgument,
    /// The device or the driver cannot do it; the error says what would.
    Unsupported,
    /// No device with that ordinal.
    NoDevice,
    /// No driver: libcuda is missing, a stub, or too old.
    NoDriver,
    /// The call is illegal during a graph capture.
    Capture,
    /// The context was lost by an earlier error; every call in it fails.
    ContextLost,
    /// The driver shut down, or this process is a fork of the one that started it.
    ShutDown,
    /// The resource still has live blocks, or another process has the place.
    InUse,
    /// The memory sleeps: wake it, and ask again.
    Asleep,
    /// What another process shared is gone: it has ended, or has taken it back.
    Stale,
    /// What this process shares was to be opened in it: use the container itself.
    OwnProcess,
    /// A block was given back wrongly, and was not freed.
    Misuse,
    /// A file or a description is malformed; the error says in which line, and why.
    Malformed,
    /// A file cannot be read.
    Unreadable,
    /// A file cannot be written.
    Unwritable,
    /// Any other code of the driver.
    Driver,
    /// Code that is not the crate's failed, such as a callback: see [`Error::foreign`].
    Foreign,
}

impl ErrorKind {
    /// The words before the position in a text that an error points at.
    const fn name_at_a_place(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::OutOfMemory => "out of memory",
            Self::Unsupported => "unsupported",
            Self::NoDevice => "no such device",
            Self::Unreadable => "unreadable",
            Self::Unwritable => "unwritable",
            Self::Foreign => "foreign error",
            _ => "invalid argument",
        }
    }
}

/// A missing feature, the reason, and a replacement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Unsupported {
    /// The feature that was asked for.
    pub what: &'static str,
    /// The reason why it is missing.
    pub why: &'static str,
    /// The replacement.
    pub instead: &'static str,
}

impl Error {
    #[cold]
    const fn new(kind: ErrorKind, first: usize, second: usize) -> Self {
        Self { kind, call: None, code: 0, first, second, detail: None }
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

    /// The number of the device that failed, where several were asked at once.
    ///
    /// ```
    /// use alluvion::sim::SimConfig;
    /// use alluvion::{PoolConfig, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::with_config(SimConfig::default().devices(2));
    /// let huge = PoolConfig::default().initial(512 << 30);
    /// let error = sim.machine().per_device(|device| Cuda::new(device).pool(huge.clone())).unwrap_err();
    /// let error = alluvion::Error::from(error);
    /// assert_eq!((error.device(), error.is_out_of_memory()), (Some(0), true));
    /// ```
    #[must_use]
    pub fn device(&self) -> Option<u32> {
        match self.detail.as_deref() {
            Some(Detail::OnDevice(ordinal, _)) => Some(*ordinal),
            _ => None,
        }
    }

    /// The content beyond the two numbers, whichever device it is about.
    fn detail(&self) -> Option<&Detail> {
        match self.detail.as_deref() {
            Some(Detail::OnDevice(_, error)) => error.detail(),
            detail => detail,
        }
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

    #[cold]
    fn with_detail(kind: ErrorKind, what: &'static str, why: &'static str, instead: &'static str) -> Self {
        Self::new(kind, 0, 0).and(Detail::Unsupported(Unsupported { what, why, instead }))
    }

    #[cold]
    fn and(self, detail: Detail) -> Self {
        Self { detail: Some(Arc::new(detail)), ..self }
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

    /// The kind of the error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The driver's code, if a driver call failed.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        self.call.map(|_| Code(self.code))
    }

    /// The driver call that failed, if one did.
    #[must_use]
    pub const fn call(&self) -> Option<Call> {
        self.call
    }

    /// The bytes that were asked for, if the error is about bytes.
    #[must_use]
    pub fn requested_bytes(&self) -> Option<usize> {
        match self.detail() {
            Some(Detail::Pointed(pointed)) => pointed.of.as_ref()?.requested_bytes(),
            _ => (self.kind == ErrorKind::OutOfMemory).then_some(self.first),
        }
    }

    /// The limit that was hit: bytes for out of memory, the largest alignment, or the length of the container.
    #[must_use]
    pub fn limit(&self) -> Option<usize> {
        use ErrorKind::{OutOfMemory, OutOfRange, UnsupportedAlignment};
        match self.kind {
            _ if self.column().is_some() => None,
            OutOfMemory if self.second != usize::MAX => Some(self.second),
            UnsupportedAlignment | OutOfRange => Some(self.second),
            _ => None,
        }
    }

    /// The name of the limit that was hit, if it has one: that of the [`Allowance`](crate::adaptor::Allowance).
    #[must_use]
    pub fn limit_name(&self) -> Option<&str> {
        self.out_of_memory_report()?.name.as_deref()
    }

    /// The unsupported feature, the reason and a replacement, if the error has them.
    #[must_use]
    pub fn unsupported_detail(&self) -> Option<&Unsupported> {
        match self.detail() {
            Some(Detail::Unsupported(unsupported)) => Some(unsupported),
            Some(Detail::Pointed(pointed)) => pointed.of.as_ref()?.unsupported_detail(),
            _ => None,
        }
    }

    /// The report about running out of memory: the resource that refused, and its figures. Every resource of the crate makes one;
    /// a resource of your own can make its error [from a report](OutOfMemory::new).
    ///
    /// A layer reports its own figures; those of its upstream are in [`upstream_error`](OutOfMemory::upstream_error).
    #[must_use]
    pub fn out_of_memory_report(&self) -> Option<&OutOfMemory> {
        match self.detail() {
            Some(Detail::OutOfMemory(report)) => Some(report),
            Some(Detail::Pointed(pointed)) => pointed.of.as_ref()?.out_of_memory_report(),
            _ => None,
        }
    }

    /// The error of code that is not the crate's: this one is it, or it led to this one. `downcast_ref` of it gives its type back.
    #[must_use]
    pub fn foreign_error(&self) -> Option<&(dyn core::error::Error + Send + Sync + 'static)> {
        match self.detail()? {
            Detail::Foreign(error) => error.get(),
            Detail::OutOfMemory(report) => report.upstream_error.as_ref()?.foreign_error(),
            Detail::Pointed(pointed) => pointed.of.as_ref()?.foreign_error(),
            _ => None,
        }
    }

    /// The number of the device that cannot access memory of another one, if that is the error: of a device among the `peers` of a
    /// source.
    #[must_use]
    pub fn refused_peer(&self) -> Option<u32> {
        match self.detail() {
            Some(Detail::RefusedPeer(peer, _)) => Some(*peer),
            Some(Detail::Pointed(pointed)) => pointed.of.as_ref()?.refused_peer(),
            _ => None,
        }
    }

    /// The block that was given back wrongly, and the mistake, if that is the error.
    #[must_use]
    pub fn misuse(&self) -> Option<&Misuse> {
        match self.detail() {
            Some(Detail::Misuse(misuse)) => Some(misuse),
            _ => None,
        }
    }

    /// The line that the error points at, counted from 1, if any.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        let is_of_a_line = matches!(self.kind, ErrorKind::Malformed | ErrorKind::Unreadable);
        (is_of_a_line && self.first > 0 || self.column().is_some()).then_some(self.first)
    }

    /// The column in that line, in characters, counted from 1, if the error points into a description.
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        matches!(self.detail(), Some(Detail::Pointed(_))).then_some(self.second)
    }

    /// The message, without the kind where the kind alone says nothing.
    pub(crate) fn reason(&self) -> String {
        match (self.kind, self.detail()) {
            (ErrorKind::InvalidArgument | ErrorKind::Unsupported | ErrorKind::Unwritable, Some(detail)) => {
                detail.to_string()
            }
            _ => self.to_string(),
        }
    }

    /// Returns `true` if freeing memory and asking again may succeed.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.kind == ErrorKind::OutOfMemory
    }

    /// Returns `true` if a size was too large for any allocation.
    #[must_use]
    pub fn is_size_overflow(&self) -> bool {
        self.kind == ErrorKind::SizeOverflow
    }

    /// Returns `true` if an alignment was no power of two, or larger than the resource honours.
    #[must_use]
    pub fn is_alignment(&self) -> bool {
        matches!(self.kind, ErrorKind::InvalidAlignment | ErrorKind::UnsupportedAlignment)
    }

    /// Returns `true` if an object of one device was passed to another.
    #[must_use]
    pub fn is_device_mismatch(&self) -> bool {
        self.kind == ErrorKind::DeviceMismatch
    }

    /// Returns `true` if an index or a range was outside of its container.
    #[must_use]
    pub fn is_out_of_range(&self) -> bool {
        self.kind == ErrorKind::OutOfRange
    }

    /// Returns `true` if two lengths that must be equal were not.
    #[must_use]
    pub fn is_length_mismatch(&self) -> bool {
        self.kind == ErrorKind::LengthMismatch
    }

    /// Returns `true` if the device or the driver lacks what was asked for.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        self.kind == ErrorKind::Unsupported
    }

    /// Returns `true` if there is no driver, or no such device: a program may then fall back to a simulated machine.
    #[must_use]
    pub fn is_no_device(&self) -> bool {
        matches!(self.kind, ErrorKind::NoDevice | ErrorKind::NoDriver)
    }

    /// Returns `true` if what another process shared is gone: it has ended, or has taken it back.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.kind == ErrorKind::Stale
    }

    /// Returns `true` if a graph capture forbids the call.
    #[must_use]
    pub fn is_capture(&self) -> bool {
        self.kind == ErrorKind::Capture
    }

    /// Returns `true` if the context was lost: every later call fails the same way.
    #[must_use]
    pub fn is_context_lost(&self) -> bool {
        self.kind == ErrorKind::ContextLost
    }

    /// Returns `true` if the caller stops trying: every later call will fail too, or code that is not the crate's has failed,
    /// which its caller must hear of.
    pub(crate) fn is_final(&self) -> bool {
        self.is_context_lost() || self.is_shut_down() || self.is_foreign()
    }

    /// Returns `true` if code that is not the crate's failed: see [`foreign`](Self::foreign).
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.kind == ErrorKind::Foreign
    }

    /// Returns `true` if the driver has shut down, or belongs to the parent of this process.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.kind == ErrorKind::ShutDown
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(on_device @ Detail::OnDevice(..)) = self.detail.as_deref() {
            return on_device.fmt(f);
        }
        let (first, second) = (self.first, self.second);
        match self.kind {
            _ if self.column().is_some() => {
                write!(f, "{}: ", self.kind.name_at_a_place())?;
                if let Some(Detail::Pointed(pointed)) = self.detail()
                    && let Some(variable) = pointed.variable()
                {
                    write!(f, "{variable}, ")?;
                }
                write!(f, "line {first}, column {second}")?;
            }
            ErrorKind::OutOfMemory if self.out_of_memory_report().is_some() => {
                f.write_str("out of memory")?;
            }
            ErrorKind::OutOfMemory => {
                write!(f, "out of memory: {:#} wanted", Size(first))?;
                if second != usize::MAX {
                    write!(f, ", the limit is {:#}", Size(second))?;
                }
            }
            ErrorKind::SizeOverflow => write!(
                f,
                "size overflow: {first} elements of {second} bytes are more than an allocation can hold"
            )?,
            ErrorKind::InvalidAlignment => write!(f, "invalid alignment: {first} is not a power of two")?,
            ErrorKind::UnsupportedAlignment => {
                write!(f, "unsupported alignment: {first} wanted, the resource honours up to {second}")?;
            }
            ErrorKind::DeviceMismatch if self.detail.is_some() => f.write_str("device mismatch")?,
            ErrorKind::DeviceMismatch => {
                write!(f, "device mismatch: gpu {first} was given something of gpu {second}")?;
            }
            ErrorKind::OutOfRange => write!(f, "out of range: index {first} in {second} elements")?,
            ErrorKind::LengthMismatch => {
                write!(f, "length mismatch: {first} elements wanted, {second} given")?;
            }
            ErrorKind::InvalidArgument => f.write_str("invalid argument")?,
            ErrorKind::Unsupported => f.write_str("unsupported")?,
            ErrorKind::NoDevice if self.call.is_some() => f.write_str("no such device")?,
            ErrorKind::NoDevice => {
                write!(f, "no such device: gpu {first}, and the machine has {second}")?;
            }
            ErrorKind::NoDriver => f.write_str("no driver")?,
            ErrorKind::Capture => f.write_str("illegal during a graph capture")?,
            ErrorKind::ContextLost => {
                f.write_str("context lost by an earlier error, nothing works on this device any more")?;
            }
            ErrorKind::ShutDown => {
                f.write_str("the driver has shut down, or belongs to the parent process")?;
            }
            ErrorKind::InUse if self.detail.is_some() => f.write_str("in use")?,
            ErrorKind::InUse => write!(f, "in use: {first} blocks are still out")?,
            ErrorKind::Asleep => f.write_str("asleep")?,
            ErrorKind::Stale => f.write_str("stale")?,
            ErrorKind::OwnProcess => f.write_str("shared by this process")?,
            ErrorKind::Misuse => f.write_str("misuse")?,
            ErrorKind::Malformed if first == 0 => f.write_str("malformed")?,
            ErrorKind::Malformed => write!(f, "malformed: line {first}")?,
            ErrorKind::Unreadable => write!(f, "unreadable: line {first}")?,
            ErrorKind::Unwritable => f.write_str("unwritable")?,
            ErrorKind::Driver => f.write_str("driver error")?,
            ErrorKind::Foreign => f.write_str("foreign error")?,
        }
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        // The report of a suballocator ends with the error of its upstream, including the call and its code. An error at a
        // position in a text has them in its message.
        let is_said = self.out_of_memory_report().is_some() || self.column().is_some();
        if let Some(call) = self.call.filter(|_| !is_said) {
            write!(f, " ({})", DriverError::new(call, Code(self.code)))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.kind)
    }
}

impl core::error::Error for Error {
    /// The [error of code that is not the crate's](Error::foreign_error), if there is one.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.foreign_error().map(|error| -> &(dyn core::error::Error + 'static) { error })
    }
}
