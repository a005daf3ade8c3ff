//! `DeviceCopy`: what may be carried to a device and back.

#![expect(unsafe_code, reason = "declares what an element must be, and looks at its bytes")]

/// Plain data, of which every pattern of bits is a value: what a container can hold.
///
/// Memory of a device that nobody has written reads as arbitrary bytes, and a kernel may write anything. An element
/// that was copied back from there is a value all the same, so that reading needs no `unsafe`, not even from a
/// container that was made by [`DeviceVec::uninit`](crate::DeviceVec::uninit). Hence `bool`, `char`, references and
/// most enums are no elements: store a `u8`, a `u32`, an index.
///
/// Implemented for the integers, the floats and arrays of these. An array of length 0 has no size; a container of it
/// does not compile.
///
/// # Examples
///
/// ```
/// use alluvion::{DeviceCopy, DeviceVec, Sim};
///
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// #[repr(C)]
/// struct Particle {
///     position: [f32; 3],
///     kind: u32,
/// }
///
/// // SAFETY: four words without padding between them, each of which may have any bits; no pointers.
/// unsafe impl DeviceCopy for Particle {}
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let particle = Particle { position: [1.0, 2.0, 3.0], kind: 7 };
/// let particles = DeviceVec::from_slice(&[particle; 10], &stream)?;
/// assert_eq!(particles.get(9, &stream)?, particle);
/// # Ok::<(), alluvion::Error>(())
/// ```
///
/// # Safety
///
/// - Every pattern of `size_of::<Self>()` initialised bytes is a valid value.
/// - There is no padding: every byte of every value is initialised. Then a value can be read as bytes, and what comes
///   back is what went.
/// - It holds no pointer or reference; an address made of other bits would be no place to go.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element on a device",
    label = "not plain data of which any bits are a value",
    note = "store a number in its place: a `u8` for a `bool`, a `u32` for a `char`, an index for a reference"
)]
pub unsafe trait DeviceCopy: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($name:ty)+) => {
        $(
            // SAFETY: a number of the machine: any bits are a value, and all of its bytes are bits of it.
            unsafe impl DeviceCopy for $name {}
        )+
    };
}

plain!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

// SAFETY: an array is its elements one after the other, with nothing between or after them.
unsafe impl<T: DeviceCopy, const N: usize> DeviceCopy for [T; N] {}

// SAFETY: `repr(transparent)` over the number.
unsafe impl<T: DeviceCopy> DeviceCopy for core::num::Wrapping<T> {}

/// The bytes of a value, in the order of memory.
pub(super) fn bytes_of<T: DeviceCopy>(value: &T) -> &[u8] {
    // SAFETY:
    // - the range is the value itself, which the borrow keeps;
    // - every byte of it is initialised, because `T` has no padding;
    // - nobody writes to it while it is borrowed: a `Copy` type has no interior mutability.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast(), size_of::<T>()) }
}

static_assertions::assert_impl_all!([[f32; 4]; 4]: DeviceCopy);
static_assertions::assert_not_impl_any!(bool: DeviceCopy);
static_assertions::assert_not_impl_any!(char: DeviceCopy);
static_assertions::assert_not_impl_any!(&'static u8: DeviceCopy);
static_assertions::assert_not_impl_any!(*const u8: DeviceCopy);
static_assertions::assert_not_impl_any!(core::num::NonZero<u8>: DeviceCopy);
static_assertions::assert_not_impl_any!((u8, u32): DeviceCopy);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_value_keep_its_sign() {
        assert_eq!(bytes_of(&-0.0_f32), (0x8000_0000_u32).to_ne_bytes());
        assert_eq!(bytes_of(&[1_u16, 2]).len(), 4);
    }
}
