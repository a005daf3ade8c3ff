//! `Imported` is "to be read": what an importer may write is an `ImportedMut`. And it is not shared again.

use alluvion::Stream;
use alluvion::share::{Imported, Shared};

fn write(mut imported: Imported<u32>, stream: &Stream) {
    imported.fill(1, stream).unwrap();
}

fn share(imported: Imported<u32>, stream: &Stream) {
    let _ = Shared::new(imported, stream);
}

fn main() {}
