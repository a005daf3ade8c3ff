//! Handlers for running out of memory.
//!
//! A layer that finds no memory asks its handlers, in turn, before the request fails. Each sees the
//! [report](crate::error::OutOfMemory) and answers with a [`Relief`].

mod handlers;

pub(crate) use handlers::Handlers;

/// The answer of a [handler](crate::PoolConfig::on_out_of_memory).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relief {
    /// Memory was freed: try again.
    Freed,
    /// Nothing could be freed: ask the next handler.
    None,
}
