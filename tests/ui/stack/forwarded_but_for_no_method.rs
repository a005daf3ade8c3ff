//! "After `except` come the methods that are written by hand": a name that is none is named.

use alluvion::Resource;

struct Mine<U> {
    upstream: U,
}

// SAFETY: the blocks are the upstream's, whose id it has.
unsafe impl<U: Resource> Resource for Mine<U> {
    alluvion::forward_resource!(upstream, except trimm);
}

fn main() {}
