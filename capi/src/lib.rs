//! The C ABI of Alluvion: `libcalluvion`, and the header `alluvion.h`.
//!
//! The rooms, from the ground up; each names those above it in this list and no other:
//!
//! | room | question |
//! |---|---|
//! | `status` | What does a call answer? |
//! | `failure` | Which failure does a thread remember? |
//! | `boundary` | What may cross between C and Rust? |
//! | `record` | How do structs grow without breaking programs? |
//! | `text` | How do strings come in and go out? |
//! | `last_error` | What went wrong last on this thread? |
//! | `version` | Do the header and the library belong together? |
//! | `origin` | Which process made this? |
//! | `handle` | Who holds what C has a pointer to? |
//! | `machine` | Which machine and which device does a number mean? |
//! | `stream` | Which stream does a call mean? |
//! | `simulated` | What would a GPU have done? |
//! | `resource` | What is a resource for C? |
//! | `allocate` | How is memory asked for and given back? |
//! | `many` | How are many blocks asked for and given back at once? |
//! | `ledger` | How is memory freed without its size? |
//! | `transfer` | How does data move? |
//! | `saved` | What outlives its process? |
//! | `source` | What if the memory, or the help in need, comes from C? |
//! | `share` | What do other processes use? |
//! | `current` | What does a device allocate from? |
//! | `figures` | How is it doing now? |
//! | `allowance` | What of a limit is set aside, and who hears that it is nearly used up? |
//! | `violation` | What has a guard found? |
//! | `tag` | What is an allocation for? |
//! | `segments` | Which memory stays what it is, and who hears of it? |
//! | `sleep` | What of a stack sleeps, and until when? |
//! | `graph_memory` | What of a stack belongs to a captured graph? |
//! | `plugin` | Who loads functions by their names? |
//! | `legacy` | What if a program was written for the first RMM? |
//!
//! **Nothing unwinds.** The body of each function runs inside `boundary::call` or `boundary::contained`.
//!
//! **Pointers.** A pointer to a handle is null or came from a function of this library and was not released; a pointer to a value
//! is null or valid for what the function does with it. A function whose text does not allow null answers `ALV_INVALID_ARGUMENT`.
//! This is the contract of every `unsafe` function here.

#![allow(
    clippy::disallowed_types,
    clippy::missing_safety_doc,
    reason = "no model of the scheduler covers this crate; the contract of pointers is said once, above"
)]

mod allocate;
mod allowance;
mod boundary;
mod current;
mod failure;
mod figures;
mod graph_memory;
mod handle;
mod last_error;
mod ledger;
mod legacy;
mod machine;
mod many;
mod origin;
mod plugin;
mod record;
mod resource;
mod saved;
mod segments;
mod share;
mod simulated;
mod sleep;
mod source;
mod status;
mod stream;
mod tag;
mod text;
mod transfer;
mod version;
mod violation;

pub use allocate::*;
pub use allowance::*;
pub use current::*;
pub use figures::*;
pub use graph_memory::*;
pub use last_error::*;
pub use ledger::*;
pub use legacy::*;
pub use machine::*;
pub use many::*;
pub use plugin::*;
pub use resource::*;
pub use saved::*;
pub use segments::*;
pub use share::*;
pub use simulated::*;
pub use sleep::*;
pub use source::*;
pub use status::*;
pub use stream::*;
pub use tag::*;
pub use text::Write;
pub use transfer::*;
pub use version::*;
pub use violation::*;
