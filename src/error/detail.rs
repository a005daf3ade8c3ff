//! `Detail`: the content of an error beyond its two numbers.

use core::fmt;

use super::foreign_error::ForeignError;
use super::pointed::Pointed;
use super::{Error, Misuse, OutOfMemory, Unsupported};

/// In one small box on the heap of the host, for content that does not fit in the words of an error.
#[derive(Debug)]
pub(super) enum Detail {
    Unsupported(Unsupported),
    OutOfMemory(OutOfMemory),
    Misuse(Misuse),
    Text(Box<str>),
    Pointed(Pointed),
    Foreign(ForeignError),
    /// A stream ended, or rests, before an event covered its last work.
    NoLastEvent,
    /// A device that has no access to memory of another, with its number, and why.
    RefusedPeer(u32, Box<str>),
    /// The error of one of several devices, with its number.
    OnDevice(u32, Error),
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(Unsupported { what, why, instead }) => write!(f, "{what}: {why}; {instead}"),
            Self::OutOfMemory(report) => report.fmt(f),
            Self::Misuse(misuse) => misuse.fmt(f),
            Self::Text(text) | Self::RefusedPeer(_, text) => f.write_str(text),
            Self::Pointed(pointed) => pointed.fmt(f),
            Self::Foreign(error) => error.fmt(f),
            Self::NoLastEvent => f.write_str(
                "an event for the last work of a stream: it captured when it ended, or rests until its owner brings its handle again; \
                 wait for the device",
            ),
            Self::OnDevice(ordinal, error) => write!(f, "gpu {ordinal}: {error}"),
        }
    }
}
