//! Who is asked when memory runs out?
//!
//! A layer that has no memory to give asks its handlers, in turn, before the request fails. Each sees the
//! [report](crate::error::OutOfMemory) and answers with a [`Relief`].

mod handlers;

pub(crate) use handlers::Handlers;

/// What a [handler](crate::PoolConfig::on_out_of_memory) has done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relief {
    /// Memory was freed: try again.
    Freed,
    /// Nothing could be freed: ask the next handler.
    None,
}
