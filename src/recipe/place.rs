//! `Place`: where in a line something stands.

use core::ops::Range;

use crate::error::Error;

/// A range of a line, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place(pub(super) Range<usize>);

impl Place {
    /// The text there is not what it should be.
    #[cold]
    pub(super) fn malformed(&self, text: &str, why: impl Into<String>) -> Error {
        Error::pointing(text, self.0.clone(), why.into(), None)
    }

    /// What stands there cannot be done, for the reason that `error` has. One that would be the same whatever the line said,
    /// as a lack of memory, has more to tell than a place, and stays as it is.
    #[cold]
    pub(super) fn refused(&self, text: &str, error: Error) -> Error {
        use crate::error::ErrorKind::{
            InvalidAlignment, InvalidArgument, NoDevice, SizeOverflow, Unreadable, Unsupported,
            UnsupportedAlignment, Unwritable,
        };
        let is_about_the_line = matches!(
            error.kind(),
            InvalidAlignment
                | InvalidArgument
                | NoDevice
                | SizeOverflow
                | Unreadable
                | Unsupported
                | UnsupportedAlignment
                | Unwritable
        );
        if !is_about_the_line || error.column().is_some() {
            return error;
        }
        let why = error.reason();
        Error::pointing(text, self.0.clone(), why, Some(error))
    }
}
