//! What do other processes use?
//!
//! A process *exports* a container: [`Shared`] has a [`Message`] for it, which is sent to other processes by whatever means, and a
//! descriptor, which is sent over a Unix socket, for memory that needs one. Another process *imports* it: [`Imported`] opens the
//! memory, without a copy, and is read as a container of its own.
//!
//! # Which memory
//!
//! | source | shared as | needs a descriptor |
//! |---|---|---|
//! | [`Cuda`](crate::source::Cuda) | a handle of the whole allocation | no |
//! | [`CudaAsync`](crate::source::CudaAsync) with `handle_types` | a handle of the block, and one of the pool | yes |
//! | [`Mapped`](crate::source::Mapped) with `handle_types` | physical memory | yes, unless by fabric handles |
//!
//! A suballocator over one of them shares pieces of its segments: a segment is opened once in each importing process, however many
//! blocks of it are shared. A block of a [`Pool`](crate::Pool) over `Mapped` may lie on several pages, up to 1012 of them: an importer
//! maps them side by side, and one descriptor stands for all. That is on Linux, and not for fabric handles. The pages of such a block
//! are one segment: a page that is in two of them is mapped twice.
//!
//! The descriptors of such a block wait in a socket for as long as it is shared. Linux lets as many of one user wait, over all of his
//! processes, as a process may have open (`ulimit -n`), unless that is privileged: beyond, a share is `Unwritable`.
//!
//! An importer sees the whole allocation, or the whole pages, that the memory lies in, with whatever else is there:
//! [`Message::visible_bytes`] says how much that is. The containers keep to what was shared; kernels that compute wrong addresses do
//! not, in either process. So what is nobody else's business is allocated apart, from `Cuda` itself, for example, and as a multiple
//! of 2 MiB: CUDA's manual says that a smaller allocation may lie with others in one block, which is lent whole.
//!
//! # In which order
//!
//! - What an importer does follows what the exporter had done with the memory when it shared it. Opening waits for that, on the host,
//!   because a device that waits for a process which is killed waits for ever. What the exporter does later, such as a second write to
//!   the memory, the processes tell each other themselves.
//! - The memory is freed when no process has it any more: [`Shared::end`] waits for that. An importer has it until its [`Imported`] is
//!   dropped, which waits for its work.
//!
//! # Who dies
//!
//! - A process that has died has nothing open any more, however it died.
//! - If the exporter dies, what importers have open stays theirs to read. What was not opened by then is
//!   [stale](crate::Error::is_stale).
//! - If an importer is killed, kernels that it had queued may run on for a moment, until the driver has taken the device from it. The
//!   exporter waits until that process is no more. If the two have numbers of their own for processes, as in containers, it cannot:
//!   then wait a little before the memory is used for something else.
//! - If that importer has forked, its children have the device as it had it, until they end or begin another program, and the driver goes
//!   on for them: the exporter waits for that, too, and [`Shared::importers`] counts the importer until then. Of children that an importer
//!   had forked before it opened its first memory, and that have the device as well, the exporter cannot tell which they are: it waits
//!   until no process of the user that is as young as the importer has an NVIDIA device open.
//! - An importer that begins another program in its own place, by `exec`, while it has something open, counts until that program ends.
//! - A child of a fork has no part in what its parent shares or has open: calls fail, and nothing is freed twice.
//!
//! # What is not possible
//!
//! Memory that is imported cannot be shared again, nor in the process that exported it: use the container there. Importer and exporter
//! are processes of one user on one machine, and see the same `/dev/shm`. Pinned memory, managed memory and memory of graphs cannot be
//! shared. A pool must not be put to sleep while blocks of it are shared: what wakes is other memory.

mod device_side;
mod import;
mod import_turn;
mod imported;
mod imported_memory;
mod imports;
pub mod lease;
mod loan;
mod message;
#[cfg(feature = "serde")]
mod message_serde;
mod open_segment;
#[cfg(target_os = "linux")]
mod parcel;
#[cfg(not(target_os = "linux"))]
#[path = "no_parcel.rs"]
mod parcel;
mod parked;
mod share_config;
mod shared;
mod shared_block;
mod status;

pub use crate::resource::{Export, ExportWay, Shareable};
pub use import::Import;
pub use imported::{Imported, ImportedMut};
pub use imported_memory::ImportedMemory;
pub use message::Message;
pub use share_config::ShareConfig;
pub use shared::{Container, Shared};
pub use shared_block::SharedBlock;
pub use status::{ShareStatus, status};

use crate::device::Device;
use parked::Parked;

/// Frees what was shared, and dropped while other processes had it, if they have it no longer. Returns how many containers that were.
#[allow(clippy::must_use_candidate, reason = "it is called for what it frees")]
pub fn sweep(device: &Device) -> usize {
    Parked::of(device).sweep(usize::MAX)
}
