//! Who watches, who forbids?
//!
//! An adaptor is a layer over another resource: it counts, writes down, limits or checks what passes, and hands out its
//! upstream's blocks. Layers nest as generics and are built from the inside out, each by the method of
//! [`Resource`](crate::Resource) that is called as its file is.
//!
//! | Layer | What it does | Its book |
//! |---|---|---|
//! | [`Stats`] | counts what passes, by scope and by tag | [`Tally`] |
//! | [`Tracking`] | knows what is out, and who has it; reports leaks | [`Register`] |
//! | [`Logging`] | writes down what passes, in RMM's format | [`Log`] |
//! | [`Limiting`] | so much and no more | [`Allowance`] |
//! | [`Budget`] | within a limit that others share, limits within limits | [`Allowance`] |
//! | [`Guard`] | finds writes outside of blocks and after their free | [`Watch`] |
//! | [`Aligned`] | blocks begin at multiples of more than was asked for | [`Moves`] |
//! | [`Fallback`] | asks a second resource when the first is out | [`Spill`] |
//! | [`FailureCallback`] | asks a function before a request fails | [`Appeals`] |
//! | [`Prefetch`] | managed memory migrates before it is used | [`Hints`] |
//! | [`ThreadSafe`] | lets threads share a resource that is not `Sync` | [`Reentries`] |
//!
//! All that label what they see do so with the [`Tag`](crate::tag::Tag) of the calling thread: [`with_tag`](crate::tag::with_tag).
//!
//! # The words, beside those of [`resource`](crate::resource)
//!
//! - The *book* of an adaptor is what it knows beside its upstream: plain data, without a type parameter, which
//!   [`find`](crate::Resource::find) finds from outside, through any handle.
//! - A book is *closed* over a block before the upstream gets the block back: from then on another thread may own the
//!   address.

mod aligned;
mod allowance;
mod budget;
mod face_of_allowance;
mod failure_callback;
mod fallback;
mod fence;
mod guard;
mod guard_config;
mod hints;
mod limiting;
mod log;
mod logging;
mod moves;
mod prefetch;
mod register;
mod staging;
mod stats;
mod tally;
mod thread_safe;
mod tracking;
mod trespass;
mod watch;

pub use aligned::{Aligned, AlignedConfig};
pub use allowance::{Allowance, Crossing, Reservation};
pub use budget::Budget;
pub use failure_callback::{Appeals, FailureCallback};
pub use fallback::{Fallback, Spill};
pub use guard::Guard;
pub use guard_config::GuardConfig;
pub use hints::Hints;
pub use limiting::Limiting;
pub use log::{Log, LogConfig};
pub use logging::Logging;
pub use moves::Moves;
pub use prefetch::Prefetch;
pub use register::{CallSite, CallStacks, Holding, Holdings, Register, Share};
pub use stats::Stats;
pub use tally::{Counter, Counts, Scope, TagCounts, Tally};
pub use thread_safe::{Reentries, ThreadSafe};
pub use tracking::Tracking;
pub use trespass::{Damage, Trespass, TrespassKind};
pub use watch::Watch;

#[doc(hidden)]
pub use crate::tag::{Tag, with_tag};
