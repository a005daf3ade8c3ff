//! What containers promise, clause by clause, on any machine.
//!
//! `clauses!` makes a test of each; the simulator and the GPU run the same functions.

#![allow(dead_code, reason = "each machine's tests use this module on their own")]
#![expect(
    unsafe_code,
    reason = "implements the contract of resources, and calls the driver beside the containers"
)]

pub(crate) mod rig;

mod streams;
mod transfers;
mod views;

pub(crate) use streams::*;
pub(crate) use transfers::*;
pub(crate) use views::*;

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use alluvion::source::Cuda;
use alluvion::{
    AnyResource, Device, DeviceBuffer, DeviceCopy, DeviceScalar, DeviceVec, Error, Layout, Resource, Stream,
};
use rig::{Counting, OneBlock, stall};

/// Makes a test of each clause. `$machine` finds or makes a device and hands it to the clause.
macro_rules! clauses {
    ($machine:path) => {
        $crate::container_contract::clauses! { $machine:
            containers_are_made_of_values
            arbitrary_contents_may_be_read
            nothing_reaches_the_resource_for_no_elements
            elements_are_set_and_read_one_by_one
            a_negative_zero_stays_negative
            what_is_out_of_range_is_an_error
            lengths_of_copies_are_equal
            a_vector_grows_and_keeps_its_elements
            growing_step_by_step_moves_rarely
            room_is_exact_where_it_is_asked_for
            sizes_that_cannot_be_are_refused
            alignment_is_the_resources_affair
            parts_are_containers_too
            structs_of_plain_data_are_elements
            bytes_are_seen_as_elements
            views_that_do_not_fit_are_refused
            slices_come_in_parts
            any_name_of_a_stream_will_do
            copies_stay_on_the_device
            a_clone_is_another_block
            a_scalar_is_a_value
            parts_can_be_put_together_again
            bytes_are_elements_if_they_fit
            a_new_home_follows_the_old_one
            a_second_stream_follows_the_first
            reads_of_two_streams_come_before_a_write
            a_container_is_dropped_behind_its_uses
            a_leaked_guard_delays_and_no_more
            scenario_2_streams_end_before_their_containers
            scenario_13_dropped_on_a_thread_without_a_context
            scenario_14_pinned_memory_dropped_after_an_asynchronous_upload
            a_transfer_owns_its_buffer
            a_transfer_that_is_not_begun_loses_nothing
            a_forgotten_transfer_leaks_its_buffer
            a_scope_borrows_until_it_has_waited
            a_scope_waits_when_it_panics
            threads_read_one_vector_at_once
            halves_are_written_by_two_threads_at_once
            a_threads_own_stream_may_be_a_home
        }
    };
    ($machine:path: $($clause:ident)+) => {
        $(
            #[test]
            fn $clause() {
                $machine($crate::container_contract::$clause);
            }
        )+
    };
}
pub(crate) use clauses;

type Outcome = Result<(), Error>;

/// More than the driver copies to its own buffers before it returns.
const LARGE: usize = 1 << 18;

fn two_streams(device: &Device) -> Result<(Stream, Stream), Error> {
    Ok((device.stream()?, device.stream()?))
}

fn pattern(len: usize) -> Vec<u32> {
    (0..len as u32).map(|index| index.wrapping_mul(0x9e37_79b9) ^ 0x5a5a).collect()
}

fn all_equal<T: DeviceCopy + PartialEq>(
    vector: &DeviceVec<T>,
    value: T,
    stream: &Stream,
) -> Result<bool, Error> {
    Ok(vector.to_vec(stream.as_ref())?.iter().all(|element| *element == value))
}

pub(crate) fn containers_are_made_of_values(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let s = stream.as_ref();
    assert_eq!(DeviceVec::<u64>::zeroed(1000, s)?.to_vec(s)?, [0; 1000]);
    // One fill each, of 1, 2 and 4 bytes.
    assert!(all_equal(&DeviceVec::filled(1001, 0xab_u8, s)?, 0xab, &stream)?);
    assert!(all_equal(&DeviceVec::filled(1001, 0xabcd_u16, s)?, 0xabcd, &stream)?);
    assert!(all_equal(&DeviceVec::filled(1001, 1.5_f32, s)?, 1.5, &stream)?);
    // A seed and doublings: more than one page, and not a power of two of them.
    assert!(all_equal(&DeviceVec::filled(10_001, 0.1_f64, s)?, 0.1, &stream)?);
    assert!(all_equal(&DeviceVec::filled(5_001, [1_u32, 2, 3], s)?, [1, 2, 3], &stream)?);
    assert!(all_equal(&DeviceVec::filled(3, [7_u64; 1000], s)?, [7; 1000], &stream)?);
    let values = pattern(70_000);
    let vector = DeviceVec::from_slice(&values, s)?;
    assert_eq!((vector.len(), vector.capacity()), (70_000, 70_000));
    assert_eq!(vector.to_vec(s)?, values);
    assert_eq!(DeviceVec::from_device(vector.slice(5..9)?, s)?.to_vec(s)?, values[5..9]);
    let mut back = vec![0; 70_000];
    vector.copy_to_slice(&mut back, s)?;
    assert_eq!(back, values);
    assert_eq!(DeviceBuffer::zeroed(77, s)?.to_vec(s)?, [0; 77]);
    let bytes = DeviceBuffer::from_slice(b"four", s)?;
    assert_eq!(DeviceBuffer::from_device(bytes.as_slice(), s)?.to_vec(s)?, b"four");
    Ok(())
}

pub(crate) fn arbitrary_contents_may_be_read(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let s = stream.as_ref();
    assert_eq!(DeviceVec::<f32>::uninit(100, s)?.to_vec(s)?.len(), 100);
    assert_eq!(DeviceBuffer::uninit(100, s)?.to_vec(s)?.len(), 100);
    DeviceScalar::<u128>::uninit(s)?.value(s)?;
    Ok(())
}

pub(crate) fn nothing_reaches_the_resource_for_no_elements(device: &Device) -> Outcome {
    let (stream, resource) = (device.stream()?, Counting::new(device));
    let s = stream.as_ref();
    let mut vector = DeviceVec::<f64, _>::uninit_in(0, s, resource.clone())?;
    vector.fill(0.1, s)?;
    vector.copy_from_slice(&[], s)?;
    vector.shrink_to_fit(s)?;
    vector.resize_uninit(0, s)?;
    assert_eq!((vector.len(), vector.capacity(), vector.is_empty()), (0, 0, true));
    assert_eq!(vector.to_vec(s)?, [0.0_f64; 0]);
    assert_eq!(vector.upload(Vec::new(), s)?.wait()?, [0.0_f64; 0]);
    assert!(vector.as_device_ptr().is_aligned_to(256));
    drop(vector.try_clone(s)?);
    drop(DeviceBuffer::from_slice_in(&[], s, resource.clone())?);
    drop(DeviceBuffer::with_layout_in(Layout::new(0, 1 << 20)?, s, resource.clone())?);
    drop(vector);
    assert_eq!(resource.counts(), (0, 0));
    // The first element does, and leaving again gives it back.
    let mut vector = DeviceVec::<f64, _>::uninit_in(0, s, resource.clone())?;
    vector.extend_from_slice(&[2.5], s)?;
    assert_eq!(resource.counts(), (1, 0));
    vector.clear();
    vector.shrink_to_fit(s)?;
    assert_eq!((vector.capacity(), resource.counts()), (0, (1, 1)));
    Ok(())
}

pub(crate) fn elements_are_set_and_read_one_by_one(device: &Device) -> Outcome {
    fn check<T: DeviceCopy + PartialEq + std::fmt::Debug>(device: &Device, low: T, high: T) -> Outcome {
        let stream = device.stream()?;
        let s = stream.as_ref();
        let mut vector = DeviceVec::filled(3, low, s)?;
        vector.set(1, high, s)?;
        assert_eq!(vector.to_vec(s)?, [low, high, low]);
        assert_eq!((vector.front(s)?, vector.get(1, s)?, vector.back(s)?), (low, high, low));
        vector.set_zero(2, s)?;
        assert_eq!(vector.slice(..2)?.to_vec(s)?, [low, high]);
        vector.set(2, high, s)?;
        assert_eq!(vector.back(s)?, high);
        Ok(())
    }
    check(device, 1_u8, 2)?;
    check(device, 1_u16, 0x0203)?;
    check(device, -1.0_f32, 0.1)?;
    check(device, 0.1_f64, -0.3)?;
    check(device, 1_u128, u128::MAX / 3)?;
    check(device, [1_u8, 2, 3], [4, 5, 6])?;
    check(device, [1_u16, 2, 3], [4, 5, 6])?;
    check(device, [1_u64, 2, 3], [4, 5, 6])?;
    let stream = device.stream()?;
    let mut zeroed = DeviceVec::from_slice(&[1.5_f64, 2.5], stream.as_ref())?;
    zeroed.set_zero(0, stream.as_ref())?;
    assert_eq!(zeroed.to_vec(stream.as_ref())?, [0.0, 2.5]);
    Ok(())
}

pub(crate) fn a_negative_zero_stays_negative(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let s = stream.as_ref();
    let mut singles = DeviceVec::filled(100, -0.0_f32, s)?;
    assert!(singles.to_vec(s)?.iter().all(|element| element.is_sign_negative()));
    singles.set_zero(7, s)?;
    assert!(singles.get(7, s)?.is_sign_positive());
    singles.set(7, -0.0, s)?;
    assert!(singles.get(7, s)?.is_sign_negative());
    let mut doubles = DeviceVec::filled(1000, -0.0_f64, s)?;
    assert!(doubles.to_vec(s)?.iter().all(|element| element.is_sign_negative()));
    doubles.resize(2000, -0.0, s)?;
    doubles.set(3, -0.0, s)?;
    assert!(doubles.to_vec(s)?.iter().all(|element| element.is_sign_negative()));
    let scalar = DeviceScalar::new(-0.0_f64, s)?;
    assert!(scalar.value(s)?.is_sign_negative());
    Ok(())
}

pub(crate) fn what_is_out_of_range_is_an_error(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let s = stream.as_ref();
    let mut vector = DeviceVec::from_slice(&[1, 2, 3], s)?;
    assert_eq!(vector.get(3, s).unwrap_err().to_string(), "out of range: index 3 in 3 elements");
    assert!(vector.set(usize::MAX, 1, s).unwrap_err().is_out_of_range());
    assert!(vector.set_zero(3, s).unwrap_err().is_out_of_range());
    assert!(vector.slice(2..4).unwrap_err().is_out_of_range());
    assert!(vector.slice_mut(..=3).unwrap_err().is_out_of_range());
    assert!(vector.as_mut_slice().split_at_mut(4).unwrap_err().is_out_of_range());
    assert_eq!(vector.slice(3..)?.len(), 0);
    vector.truncate(1);
    assert!(vector.get(1, s).unwrap_err().is_out_of_range());
    vector.clear();
    assert!(vector.front(s).unwrap_err().is_out_of_range());
    assert!(vector.back(s).unwrap_err().is_out_of_range());
    Ok(())
}

pub(crate) fn lengths_of_copies_are_equal(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let s = stream.as_ref();
    let mut vector = DeviceVec::from_slice(&[1, 2, 3], s)?;
    let other = DeviceVec::from_slice(&[9, 9], s)?;
    assert_eq!(
        vector.copy_from_slice(&[7; 4], s).unwrap_err().to_string(),
        "length mismatch: 3 elements wanted, 4 given"
    );
    assert!(vector.copy_to_slice(&mut [0; 2], s).unwrap_err().is_length_mismatch());
    assert!(vector.copy_from(other.as_slice(), s).unwrap_err().is_length_mismatch());
    assert!(s.scope(|scope| scope.upload(&mut vector, &[1])).unwrap_err().is_length_mismatch());
    assert_eq!(vector.to_vec(s)?, [1, 2, 3]);
    Ok(())
}

pub(crate) fn a_vector_grows_and_keeps_its_elements(device: &Device) -> Outcome {
    let (stream, other) = two_streams(device)?;
    let s = stream.as_ref();
    for on in [s, other.as_ref()] {
        let mut vector = DeviceVec::from_slice(&[1_u32, 2, 3], s)?;
        vector.resize(1000, 7, on)?;
        let mut expected = vec![1, 2, 3];
        expected.resize(1000, 7);
        assert_eq!(vector.to_vec(on)?, expected);
        vector.extend_from_slice(&[8, 9], on)?;
        expected.extend([8, 9]);
        assert_eq!(vector.to_vec(s)?, expected);
        let before = vector.as_device_ptr();
        vector.truncate(2000);
        vector.resize(4, 0, on)?;
        assert_eq!((vector.len(), vector.as_device_ptr()), (4, before), "shrinking moves nothing");
        assert!(vector.capacity() >= 1002);
        vector.shrink_to_fit(on)?;
        assert_eq!((vector.capacity(), vector.to_vec(on)?), (4, vec![1, 2, 3, 7]));
        vector.shrink_to_fit(on)?;
        vector.resize_uninit(500, on)?;
        assert_eq!((vector.len(), vector.slice(..4)?.to_vec(on)?), (500, vec![1, 2, 3, 7]));
        assert_eq!(vector.stream(), s, "growing leaves the home alone");
    }
    Ok(())
}

pub(crate) fn growing_step_by_step_moves_rarely(device: &Device) -> Outcome {
    let (stream, resource) = (device.stream()?, Counting::new(device));
    let s = stream.as_ref();
    let mut vector = DeviceVec::<u8, _>::uninit_in(0, s, resource.clone())?;
    for step in 0..500_u32 {
        vector.extend_from_slice(&[step as u8; 3], s)?;
    }
    let (allocated, freed) = resource.counts();
    assert!(allocated <= 11, "1500 bytes in doublings from 3 take 10 blocks, not {allocated}");
    assert_eq!(freed + 1, allocated);
    let values = vector.to_vec(s)?;
    assert!(values.chunks(3).enumerate().all(|(step, chunk)| chunk == [step as u8; 3]));
    Ok(())
}

pub(crate) fn room_is_exact_where_it_is_asked_for(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let s = stream.as_ref();
    let mut vector = DeviceVec::<u32>::with_capacity(10, s)?;
    assert_eq!((vector.len(), vector.capacity()), (0, 10));
    vector.resize(10, 1, s)?;
    assert_eq!(vector.capacity(), 10);
    vector.reserve_exact(1, s)?;
    assert_eq!(vector.capacity(), 11);
    vector.reserve_exact(1, s)?;
    assert_eq!(vector.capacity(), 11);
    vector.reserve(2, s)?;
    assert_eq!(vector.capacity(), 22);
    assert_eq!(vector.to_vec(s)?, [1; 10]);
    assert_eq!(DeviceVec::from_device(vector.as_slice(), s)?.capacity(), 10);
    Ok(())
}

pub(crate) fn sizes_that_cannot_be_are_refused(device: &Device) -> Outcome {
    let (stream, resource) = (device.stream()?, Counting::new(device));
    let s = stream.as_ref();
    for len in [usize::MAX, usize::MAX - 3, isize::MAX as usize, isize::MAX as usize / 8 + 1] {
        assert!(DeviceVec::<u64, _>::uninit_in(len, s, resource.clone()).unwrap_err().is_size_overflow());
    }
    for len in [usize::MAX, isize::MAX as usize, isize::MAX as usize - 254] {
        assert!(DeviceBuffer::uninit_in(len, s, resource.clone()).unwrap_err().is_size_overflow());
    }
    let mut vector = DeviceVec::from_slice_in(&[1_u64, 2], s, resource.clone())?;
    for additional in [usize::MAX, usize::MAX - 1, isize::MAX as usize / 8] {
        assert!(vector.reserve(additional, s).unwrap_err().is_size_overflow());
        assert!(vector.reserve_exact(additional, s).unwrap_err().is_size_overflow());
    }
    assert!(vector.resize(usize::MAX, 0, s).unwrap_err().is_size_overflow());
    assert!(vector.resize_uninit(1 << 47, s).unwrap_err().is_out_of_memory());
    assert_eq!(vector.to_vec(s)?, [1, 2]);
    assert_eq!((vector.capacity(), resource.counts()), (2, (1, 0)));
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(512))]
struct Wide([u32; 128]);

// SAFETY: 512 bytes of numbers without padding.
unsafe impl DeviceCopy for Wide {}

pub(crate) fn alignment_is_the_resources_affair(device: &Device) -> Outcome {
    let (stream, resource) = (device.stream()?, Counting::new(device));
    let s = stream.as_ref();
    let refused = DeviceVec::<Wide, _>::uninit_in(1, s, resource.clone()).unwrap_err();
    assert_eq!((refused.is_alignment(), refused.limit()), (true, Some(256)));
    assert!(Layout::new(8, 3).unwrap_err().is_alignment());
    let mut buffer = DeviceBuffer::with_layout_in(Layout::new(8, 16)?, s, resource)?;
    buffer.reserve(100, s)?;
    assert_eq!((buffer.align(), buffer.as_device_ptr().is_aligned_to(256)), (16, true));
    Ok(())
}

pub(crate) fn parts_are_containers_too(device: &Device) -> Outcome {
    let (stream, other) = two_streams(device)?;
    let (s, o) = (stream.as_ref(), other.as_ref());
    let mut vector = DeviceVec::from_slice(&pattern(100), s)?;
    let expected = pattern(100);
    let (low, high) = vector.as_slice().split_at(40)?;
    assert_eq!((low.to_vec(o)?, high.len()), (expected[..40].to_vec(), 60));
    assert_eq!(high.slice(5..=6)?.to_vec(s)?, expected[45..47]);
    assert_eq!(high.get(0, s)?, expected[40]);
    assert_eq!(high.as_device_ptr(), vector.as_device_ptr().offset(160));
    let (mut low, mut high) = vector.as_mut_slice().split_at_mut(50)?;
    high.copy_from(low.as_slice(), o)?;
    low.fill_zero(s)?;
    low.reborrow().slice_mut(1..2)?.copy_from_slice(&[5], o)?;
    let values = vector.to_vec(s)?;
    assert_eq!((&values[..3], &values[50..]), (&[0, 5, 0][..], &expected[..50]));
    Ok(())
}

pub(crate) fn copies_stay_on_the_device(device: &Device) -> Outcome {
    let (stream, other) = two_streams(device)?;
    let (s, o) = (stream.as_ref(), other.as_ref());
    let values = pattern(LARGE);
    let mut from = DeviceVec::from_slice(&values, s)?;
    let mut to = DeviceVec::<u32>::zeroed(LARGE, o)?;
    stall(&stream);
    to.copy_from(from.as_slice(), s)?;
    // The source is written anew at once, on another stream: that follows the copy.
    from.fill(0, o)?;
    drop(from);
    assert_eq!(to.to_vec(o)?, values);
    Ok(())
}

pub(crate) fn a_clone_is_another_block(device: &Device) -> Outcome {
    let (stream, other) = two_streams(device)?;
    let (s, o) = (stream.as_ref(), other.as_ref());
    let mut vector = DeviceVec::from_slice(&[1, 2, 3], s)?;
    vector.reserve(100, s)?;
    let clone = vector.try_clone(o)?;
    vector.fill(0, s)?;
    assert_ne!(vector.as_device_ptr(), clone.as_device_ptr());
    assert_eq!((clone.to_vec(s)?, clone.capacity(), clone.stream()), (vec![1, 2, 3], 3, o));
    let resource = AnyResource::new(Cuda::new(device));
    let elsewhere = DeviceVec::from_device_in(clone.as_slice(), s, resource.clone())?;
    assert_eq!((elsewhere.to_vec(o)?, elsewhere.resource()), (vec![1, 2, 3], &resource));
    let buffer = DeviceBuffer::with_layout_in(Layout::new(5, 32)?, s, resource)?;
    assert_eq!(buffer.try_clone(o)?.align(), 32);
    Ok(())
}

pub(crate) fn a_scalar_is_a_value(device: &Device) -> Outcome {
    let (stream, other) = two_streams(device)?;
    let (s, o) = (stream.as_ref(), other.as_ref());
    let mut scalar = DeviceScalar::new(0.1_f64, s)?;
    assert_eq!(scalar.value(o)?, 0.1);
    scalar.set(0.2, o)?;
    assert_eq!((scalar.value(s)?, scalar.try_clone(o)?.value(s)?), (0.2, 0.2));
    scalar.set_zero(o)?;
    assert_eq!(scalar.value(s)?, 0.0);
    scalar.set_stream(o)?;
    assert_eq!(scalar.stream(), o);
    assert_eq!(DeviceScalar::<[u8; 3]>::zeroed(s)?.value(s)?, [0; 3]);
    assert_eq!(scalar.into_vec().to_vec(s)?, [0.0]);
    Ok(())
}

pub(crate) fn parts_can_be_put_together_again(device: &Device) -> Outcome {
    let (stream, other) = two_streams(device)?;
    let (s, resource) = (stream.as_ref(), Counting::new(device));
    let mut vector = DeviceVec::<u32, _>::uninit_in(3, s, resource.clone())?;
    stall(&other);
    vector.copy_from_slice(&[1, 2, 3], other.as_ref())?;
    vector.reserve_exact(5, s)?;
    vector.fill(7, other.as_ref())?;
    let parts = vector.into_raw_parts();
    assert_eq!((parts.len_bytes, parts.layout.bytes(), parts.home.as_ref()), (12, 32, s));
    assert_eq!(parts.frontier.len(), 1);
    assert_eq!(resource.counts(), (2, 1));
    // SAFETY: the parts of one vector of the same type, unchanged.
    let vector = unsafe { DeviceVec::<u32, _>::from_raw_parts(parts) };
    assert_eq!((vector.to_vec(s)?, vector.capacity()), (vec![7; 3], 8));
    let parts = vector.into_raw_parts();
    parts.home.as_ref().wait_for(&parts.frontier)?;
    // SAFETY: the block came from the resource with this layout, its uses come before, and nobody uses it again.
    unsafe { parts.resource.deallocate(parts.block, parts.layout, parts.home.as_ref()) };
    assert_eq!(resource.counts(), (2, 2));
    Ok(())
}

pub(crate) fn bytes_are_elements_if_they_fit(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let s = stream.as_ref();
    let buffer = DeviceVec::from_slice(&[1_u32, 2, 3], s)?.into_buffer();
    assert_eq!((buffer.len(), buffer.align()), (12, 4));
    let buffer = buffer.into_vec::<u64>().expect_err("12 bytes are no whole number of words");
    let buffer = buffer.into_vec::<[u8; 5]>().expect_err("nor of these");
    assert_eq!(buffer.into_vec::<u16>().expect("they fit").to_vec(s)?, [1, 0, 2, 0, 3, 0]);
    let buffer = DeviceBuffer::zeroed(512, s)?.into_vec::<Wide>();
    let block_is_wide = buffer.is_ok();
    assert!(!block_is_wide, "a block of 256 is not aligned for 512");
    Ok(())
}
