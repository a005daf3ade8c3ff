//! `HostBuffer`: memory of the host that a transfer can own.

#![expect(unsafe_code, reason = "declares what a transfer needs from memory of the host")]

use allocator_api2::alloc::Allocator;

use super::device_copy::DeviceCopy;

/// An owned buffer of the host whose elements stay where they are when it is moved: what a
/// [`Transfer`](crate::Transfer) can own.
///
/// Implemented for `Vec` and boxed slices, those of the standard library and those of `allocator-api2` with any
/// allocator. Pinned memory is copied by the device at full speed and while the host goes on; from ordinary memory
/// the driver stages, and may wait.
///
/// # Safety
///
/// - [`as_ptr`](Self::as_ptr) and [`as_mut_ptr`](Self::as_mut_ptr) give one address, valid for reads and writes of
///   [`len`](Self::len) initialised elements.
/// - Moving the buffer does not move the elements. While nobody calls it and it is not dropped, nobody touches them,
///   and they stay valid: for ever, if it is forgotten.
#[diagnostic::on_unimplemented(
    message = "a transfer cannot own `{Self}`",
    label = "not an owned buffer of elements",
    note = "a transfer that is forgotten keeps its buffer for ever: pass a `Vec` or a boxed slice, or borrow in a `Stream::scope`"
)]
pub unsafe trait HostBuffer: 'static {
    /// The type of its elements.
    type Item: DeviceCopy;

    /// How many elements there are.
    fn len(&self) -> usize;

    /// Returns `true` if there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of the first element.
    fn as_ptr(&self) -> *const Self::Item;

    /// The address of the first element, to write there.
    fn as_mut_ptr(&mut self) -> *mut Self::Item;
}

macro_rules! owned_slice {
    () => {
        type Item = T;

        fn len(&self) -> usize {
            (**self).len()
        }

        fn as_ptr(&self) -> *const T {
            (**self).as_ptr()
        }

        fn as_mut_ptr(&mut self) -> *mut T {
            (**self).as_mut_ptr()
        }
    };
}

// SAFETY: the elements are on the heap, which a move of the vector leaves alone, and the vector owns them alone.
unsafe impl<T: DeviceCopy> HostBuffer for Vec<T> {
    owned_slice!();
}

// SAFETY: as for `Vec`.
unsafe impl<T: DeviceCopy> HostBuffer for Box<[T]> {
    owned_slice!();
}

// SAFETY: as for `Vec`; an allocator's memory stays valid when the allocator is moved, and while it is not dropped.
// It is `'static`, so that a forgotten one is not outlived by what it borrows.
unsafe impl<T: DeviceCopy, A: Allocator + 'static> HostBuffer for allocator_api2::vec::Vec<T, A> {
    owned_slice!();
}

// SAFETY: as for `allocator_api2::vec::Vec`.
unsafe impl<T: DeviceCopy, A: Allocator + 'static> HostBuffer for allocator_api2::boxed::Box<[T], A> {
    owned_slice!();
}

// SAFETY: as for the vectors of 0.2.
#[cfg(feature = "allocator-api2-04")]
unsafe impl<T: DeviceCopy, A: allocator_api2_04::alloc::Allocator + 'static> HostBuffer
    for allocator_api2_04::vec::Vec<T, A>
{
    owned_slice!();
}

// SAFETY: as for the vectors of 0.2.
#[cfg(feature = "allocator-api2-04")]
unsafe impl<T: DeviceCopy, A: allocator_api2_04::alloc::Allocator + 'static> HostBuffer
    for allocator_api2_04::boxed::Box<[T], A>
{
    owned_slice!();
}
