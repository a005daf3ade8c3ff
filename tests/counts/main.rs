//! What operations cost, counted: bytes and calls of the heap, calls of the driver. The heap of this program counts for each
//! thread.

#[path = "../support/raw_block.rs"]
mod raw_block;

mod clocks;
mod heap;
mod nil;
mod pools;
mod tags;
