//! A layer may be used by two threads at once if what is under it may: a limit over closures with a `Cell` may not, and
//! `ThreadSafe` makes it so.

use std::cell::Cell;

use alluvion::adaptor::{Limiting, ThreadSafe};

/// What a thread that shares it asks for.
fn shared<R: Sync>() {}

fn main() {
    shared::<Limiting<ThreadSafe<Cell<u64>>>>();
    shared::<Limiting<Cell<u64>>>();
}
