//! `OnHost`: "only handles can be cloned here, because a clone must be the same allocator".

use alluvion::OnHost;
use alluvion::source::Managed;

fn clones<T: Clone>() {}

fn main() {
    clones::<OnHost<&Managed>>();
    clones::<OnHost<Box<Managed>>>();
}
