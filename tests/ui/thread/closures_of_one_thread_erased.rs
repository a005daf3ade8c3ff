//! `Callback` is shared between threads if its closures may be, and only then can it be erased.

use std::rc::Rc;

use alluvion::source::Callback;
use alluvion::{AnyResource, DevicePtr, Error, Layout, Sim, StreamRef};

fn main() {
    let sim = Sim::new();
    let counted = Rc::new(());
    let allocate = move |layout: Layout, _: StreamRef<'_>| -> Result<u64, Error> {
        let _ = Rc::strong_count(&counted);
        Err(Error::out_of_memory(layout.bytes()))
    };
    let deallocate = |_: DevicePtr, _: Layout, _: StreamRef<'_>| {};
    let callback = unsafe { Callback::new(&sim.device(0), allocate, deallocate) };
    let _ = AnyResource::new(callback);
}
