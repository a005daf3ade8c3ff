//! What is known of the block at this address?
//!
//! Whoever hands out blocks and takes them back keeps something under their addresses: a size, an owner, a call stack. All of them keep
//! it in [`Shards`], which threads seldom wait at, and most in a [`BlockTable`], one step of which is all that a call takes.

mod block_table;
mod shards;

pub(crate) use block_table::BlockTable;
pub(crate) use shards::Shards;
