//! `Error`: one error for the whole crate.

use std::sync::Arc;

use super::detail::Detail;
use super::{ErrorKind, Misuse, OutOfMemory, Unsupported};
use crate::driver::{Call, Code};

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
    pub(super) kind: ErrorKind,
    /// The driver call that failed, if one did; `code` belongs to it.
    pub(super) call: Option<Call>,
    pub(super) code: u32,
    /// The first number of the kind: bytes asked for, an alignment, an index.
    pub(super) first: usize,
    /// The second number of the kind: a limit, an element size, a length.
    pub(super) second: usize,
    pub(super) detail: Option<Arc<Detail>>,
}

const _: () = assert!(size_of::<Error>() <= 4 * size_of::<usize>());
static_assertions::assert_impl_all!(Error: Send, Sync, Clone, core::error::Error);

impl Error {
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

    /// The content beyond the two numbers, whichever device it is about.
    pub(super) fn detail(&self) -> Option<&Detail> {
        match self.detail.as_deref() {
            Some(Detail::OnDevice(_, error)) => error.detail(),
            detail => detail,
        }
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

    /// Returns `true` if no event covers the last work of a stream, and none can be recorded now: it is over when its device has been
    /// waited for. Other streams are not affected.
    pub(crate) fn is_no_last_event(&self) -> bool {
        matches!(self.detail(), Some(Detail::NoLastEvent))
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

impl core::error::Error for Error {
    /// The [error of code that is not the crate's](Error::foreign_error), if there is one.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.foreign_error().map(|error| -> &(dyn core::error::Error + 'static) { error })
    }
}
