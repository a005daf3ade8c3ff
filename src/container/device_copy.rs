//! `DeviceCopy`: what may be carried to a device and back.

#![expect(unsafe_code, reason = "declares what an element must be, and looks at its bytes")]

/// Plain data, of which every pattern of bits is a value: what a container can hold.
///
/// Memory of a device that nobody has written reads as arbitrary bytes, and a kernel may write anything. An element
/// that was copied back from there is a value all the same, so that reading needs no `unsafe`, not even from a
/// container that was made by [`DeviceVec::uninit`](crate::DeviceVec::uninit). Hence `bool`, `char`, references and
/// most enums are no elements: store a `u8`, a `u32`, an index.
///
/// Implemented for the integers, the floats and arrays of these; with the feature `half` for its `f16` and `bf16`. A struct of
/// your own is declared by [`device_copy!`](crate::device_copy), which needs no `unsafe`. A type of somebody else's that is
/// `bytemuck::Pod` is an element inside of a `Plain`, with the feature `bytemuck`. An array of length 0 has no size; a container
/// of it does not compile.
///
/// # Examples
///
/// ```
/// use alluvion::{DeviceVec, Sim};
///
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// #[repr(C)]
/// struct Particle {
///     position: [f32; 3],
///     kind: u32,
/// }
///
/// alluvion::device_copy!(Particle { position, kind });
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
    label = "not known to be plain data of which any bits are a value",
    note = "a struct of your own: `#[derive(Clone, Copy)] #[repr(C)]`, and below it `alluvion::device_copy!(Name {{ field, other }});` with all fields",
    note = "a number stands in for what has invalid bits: a `u8` for a `bool`, a `u32` for a `char`, an index for a reference",
    note = "a type of another crate: the feature `half` has `f16` and `bf16`, the feature `bytemuck` has `Plain<T>` for what is `Pod`"
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

#[cfg(feature = "half")]
mod half_floats {
    use super::DeviceCopy;

    // SAFETY: `repr(transparent)` over a `u16`, and any bits are a number, an infinity or no number.
    unsafe impl DeviceCopy for half::f16 {}
    // SAFETY: as for `f16`.
    unsafe impl DeviceCopy for half::bf16 {}
}

// SAFETY: an array is its elements one after the other, with nothing between or after them.
unsafe impl<T: DeviceCopy, const N: usize> DeviceCopy for [T; N] {}

// SAFETY: `repr(transparent)` over the number.
unsafe impl<T: DeviceCopy> DeviceCopy for core::num::Wrapping<T> {}

/// Declares that a struct of your own is plain data, [`DeviceCopy`], and has the compiler prove it.
///
/// All fields are named, those of a tuple struct by their numbers. The compiler checks that each is plain data, that none is left
/// out, that there is no padding between or behind them, and that they lie in memory in the order in which they are named,
/// which `#[repr(C)]` makes sure of: it is the order that a kernel expects.
///
/// ```
/// # #![forbid(unsafe_code)]
/// use alluvion::{DeviceVec, Sim, device_copy};
///
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// #[repr(C)]
/// struct Particle {
///     position: [f32; 3],
///     kind: u32,
/// }
///
/// device_copy!(Particle { position, kind });
///
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// #[repr(C)]
/// struct Pair(Particle, Particle);
///
/// device_copy!(Pair { 0, 1 });
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let pairs = DeviceVec::<Pair>::zeroed(3, &stream)?;
/// assert_eq!(pairs.get(2, &stream)?.1.position, [0.0; 3]);
/// # Ok::<(), alluvion::Error>(())
/// ```
///
/// Padding is an error of the compiler; so is a field that is not plain data, and one that is left out. A generic struct is not
/// accepted: declare each of its forms that you use, by an alias.
///
/// ```compile_fail,E0080
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Padded {
///     small: u8,
///     large: u32,
/// }
///
/// alluvion::device_copy!(Padded { small, large });
/// ```
///
/// With the feature `bytemuck`, a type that is `Pod` is declared by that alone: `device_copy!(Matrix: Pod);`.
#[macro_export]
macro_rules! device_copy {
    ($name:ident { $($field:tt,)* .. }) => {
        ::core::compile_error!("`device_copy!` takes all fields, without `..`: a field that is not named would not be looked at");
    };
    ($name:ident { $($field:tt),+ $(,)? }) => {
        const _: () = {
            // A struct is made of all its fields: the compiler names the one that is left out.
            #[allow(dead_code, reason = "only the compiler reads it")]
            fn every_field_is_named(value: $name) -> $name {
                $name { $($field: value.$field),+ }
            }

            let bytes = 0 $(+ $crate::container::bytes_of_field(|value: $name| value.$field))+;
            ::core::assert!(
                ::core::mem::size_of::<$name>() == bytes,
                ::core::concat!(
                    "`", ::core::stringify!($name), "` has padding, which is no data: ",
                    "order the fields from large to small, or name the gap as a field of `u8`s"
                )
            );
            let places = [$(::core::mem::offset_of!($name, $field)),+];
            let mut at = 1;
            while at < places.len() {
                ::core::assert!(
                    places[at - 1] <= places[at],
                    ::core::concat!(
                        "the fields of `", ::core::stringify!($name), "` lie in another order than they are named in: ",
                        "write `#[repr(C)]`, and name them as they are declared"
                    )
                );
                at += 1;
            }
        };

        // SAFETY:
        // - any bits are a value: each field is `DeviceCopy` by `bytes_of_field`, whose type parameter is the field's type,
        //   because nothing is expected of what the closure returns; every field is among them, because the struct is made of
        //   them without `..`; and a struct of which each field is a value is a value. It is a struct: an enum has no fields,
        //   and to read the field of a union is unsafe, here as anywhere.
        // - there is no padding: fields do not overlap, have none inside, and take all bytes together, which is asserted.
        // - it holds no pointer, because no field does.
        unsafe impl $crate::DeviceCopy for $name {}
    };
    ($name:ident: Pod) => {
        $crate::__device_copy_of_pod!($name);
    };
    ($($anything:tt)*) => {
        ::core::compile_error!(
            "`device_copy!` takes `Name { field, other }` with all fields, `Name { 0, 1 }` for a tuple struct, or `Name: Pod`; a generic struct is declared by an alias of each form that is used"
        );
    };
}

/// What `device_copy!(Name: Pod)` becomes.
#[cfg(feature = "bytemuck")]
#[doc(hidden)]
#[macro_export]
macro_rules! __device_copy_of_pod {
    ($name:ident) => {
        const _: () = $crate::container::require_pod::<$name>();

        // SAFETY: the line above compiles for `Pod` alone, which demands what `DeviceCopy` does: any bits are a value, there is
        // no padding, and there are no pointers in it.
        unsafe impl $crate::DeviceCopy for $name {}
    };
}

/// What `device_copy!(Name: Pod)` becomes.
#[cfg(not(feature = "bytemuck"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __device_copy_of_pod {
    ($name:ident) => {
        ::core::compile_error!("`device_copy!(Name: Pod)` needs the feature `bytemuck` of alluvion; without it, name the fields: `device_copy!(Name { field, other })`");
    };
}

/// Compiles for what is `Pod`: for [`device_copy!`](crate::device_copy).
#[cfg(feature = "bytemuck")]
#[doc(hidden)]
pub const fn require_pod<T: bytemuck::Pod>() {}

/// The bytes of a field: for [`device_copy!`](crate::device_copy), which has them added up.
#[doc(hidden)]
#[must_use]
pub const fn bytes_of_field<S, T: DeviceCopy>(_: fn(S) -> T) -> usize {
    size_of::<T>()
}

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
