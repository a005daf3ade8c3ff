//! An erased handle promises access to the device and no more.

use alluvion::{AnyResource, HostAccessible};

fn reads_through_a_pointer<R: HostAccessible>() {}

fn main() {
    reads_through_a_pointer::<AnyResource>();
}
