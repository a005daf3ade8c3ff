//! What outlives its process?
//!
//! [`Saver`] writes blocks to a file, each under a name, and [`SavedFile`] reads them, in another process and on any machine: there are no
//! half files, and what is cut short or damaged is told.
//!
//! Addresses do not outlive a process: what is restored lies wherever its container lies. To give memory back and have it again at the
//! same addresses is to [sleep](crate::Pool::sleep), which can keep the contents [in such a file](crate::SleepConfig::keep_on_disk).

mod ahead;
mod asleep;
mod behind;
mod beside;
mod checksum;
mod format;
mod saved_file;
mod saver;
mod through_host;

pub use ahead::Ahead;
pub use behind::Behind;
pub use saved_file::SavedFile;
pub use saver::Saver;
