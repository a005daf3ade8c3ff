//! Bytes as elements, elements as others, and slices part by part.

use alluvion::{Device, DeviceBuffer, DeviceVec, ErrorKind, Layout, device_copy};

use super::{Outcome, pattern, two_streams};

/// Larger than it would be without the alignment.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(16))]
struct Quad {
    words: [u32; 4],
}

device_copy!(Quad { words });

#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Particle {
    position: [f32; 3],
    kind: u32,
}

device_copy!(Particle { position, kind });

#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Pair(Particle, u64);

device_copy!(Pair { 0, 1 });

#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, packed)]
struct Packed {
    small: u8,
    large: u32,
}

device_copy!(Packed { small, large });

/// Declared in one form, by an alias.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Range<T> {
    start: T,
    end: T,
}

type RangeOfWords = Range<u32>;
device_copy!(RangeOfWords { start, end });

pub(crate) fn structs_of_plain_data_are_elements(device: &Device) -> Outcome {
    let (stream, other) = two_streams(device)?;
    let particle = Particle { position: [1.0, -0.0, 0.1], kind: 7 };
    let mut particles = DeviceVec::filled(1000, particle, &stream)?;
    particles.set(500, Particle { kind: 8, ..particle }, &other)?;
    let back = particles.to_vec(&stream)?;
    assert_eq!((back[499], back[500].kind, back.len()), (particle, 8, 1000));
    assert!(back[0].position[1].is_sign_negative(), "bit by bit");
    let pairs = DeviceVec::from_slice(&[Pair(particle, u64::MAX); 3], &stream)?;
    assert_eq!(pairs.back(&other)?, Pair(particle, u64::MAX));
    let ranges = DeviceVec::from_slice(&[Range { start: 1, end: 2 }], &stream)?;
    assert_eq!(ranges.front(&stream)?.end, 2);
    // A packed struct has no padding: 5 bytes each.
    let packed = DeviceVec::from_slice(&[Packed { small: 1, large: 0x0203_0405 }; 3], &stream)?;
    assert_eq!(packed.as_slice().cast::<u8>()?.len(), 15);
    assert_eq!(packed.get(2, &stream)?, Packed { small: 1, large: 0x0203_0405 });
    Ok(())
}

pub(crate) fn bytes_are_seen_as_elements(device: &Device) -> Outcome {
    let (stream, other) = two_streams(device)?;
    let mut buffer = DeviceBuffer::zeroed(1024, &stream)?;
    buffer.view_mut::<u32>()?.copy_from_slice(&pattern(256), &other)?;
    assert_eq!(buffer.view::<u32>()?.to_vec(&stream)?, pattern(256));
    let bytes: Vec<u8> = pattern(256).iter().flat_map(|word| word.to_ne_bytes()).collect();
    assert_eq!(buffer.to_vec(&other)?, bytes);
    buffer.slice_mut(512..)?.cast_mut::<f64>()?.fill(0.1, &stream)?;
    assert_eq!(buffer.view::<u32>()?.slice(..128)?.to_vec(&other)?, pattern(128));
    assert_eq!(buffer.slice(1016..)?.cast::<f64>()?.to_vec(&other)?, [0.1]);
    // A view is ordered as what it shows.
    let read = buffer.view::<Quad>()?.read_on(&other)?;
    assert_eq!(read.len(), 64);
    assert!(read.as_device_ptr().is_aligned_to(16));
    drop(read);
    // There and back again.
    let vector = DeviceVec::from_slice(&[1.5_f32, -1.5], &stream)?;
    assert_eq!(vector.as_slice().cast::<[u8; 4]>()?.cast::<f32>()?.to_vec(&other)?, [1.5, -1.5]);
    // Nothing is nothing, of whatever type.
    assert!(buffer.slice(8..8)?.cast::<u64>()?.is_empty());
    Ok(())
}

pub(crate) fn views_that_do_not_fit_are_refused(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let mut buffer = DeviceBuffer::from_slice(&[7; 30], &stream)?;
    let refused = buffer.view::<u32>().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert_eq!(
        refused.to_string(),
        "invalid argument: 30 bytes are no whole number of elements of 4 bytes: cut the slice to a multiple of them",
    );
    assert_eq!(
        buffer.slice(2..18)?.cast::<u64>().unwrap_err().to_string(),
        "invalid argument: a slice 2 bytes into a block aligned to 256 is not aligned to 8: begin at a multiple, in a block \
         made with that alignment",
    );
    assert!(buffer.slice_mut(2..18)?.cast_mut::<u64>().is_err());
    // Whatever address the block has, what its layout does not promise is refused.
    #[derive(Clone, Copy)]
    #[repr(C, align(512))]
    struct Wide {
        words: [u32; 128],
    }
    device_copy!(Wide { words });
    let plain = DeviceBuffer::zeroed(512, &stream)?;
    assert!(plain.view::<Wide>().is_err());
    assert_eq!(buffer.to_vec(&stream)?, [7; 30], "nothing has changed");
    assert_eq!(Layout::new(512, 512)?.block_align(), 512);
    Ok(())
}

pub(crate) fn slices_come_in_parts(device: &Device) -> Outcome {
    let (stream, other) = two_streams(device)?;
    let mut vector = DeviceVec::from_slice(&pattern(100), &stream)?;
    let whole = vector.as_slice();
    let parts: Vec<Vec<u32>> = whole.chunks(30)?.map(|part| part.to_vec(&other)).collect::<Result<_, _>>()?;
    assert_eq!(parts.concat(), pattern(100));
    assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [30, 30, 30, 10]);
    let mut exact = whole.chunks_exact(30)?;
    assert_eq!((exact.len(), exact.remainder().to_vec(&stream)?), (3, pattern(100)[90..].to_vec()));
    assert_eq!(exact.next_back().expect("there are three").get(0, &stream)?, pattern(100)[60]);
    assert_eq!(vector.chunks(1000)?.count(), 1);
    assert_eq!(vector.slice(..0)?.chunks(3)?.count(), 0);
    assert_eq!(vector.chunks(0).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(vector.chunks_mut(0).is_err());
    // Each on a stream of its own, at once.
    for (index, mut part) in vector.chunks_mut(7)?.enumerate() {
        part.fill(index as u32, if index % 2 == 0 { &stream } else { &other })?;
    }
    let expected: Vec<u32> = (0..100).map(|index| index / 7).collect();
    assert_eq!(vector.to_vec(&other)?, expected);
    let mut exact = vector.as_mut_slice().chunks_exact_mut(40)?;
    let (mut second, mut first) = (exact.next_back().expect("two"), exact.next().expect("one"));
    second.copy_from(first.as_slice(), &other)?;
    first.fill_zero(&stream)?;
    assert!(exact.next().is_none());
    exact.into_remainder().fill(9, &stream)?;
    let mut moved = vec![0; 40];
    moved.extend_from_slice(&expected[..40]);
    moved.resize(100, 9);
    assert_eq!(vector.to_vec(&stream)?, moved);
    let (low, mut high) = vector.split_at_mut(99)?;
    high.copy_from(low.as_slice().slice(40..41)?, &other)?;
    assert_eq!(vector.back(&stream)?, 0);
    assert!(vector.split_at(101).unwrap_err().is_out_of_range());
    Ok(())
}

#[expect(clippy::needless_borrows_for_generic_args, reason = "each of these borrows is asked for")]
pub(crate) fn any_name_of_a_stream_will_do(device: &Device) -> Outcome {
    let (stream, of_this_thread) = (device.stream()?, device.per_thread_stream()?);
    let (reference, borrowed) = (&stream, stream.as_ref());
    let mut vector = DeviceVec::<u32>::zeroed(8, &stream)?;
    vector.fill(1, &reference)?;
    vector.set(1, 2, borrowed)?;
    vector.set(2, 3, &borrowed)?;
    vector.set(3, 4, &of_this_thread)?;
    vector.set(4, 5, vector.stream().to_stream().as_ref())?;
    assert_eq!(vector.to_vec(&&of_this_thread)?, [1, 2, 3, 4, 5, 1, 1, 1]);
    stream.wait_for_stream(&of_this_thread)?;
    stream.wait_for_stream(of_this_thread.as_ref())?;
    let read = vector.read_on(&of_this_thread)?;
    assert_eq!(read.stream(), of_this_thread.as_ref());
    Ok(())
}
