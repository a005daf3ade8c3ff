//! `Plain<T>`: an element of a foreign type.

#![expect(unsafe_code, reason = "carries the promise of `Pod` over")]

use bytemuck::{Pod, TransparentWrapper};

use super::device_copy::DeviceCopy;

/// A value of a type that is `bytemuck::Pod`, as an element. For types of other crates; one of your own is declared by
/// [`device_copy!`](crate::device_copy).
///
/// It is a wrapper, because an implementation of [`DeviceCopy`] for all that is `Pod` would stand in the way of those for single
/// types. It is the value itself in memory: `bytemuck::TransparentWrapper` turns whole slices into slices of it and back, without
/// a copy.
///
/// ```
/// use alluvion::container::Plain;
/// use alluvion::{DeviceVec, Sim};
/// use bytemuck::TransparentWrapper;
///
/// // A type of another crate, as far as this one knows.
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// #[repr(C)]
/// struct Vec2 {
///     x: f32,
///     y: f32,
/// }
/// # // SAFETY: two words, any bits of which are a value.
/// unsafe impl bytemuck::Zeroable for Vec2 {}
/// # // SAFETY: as above, without padding.
/// unsafe impl bytemuck::Pod for Vec2 {}
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let corners = [Vec2 { x: 0.0, y: 0.0 }, Vec2 { x: 1.0, y: 2.0 }];
/// let vector = DeviceVec::from_slice(Plain::wrap_slice(&corners), &stream)?;
/// assert_eq!(vector.back(&stream)?.0, corners[1]);
/// assert_eq!(Plain::peel_slice(&vector.to_vec(&stream)?), corners);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Plain<T>(
    /// The value.
    pub T,
);

// SAFETY: `Pod` demands of `T`, which this is `repr(transparent)` over, what `DeviceCopy` does: any bits are a value, there is no
// padding, and there are no pointers in it.
unsafe impl<T: Pod + Send + Sync> DeviceCopy for Plain<T> {}

// SAFETY: `repr(transparent)`, and the value is the one field.
unsafe impl<T> TransparentWrapper<T> for Plain<T> {}

impl<T> From<T> for Plain<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}
