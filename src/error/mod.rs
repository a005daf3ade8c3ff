//! Errors.
//!
//! One [`Error`] for the whole crate, and the reports that it carries: [`OutOfMemory`] of a resource that found no memory,
//! [`Misuse`] of a block that was given back wrongly. Whoever frees hears of it by [`freeing`].

mod detail;
#[expect(clippy::module_inception, reason = "file = type")]
mod error;
mod error_kind;
mod foreign_error;
mod freeing;
mod made;
mod member;
mod misuse;
mod out_of_memory;
mod pointed;
mod returned;
mod snapshot_file;
#[cfg(test)]
mod tests;
mod unsupported;
mod written;

pub use error::Error;
pub use error_kind::ErrorKind;
pub use freeing::freeing;
pub(crate) use freeing::is_freed_by;
pub use member::Member;
pub use misuse::{Misuse, MisuseKind};
pub(crate) use out_of_memory::LimitName;
pub use out_of_memory::{Cause, OutOfMemory};
pub use returned::Returned;
pub use snapshot_file::SnapshotFile;
pub use unsupported::Unsupported;
