//! Whether the crate holds a lock.

/// How many locks of this crate the calling thread holds; `None` in a build without debug assertions, which does not count.
///
/// Wherever code runs that is not the crate's, as a handler, a listener, a writer, a resource under a layer, a destructor or a
/// formatter, it is none: such code may call back, may panic, and may never return. Not counted is the lock of
/// [`ThreadSafe`](crate::adaptor::ThreadSafe), which is there to be held around a resource.
///
/// ```
/// use alluvion::source::Cuda;
/// use alluvion::testing::locks_held;
/// use alluvion::{Layout, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let (told, hears) = std::sync::mpsc::channel();
/// let tracking = Cuda::new(&sim.device(0)).tracking().on_leak(move |_| told.send(locks_held()).unwrap());
/// tracking.allocate_sync(Layout::from_bytes(100)?)?;
/// drop(tracking);
/// assert!(matches!(hears.recv().unwrap(), None | Some(0)));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[must_use]
pub fn locks_held() -> Option<usize> {
    crate::sync::held::locks_held()
}
