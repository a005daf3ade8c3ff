//! A limit that processes share by its name.

mod config;
mod joining;
mod membership;
mod table;

pub use config::SharedConfig;
pub(super) use membership::Membership;
pub(in crate::adaptor) use table::SharedRefusal;
