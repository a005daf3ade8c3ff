//! `ErrorKind`: the kind of an error.

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
    /// Code that is not the crate's failed, such as a callback: see [`Error::foreign`](crate::Error::foreign).
    Foreign,
}

impl ErrorKind {
    /// The words before the position in a text that an error points at.
    pub(super) const fn name_at_a_place(self) -> &'static str {
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
