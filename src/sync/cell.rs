//! A cell whose accesses loom watches.

#[cfg(loom)]
use loom::cell::{MutPtr, UnsafeCell};
#[cfg(not(loom))]
use std::cell::UnsafeCell;

/// A cell whose content is reached through a [`CellAccess`].
///
/// Under loom an access that overlaps another, or that is not ordered after it, fails the model.
#[derive(Default)]
pub(super) struct Cell<T>(UnsafeCell<T>);

/// The address of the content of a cell. For loom, the access lasts as long as this value.
pub(super) struct CellAccess<T> {
    #[cfg(loom)]
    content: MutPtr<T>,
    #[cfg(not(loom))]
    content: *mut T,
}

impl<T> Cell<T> {
    #[inline]
    pub(super) fn access(&self) -> CellAccess<T> {
        #[cfg(loom)]
        let content = self.0.get_mut();
        #[cfg(not(loom))]
        let content = self.0.get();
        CellAccess { content }
    }
}

impl<T> CellAccess<T> {
    #[inline]
    pub(super) fn as_ptr(&self) -> *mut T {
        #[cfg(loom)]
        return self.content.with(|content| content);
        #[cfg(not(loom))]
        self.content
    }
}
