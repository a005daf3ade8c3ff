//! What if a program was written for the first RMM?
//!
//! Its functions in C, by their names. The headers `alluvion/rmm_legacy.h` and `alluvion/rmm_legacy_cdef.h` declare and describe
//! them, and are written by hand; `docs/capi/rmm-legacy.md` is the page for users.
//!
//! | file | question |
//! |---|---|
//! | `answer` | What does a call answer? |
//! | `options` | What did the program choose? |
//! | `log` | What was called, when, and from where? |
//! | `session` | Where do blocks come from between an initialize and a finalize? |
//! | `state` | Which session is it now? |
//! | `calls`, `log_calls` | The functions. |
//!
//! **Locks.** The state's, the log's and those of a ledger are held for plain data alone. Resources and drivers are called, files
//! written and sessions dropped under none.

mod answer;
mod calls;
mod log;
mod log_calls;
mod options;
mod session;
mod state;

pub use answer::{RmmError, rmmGetErrorString};
pub use calls::*;
pub use log_calls::*;
pub use options::RmmOptions;
