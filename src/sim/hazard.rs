//! `Hazard`: a mistake of a program, whether or not it had an effect this time.

use core::fmt;
use std::sync::Arc;

use super::clock::Point;
use super::process::ProcessId;

/// The kind of a [`Hazard`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum HazardKind {
    /// Two accesses to the same bytes, at least one of them a write, and neither ordered after the other.
    Race,
    /// Stream-ordered memory used by work that is not ordered after its allocation.
    UseBeforeReady,
    /// Memory used after it was freed or unmapped.
    UseAfterFree,
    /// An access that leaves its allocation, or that hits none.
    OutOfBounds,
    /// A mapping used by a device that was not given access to it, or memory of another device used by a kernel.
    NoAccess,
    /// Memory freed twice.
    DoubleFree,
    /// A free of memory that was never allocated, or by the wrong call.
    InvalidFree,
    /// Memory freed or unmapped while work that was not waited for still uses it.
    FreeInUse,
    /// Memory or a handle that was never released.
    Leak,
    /// A handle used after it was destroyed, or on another device than its own.
    StaleHandle,
    /// A kernel used memory that it had not declared.
    UndeclaredAccess,
    /// A call that a capture forbids.
    IllegalDuringCapture,
    /// A driver call from inside a host function or a kernel.
    CallFromCallback,
    /// A kernel or a host function that panicked.
    Panic,
    /// A call that the driver does not survive for certain, and that this machine refuses.
    Undefined,
}

impl HazardKind {
    const fn text(self) -> &'static str {
        match self {
            Self::Race => "race",
            Self::UseBeforeReady => "use before ready",
            Self::UseAfterFree => "use after free",
            Self::OutOfBounds => "out of bounds",
            Self::NoAccess => "no access",
            Self::DoubleFree => "double free",
            Self::InvalidFree => "invalid free",
            Self::FreeInUse => "free while in use",
            Self::Leak => "leak",
            Self::StaleHandle => "stale handle",
            Self::UndeclaredAccess => "undeclared access",
            Self::IllegalDuringCapture => "illegal during capture",
            Self::CallFromCallback => "driver call from a callback",
            Self::Panic => "panic",
            Self::Undefined => "undefined",
        }
    }
}

impl fmt::Display for HazardKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// The name of the stream that does the work: a stream of a device, a graph, or the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamLabel {
    /// The calling thread itself.
    Host,
    /// The legacy default stream of a device.
    Legacy {
        /// The device.
        ordinal: u32,
    },
    /// The default stream of one thread.
    PerThread {
        /// The device.
        ordinal: u32,
        /// The stream's process-unique number.
        id: u64,
    },
    /// A stream that the program made.
    Stream {
        /// The device.
        ordinal: u32,
        /// The stream's process-unique number.
        id: u64,
    },
    /// One branch of a launched graph.
    Graph {
        /// The device.
        ordinal: u32,
        /// The branch of the graph.
        branch: u32,
    },
}

impl fmt::Display for StreamLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("the host"),
            Self::Legacy { ordinal } => write!(f, "the legacy stream of gpu {ordinal}"),
            Self::PerThread { ordinal, id } => write!(f, "per-thread stream {id} of gpu {ordinal}"),
            Self::Stream { ordinal, id } => write!(f, "stream {id} of gpu {ordinal}"),
            Self::Graph { ordinal, branch } => write!(f, "branch {branch} of a graph on gpu {ordinal}"),
        }
    }
}

/// The effect of an operation on its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AccessMode {
    /// Reads them.
    Read,
    /// Writes them.
    Write,
    /// Needs them to exist, and does not change them (a prefetch).
    Touch,
    /// Allocates them.
    Allocate,
    /// Frees them.
    Free,
}

impl fmt::Display for AccessMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Touch => "touch",
            Self::Allocate => "allocation",
            Self::Free => "free",
        })
    }
}

/// The use of one range of bytes by one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub(super) operation: Arc<str>,
    pub(super) process: ProcessId,
    pub(super) stream: StreamLabel,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) mode: AccessMode,
    pub(super) submission: u64,
    /// The point of the operation on its lane; `None` for the host, which is ordered after the work that it has waited for.
    pub(super) point: Option<Point>,
}

impl Access {
    /// The name of the operation: that of a kernel, or the driver call.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// The process that asked for it: 0 for the first of the machine, then counted.
    #[must_use]
    pub const fn process(&self) -> u32 {
        self.process.0
    }

    /// The stream that does it.
    #[must_use]
    pub const fn stream(&self) -> StreamLabel {
        self.stream
    }

    /// The stream, and its process where that is not the first.
    pub(super) fn place(&self) -> impl fmt::Display + use<> {
        Place(self.stream, self.process)
    }

    /// The first byte.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// The number of bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The effect on the bytes.
    #[must_use]
    pub const fn mode(&self) -> AccessMode {
        self.mode
    }

    /// The number of the submission in the machine, counted from 1.
    #[must_use]
    pub const fn submission(&self) -> u64 {
        self.submission
    }
}

/// A stream, and its process where that is not the first.
struct Place(StreamLabel, ProcessId);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            ProcessId::FIRST => write!(f, "{}", self.0),
            process => write!(f, "{} of process {}", self.0, process.0),
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, address, bytes, mode, submission, .. } = self;
        let stream = self.place();
        write!(f, "the {mode} of {bytes} bytes at {address:#x} by `{operation}` on {stream} (#{submission})")
    }
}

/// A mistake, with the accesses involved and the missing order or the broken rule.
///
/// Races, uses before ready and frees in use are found from the order that the program *asked for*, not from the one in which work
/// happened to run: a program without hazards has none under any schedule of the same submissions.
///
/// It prints as one paragraph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hazard {
    pub(super) kind: HazardKind,
    pub(super) first: Option<Access>,
    pub(super) second: Option<Access>,
    pub(super) missing: String,
}

impl Hazard {
    /// The kind of the mistake.
    #[must_use]
    pub const fn kind(&self) -> HazardKind {
        self.kind
    }

    /// The earlier of the two accesses, in the order of submission, where there are two.
    #[must_use]
    pub const fn first(&self) -> Option<&Access> {
        self.first.as_ref()
    }

    /// The later access, which completed the mistake.
    #[must_use]
    pub const fn second(&self) -> Option<&Access> {
        self.second.as_ref()
    }

    /// The missing edge, or the broken rule.
    #[must_use]
    pub fn missing(&self) -> &str {
        &self.missing
    }

    /// A broken rule without two accesses.
    pub(super) fn rule(kind: HazardKind, missing: impl Into<String>) -> Self {
        Self { kind, first: None, second: None, missing: missing.into() }
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind)?;
        if let Some(second) = &self.second {
            write!(f, "{second}")?;
            match &self.first {
                Some(first) => write!(f, " against {first}; ")?,
                None => f.write_str("; ")?,
            }
        }
        f.write_str(&self.missing)
    }
}
