//! How is it doing now?
//!
//! [`Metrics`] are the figures of stacks of resources, in the text format that Prometheus reads: whatever layer of a stack
//! keeps a book has its figures on the page. A program serves the page; nothing here opens a port.
//!
//! | Layer | Figures |
//! |---|---|
//! | [`Pool`](crate::Pool), [`Arena`](crate::Arena), [`FixedSize`](crate::FixedSize) | those of [`Status`](crate::suballoc::Status) |
//! | [`Limiting`](crate::adaptor::Limiting), [`Budget`](crate::adaptor::Budget) | those of [`Allowance`](crate::adaptor::Allowance), and of all above it, labelled `allowance` |
//! | [`Stats`](crate::adaptor::Stats) | those of [`Tally`](crate::adaptor::Tally), and what each `tag` has allocated |
//! | [`Tracking`](crate::adaptor::Tracking) | what is out by its [`Register`](crate::adaptor::Register), also of each `tag` |
//! | [`Logging`](crate::adaptor::Logging) | the rows of its [`Log`](crate::adaptor::Log) |
//! | [`Guard`](crate::adaptor::Guard) | what its [`Watch`](crate::adaptor::Watch) has found and looked at |
//! | [`Fallback`](crate::adaptor::Fallback), [`FailureCallback`](crate::adaptor::FailureCallback), [`Prefetch`](crate::adaptor::Prefetch), [`Aligned`](crate::adaptor::Aligned), [`ThreadSafe`](crate::adaptor::ThreadSafe) | their counts |
//! | every stack | `alluvion_memory_free_bytes`, `alluvion_memory_total_bytes`; `alluvion_layer` is 1 for each layer |
//!
//! Each has the labels `resource`, the name that the program gave the stack; `device`; `depth`, 0 for the outermost layer;
//! and `layer`, what the layer is called.

#![forbid(unsafe_code)]

mod books;
mod family;
#[expect(clippy::module_inception, reason = "file = type")]
mod metrics;

pub use family::{Kind, Value};
pub use metrics::Metrics;
