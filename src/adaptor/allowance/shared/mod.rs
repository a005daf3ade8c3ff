//! A limit that processes share by its name.

mod config;
#[cfg(all(target_os = "linux", not(loom)))]
mod file;
#[cfg(not(all(target_os = "linux", not(loom))))]
#[path = "no_file.rs"]
mod file;
mod joining;
mod membership;
mod table;

pub use config::SharedConfig;
pub(super) use membership::Membership;
pub(in crate::adaptor) use table::SharedRefusal;
