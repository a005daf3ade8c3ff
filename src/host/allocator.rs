//! The versions of `Allocator`, over one body.

#![expect(unsafe_code, reason = "implements unsafe traits over an unsafe one")]

use core::alloc::Layout;
use core::ptr::NonNull;

use super::blocks::Blocks;
use super::{NewDelete, OnHost, PinnedAlloc};
use crate::resource::HostAccessible;

/// Implements one version of `Allocator`, every method of it: the provided ones of the trait would do the same in more
/// steps.
macro_rules! implement_allocator {
    ($($api:ident)::+ for {$($generics:tt)*} $type:ty) => {
        // SAFETY: the contract is that of `Blocks`, which the type implements, word for word.
        unsafe impl<$($generics)*> $($api)::+::Allocator for $type {
            fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, $($api)::+::AllocError> {
                self.allocate_block(layout).ok_or($($api)::+::AllocError)
            }

            fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, $($api)::+::AllocError> {
                self.allocate_zeroed_block(layout).ok_or($($api)::+::AllocError)
            }

            unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
                // SAFETY: the caller's promises; only the layout of the allocation fits a block, which has no byte more.
                unsafe { self.deallocate_block(block, layout) }
            }

            unsafe fn grow(
                &self,
                block: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, $($api)::+::AllocError> {
                // SAFETY: as in `deallocate`.
                unsafe { self.resize_block(block, old, new) }.ok_or($($api)::+::AllocError)
            }

            unsafe fn grow_zeroed(
                &self,
                block: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, $($api)::+::AllocError> {
                // SAFETY: as in `deallocate`, and that `new` is not smaller.
                unsafe { self.grow_zeroed_block(block, old, new) }.ok_or($($api)::+::AllocError)
            }

            unsafe fn shrink(
                &self,
                block: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, $($api)::+::AllocError> {
                // SAFETY: as in `deallocate`.
                unsafe { self.resize_block(block, old, new) }.ok_or($($api)::+::AllocError)
            }
        }
    };
}

/// Implements every version that is asked for.
macro_rules! implement_allocators {
    ($({$($generics:tt)*} $type:ty),+ $(,)?) => {$(
        implement_allocator!(allocator_api2::alloc for {$($generics)*} $type);
        #[cfg(feature = "allocator-api2-04")]
        implement_allocator!(allocator_api2_04::alloc for {$($generics)*} $type);
        #[cfg(feature = "nightly")]
        implement_allocator!(std::alloc for {$($generics)*} $type);
    )+};
}

implement_allocators!({R: HostAccessible} OnHost<R>, {} PinnedAlloc, {} NewDelete);
