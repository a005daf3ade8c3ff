//! Who watches, who forbids?
//!
//! An adaptor is a layer over another resource: it counts, logs, limits or checks its calls, and hands out its
//! upstream's blocks. Layers nest as generics and are built from the inside out, each by the method with the name of
//! its file.
//!
//! | Layer | What it does | Its book |
//! |---|---|---|
//! | [`Stats`] | counts allocations and frees, by scope and by tag | [`StatsBook`] |
//! | [`Tracking`] | records the live blocks and their call sites; reports leaks | [`TrackingBook`] |
//! | [`Logging`] | logs each call, in RMM's format | [`Log`] |
//! | [`Limiting`] | limits the live bytes | [`Allowance`] |
//! | [`Budget`] | limits the live bytes of several resources together, or of several processes; limits within limits | [`Allowance`] |
//! | [`Guard`] | finds writes outside of blocks and after their free | [`GuardBook`] |
//! | [`Aligned`] | aligns blocks to more than the request says | [`AlignedBook`] |
//! | [`Fallback`] | asks a second resource when the first is out | [`FallbackBook`] |
//! | [`FailureCallback`] | asks a function before a request fails | [`FailureCallbackBook`] |
//! | [`Prefetch`] | managed memory migrates before it is used | [`PrefetchBook`] |
//! | [`ThreadSafe`] | lets threads share a resource that is not `Sync` | [`ThreadSafeBook`] |
//!
//! Layers that label allocations use the [`Tag`](crate::tag::Tag) of the calling thread:
//! [`with_tag`](crate::tag::with_tag).
//!
//! # The words, beside those of [`resource`](crate::resource)
//!
//! - The *book* of an adaptor is its own state: plain data, without a type parameter, which
//!   [`find`](crate::ResourceExt::find) finds from outside, through any handle.
//! - A book is *closed* over a block, which removes its entry, before the upstream gets the block back: from then on
//!   another thread may own the address.

mod aligned;
mod allowance;
mod budget;
mod failure_callback;
mod fallback;
mod guard;
mod limiting;
mod logging;
mod prefetch;
mod stats;
mod thread_safe;
mod tracking;
mod watched;

pub use aligned::{Aligned, AlignedBook, AlignedConfig};
pub use allowance::{Allowance, Crossing, Reservation, SharedConfig};
pub use budget::Budget;
pub use failure_callback::{FailureCallback, FailureCallbackBook};
pub use fallback::{Fallback, FallbackBook};
pub use guard::{Damage, Guard, GuardBook, GuardConfig, Trespass, TrespassKind};
pub use limiting::Limiting;
pub use logging::{Log, LogConfig, Logging};
pub use prefetch::{Prefetch, PrefetchBook};
pub use stats::{Counter, Counts, Scope, Stats, StatsBook, TagCounts};
pub use thread_safe::{ThreadSafe, ThreadSafeBook};
pub use tracking::{
    CallSite, CallStacks, CaptureCalls, Holding, Holdings, InterpretedCalls, Share, Tracking, TrackingBook,
};
pub use watched::{Watch, Watched, WatchedBlock, WatchedRequest};
