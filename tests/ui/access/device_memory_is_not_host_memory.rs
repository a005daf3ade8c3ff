//! `Cuda` is memory of the device: nobody may treat it as the host's.

use alluvion::HostAccessible;
use alluvion::source::Cuda;

fn reads_through_a_pointer<R: HostAccessible>() {}

fn main() {
    reads_through_a_pointer::<Cuda>();
}
