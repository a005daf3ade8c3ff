//! Elements whose types are of other crates.

use alluvion::{DeviceVec, Sim};

#[cfg(feature = "half")]
#[test]
fn half_precision_floats_are_elements() {
    use half::{bf16, f16};

    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let mut halves = DeviceVec::filled(100, f16::from_f32(-0.0), &stream).unwrap();
    assert!(halves.get(99, &stream).unwrap().is_sign_negative());
    halves.set(3, f16::from_f32(1.5), &stream).unwrap();
    assert_eq!(
        halves.as_slice().cast::<u16>().unwrap().get(3, &stream).unwrap(),
        f16::from_f32(1.5).to_bits()
    );
    let brains = DeviceVec::from_slice(&[bf16::MAX, bf16::NAN], &stream).unwrap().to_vec(&stream).unwrap();
    assert!(brains[0] == bf16::MAX && brains[1].is_nan());
}

#[cfg(feature = "bytemuck")]
#[expect(unsafe_code, reason = "makes types `Pod`, as another crate does")]
mod pod {
    use alluvion::container::Plain;
    use alluvion::device_copy;
    use bytemuck::{Pod, TransparentWrapper, Zeroable};

    use super::*;

    /// Fields that nobody else may name, as in a type of another crate.
    mod another_crate {
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[repr(C)]
        pub(super) struct Vec2 {
            x: f32,
            y: f32,
        }

        impl Vec2 {
            pub(super) const fn new(x: f32, y: f32) -> Self {
                Self { x, y }
            }
        }
    }
    use another_crate::Vec2;

    // SAFETY: two words, any bits of which are a value.
    unsafe impl Zeroable for Vec2 {}
    // SAFETY: as above, without padding or pointers.
    unsafe impl Pod for Vec2 {}

    #[test]
    fn what_is_pod_is_an_element_in_a_wrapper() {
        let sim = Sim::new();
        let stream = sim.device(0).stream().unwrap();
        let corners = [Vec2::new(0.0, 1.0), Vec2::new(2.0, -0.0)];
        let vector = DeviceVec::from_slice(Plain::wrap_slice(&corners), &stream).unwrap();
        assert_eq!(Plain::peel_slice(&vector.to_vec(&stream).unwrap()), corners);
        assert_eq!(vector.as_slice().cast::<[f32; 2]>().unwrap().get(1, &stream).unwrap(), [2.0, -0.0]);
        assert_eq!(Plain::from(corners[0]).0, corners[0]);
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(transparent)]
    struct Angle(f32);

    // SAFETY: a word, any bits of which are a value.
    unsafe impl Zeroable for Angle {}
    // SAFETY: as above, without padding or pointers.
    unsafe impl Pod for Angle {}

    device_copy!(Angle: Pod);

    #[test]
    fn a_type_of_ones_own_that_is_pod_is_declared_by_that() {
        let sim = Sim::new();
        let stream = sim.device(0).stream().unwrap();
        assert_eq!(
            DeviceVec::filled(3, Angle(0.5), &stream).unwrap().to_vec(&stream).unwrap(),
            [Angle(0.5); 3]
        );
    }
}
