//! What `Pinned` and the allocators over it promise, clause by clause, for a device of any machine.

#![expect(unsafe_code, reason = "gives blocks back")]

use core::alloc::Layout as HostLayout;
use core::ptr::with_exposed_provenance_mut;
use std::thread;

use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use alluvion::source::{Cuda, Pinned, PinnedConfig};
use alluvion::{Device, DevicePtr, Layout, NewDelete, OnHost, PinnedAlloc, Resource, Stream};
use hashbrown::HashMap;

/// Blocks of this size and more are mapped in these tests: little, so that many can be had.
pub(crate) const MAPPED: usize = 256 << 10;
const HUGE_PAGE: usize = 2 << 20;

/// Makes a test of each clause. `$machine` makes or finds a device and hands it to the clause.
macro_rules! clauses {
    ($machine:path) => {
        $crate::host_contract::clauses! { $machine:
            blocks_are_as_long_and_as_aligned_as_asked
            blocks_do_not_overlap
            alignments_beyond_the_largest_page_are_refused
            more_than_the_host_has_is_an_error
            zero_bytes_are_nowhere
            the_device_uses_the_host_s_address
            a_free_waits_for_the_stream
            clones_free_each_other_s_blocks
            the_host_s_memory_is_reported
            vectors_grow_and_shrink
            vectors_move_between_threads
            boxes_are_aligned_as_their_type
            maps_insert_and_remove
            alignments_change_when_a_block_is_resized
            a_pinned_vector_is_uploaded_as_it_is
        }
    };
    ($machine:path: $($clause:ident)+) => {
        $(#[test] fn $clause() { $machine($crate::host_contract::$clause); })+
    };
}
pub(crate) use clauses;

pub(crate) fn config() -> PinnedConfig {
    PinnedConfig::default().huge_bytes(MAPPED)
}

pub(crate) fn pinned(device: &Device) -> Pinned {
    Pinned::with_config(device, config()).expect("it can be pinned")
}

fn alloc(device: &Device) -> PinnedAlloc {
    PinnedAlloc::with_config(device, config()).expect("it can be pinned")
}

fn layout(bytes: usize, align: usize) -> Layout {
    Layout::new(bytes, align).expect("it is valid")
}

/// Each byte of `block`, which is live, `bytes` long, host-accessible and used by nobody else.
fn bytes_of<'a>(block: DevicePtr, bytes: usize) -> &'a mut [u8] {
    // SAFETY: the callers keep what is said above, and do not use the slice after they give the block back.
    unsafe { core::slice::from_raw_parts_mut(with_exposed_provenance_mut(block.address() as usize), bytes) }
}

/// Gives back a block of `resource` whose uses are over.
fn free(resource: &Pinned, block: DevicePtr, layout: Layout) {
    // SAFETY: the callers got the block from this resource with this layout, and use it no more.
    unsafe { resource.deallocate_sync(block, layout) };
}

/// A copy, in either direction, between live blocks that nobody uses meanwhile.
fn copy(stream: &Stream, to: u64, from: u64, bytes: usize) {
    let device = stream.device();
    // SAFETY: both ranges are live until the stream is done, as the callers see to.
    unsafe { device.driver().copy_async(device.ordinal(), to, from, bytes, stream.as_ref().raw()) }
        .expect("it can be queued");
}

fn pattern(index: usize) -> u8 {
    (index * 31 + index / 251) as u8
}

pub(crate) fn blocks_are_as_long_and_as_aligned_as_asked(device: &Device) {
    let resource = pinned(device);
    for bytes in [1, 100, 4096, MAPPED - 1, MAPPED, MAPPED + 1, 9 << 20] {
        for align in [1, 64, 256, 4096, 8192, HUGE_PAGE, 32 * HUGE_PAGE] {
            let layout = layout(bytes, align);
            let block = resource.allocate_sync(layout).expect("it can be pinned");
            assert!(block.is_aligned_to(layout.block_align()), "{block} for {layout:?}");
            let slice = bytes_of(block, bytes);
            slice.fill(0xA5);
            assert!(slice.iter().all(|byte| *byte == 0xA5));
            free(&resource, block, layout);
        }
    }
}

pub(crate) fn blocks_do_not_overlap(device: &Device) {
    let resource = pinned(device);
    let layouts = [layout(100, 1), layout(5000, HUGE_PAGE), layout(MAPPED, 1), layout(MAPPED + 77, 8192)];
    let blocks: std::vec::Vec<_> = (0..40)
        .map(|index| {
            let layout = layouts[index % layouts.len()];
            let block = resource.allocate_sync(layout).expect("it can be pinned");
            bytes_of(block, layout.bytes()).fill(index as u8);
            (block, layout)
        })
        .collect();
    for (index, (block, layout)) in blocks.iter().enumerate() {
        assert!(bytes_of(*block, layout.bytes()).iter().all(|byte| *byte == index as u8), "{index}");
    }
    for (block, layout) in blocks {
        free(&resource, block, layout);
    }
}

pub(crate) fn alignments_beyond_the_largest_page_are_refused(device: &Device) {
    let resource = pinned(device);
    let too_much = layout(64, 2 * resource.max_align());
    let error = resource.allocate_sync(too_much).expect_err("nothing is that aligned");
    assert!(error.is_alignment() && error.limit() == Some(1 << 30), "{error}");
    assert!(Allocator::allocate(&OnHost::new(&resource), HostLayout::new::<TooAligned>()).is_ok());
    let layout = HostLayout::from_size_align(64, 1 << 40).expect("it is valid");
    assert!(Allocator::allocate(&OnHost::new(&resource), layout).is_err());
}

/// The most that a type can be aligned to is 512 MiB.
#[repr(align(536_870_912))]
struct TooAligned;

pub(crate) fn more_than_the_host_has_is_an_error(device: &Device) {
    let resource = pinned(device);
    // Touching it would end the process.
    let error = resource.allocate_sync(layout(1 << 46, 1)).expect_err("no host has as much");
    assert!(error.is_out_of_memory(), "{error}");
    assert!(resource.allocate_sync(layout(isize::MAX as usize - 4095, 1)).is_err());
    // What was refused has cost nothing: as much as before can be had.
    blocks_do_not_overlap(device);
}

pub(crate) fn zero_bytes_are_nowhere(device: &Device) {
    let (resource, stream) = (pinned(device), device.stream().expect("there are streams"));
    for align in [1, 4096, HUGE_PAGE] {
        let layout = layout(0, align);
        let block = resource.allocate_sync(layout).expect("it needs no memory");
        assert_eq!(block, layout.dangling());
        free(&resource, block, layout);
        // SAFETY: zero bytes are nobody's.
        unsafe { resource.deallocate(block, layout, stream.as_ref()) };
        let host = HostLayout::from_size_align(0, align).expect("it is valid");
        let block = OnHost::new(&resource).allocate_zeroed(host).expect("it needs no memory");
        assert!(block.is_empty() && block.cast::<u8>().addr().get().is_multiple_of(align));
        // SAFETY: the block came from this allocator with this layout.
        unsafe { Allocator::deallocate(&OnHost::new(&resource), block.cast(), host) };
    }
}

pub(crate) fn the_device_uses_the_host_s_address(device: &Device) {
    let (resource, stream) = (pinned(device), device.stream().expect("there are streams"));
    let on_device = Cuda::new(device);
    for bytes in [1000, MAPPED, 3 << 20] {
        for align in [1, HUGE_PAGE] {
            let layout = layout(bytes, align);
            let there = on_device.allocate_sync(self::layout(bytes, 1)).expect("there is memory");
            let from = resource.allocate(layout, stream.as_ref()).expect("it can be pinned");
            let to = resource.allocate(layout, stream.as_ref()).expect("it can be pinned");
            bytes_of(from, bytes).iter_mut().enumerate().for_each(|(index, byte)| *byte = pattern(index));
            bytes_of(to, bytes).fill(0);
            copy(&stream, there.address(), from.address(), bytes);
            copy(&stream, to.address(), there.address(), bytes);
            stream.synchronize().expect("the copies succeed");
            let arrived = bytes_of(to, bytes).iter().enumerate();
            assert!(arrived.into_iter().all(|(index, byte)| *byte == pattern(index)), "{bytes} bytes");
            free(&resource, from, layout);
            free(&resource, to, layout);
            // SAFETY: the block came from this resource with this layout, and the copies are over.
            unsafe { on_device.deallocate_sync(there, self::layout(bytes, 1)) };
        }
    }
}

/// Scenario 14's side of the source: the memory stays while copies are queued, and goes when they are over.
pub(crate) fn a_free_waits_for_the_stream(device: &Device) {
    let (resource, stream) = (pinned(device), device.stream().expect("there are streams"));
    let on_device = Cuda::new(device);
    for (bytes, align) in [(4096, 1), (4096, HUGE_PAGE), (MAPPED, 1), (4 << 20, 1)] {
        let layout = layout(bytes, align);
        let there = on_device.allocate_sync(self::layout(bytes, 1)).expect("there is memory");
        let block = resource.allocate(layout, stream.as_ref()).expect("it can be pinned");
        bytes_of(block, bytes).iter_mut().enumerate().for_each(|(index, byte)| *byte = pattern(index));
        for _ in 0..8 {
            copy(&stream, there.address(), block.address(), bytes);
        }
        // SAFETY: the block came from this resource with this layout; its uses are the copies, on this stream.
        unsafe { resource.deallocate(block, layout, stream.as_ref()) };
        assert!(stream.is_idle().expect("it can be asked"), "freed {bytes} bytes under a copy");
        let mut arrived = vec![0_u8; bytes];
        copy(&stream, arrived.as_mut_ptr().expose_provenance() as u64, there.address(), bytes);
        stream.synchronize().expect("the copy succeeds");
        assert!(arrived.iter().enumerate().all(|(index, byte)| *byte == pattern(index)), "{bytes} bytes");
        // SAFETY: the block came from this resource with this layout, and the copies are over.
        unsafe { on_device.deallocate_sync(there, self::layout(bytes, 1)) };
    }
}

pub(crate) fn clones_free_each_other_s_blocks(device: &Device) {
    let resource = pinned(device);
    let other = resource.clone();
    assert_eq!(resource.id(), other.id());
    assert_ne!(resource.id(), pinned(device).id());
    let layouts = [layout(100, 1), layout(100, HUGE_PAGE), layout(MAPPED, 1)];
    let blocks = layouts.map(|layout| (resource.allocate_sync(layout).expect("it can be pinned"), layout));
    drop(resource);
    for (block, layout) in blocks {
        bytes_of(block, layout.bytes()).fill(1);
        free(&other, block, layout);
    }
}

pub(crate) fn the_host_s_memory_is_reported(device: &Device) {
    let info = pinned(device).memory_info().expect("it is known");
    assert!(0 < info.free_bytes && info.free_bytes <= info.total_bytes, "{info:?}");
    let (host, of_device) = (info.total_bytes, device.memory_info().expect("it is known").total_bytes);
    assert_ne!(host, of_device, "the host's memory, not the device's");
}

/// Pushes through several moves, small and mapped, and shrinks again.
fn grows_and_shrinks<A: Allocator>(alloc: A) {
    let mut vector = Vec::new_in(alloc);
    for number in 0..100_000_u64 {
        vector.push(number);
    }
    assert!(vector.iter().copied().eq(0..100_000));
    vector.truncate(1000);
    vector.shrink_to_fit();
    assert!(vector.capacity() == 1000 && vector.iter().copied().eq(0..1000));
    vector.extend_from_slice(&[7; 50_000]);
    assert!(vector[..1000].iter().copied().eq(0..1000) && vector[1000..].iter().all(|number| *number == 7));
    vector.clear();
    vector.shrink_to_fit();
    assert_eq!(vector.capacity(), 0);
    vector.push(1);
    assert_eq!(vector, [1]);
}

pub(crate) fn vectors_grow_and_shrink(device: &Device) {
    let resource = pinned(device);
    grows_and_shrinks(alloc(device));
    grows_and_shrinks(OnHost::new(&resource));
    grows_and_shrinks(OnHost::new(std::sync::Arc::new(resource.clone())));
    grows_and_shrinks(OnHost::new(std::boxed::Box::new(resource.clone())));
    grows_and_shrinks(OnHost::new(resource));
    grows_and_shrinks(NewDelete);
}

pub(crate) fn vectors_move_between_threads(device: &Device) {
    let alloc = alloc(device);
    let made = thread::scope(|scope| {
        let threads: std::vec::Vec<_> = (0..4_u32)
            .map(|number| {
                let mut vector = Vec::new_in(alloc.clone());
                vector.push(number);
                scope.spawn(move || {
                    (1..40_000).for_each(|step| vector.push(number + step));
                    vector
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect::<std::vec::Vec<_>>()
    });
    drop(alloc);
    for (number, vector) in (0_u32..).zip(made) {
        assert!(vector.iter().copied().eq(number..number + 40_000));
    }
}

macro_rules! aligned_types {
    ($($name:ident = $align:literal),+) => {$(
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[repr(align($align))]
        struct $name(u8);

        impl From<u8> for $name {
            fn from(value: u8) -> Self {
                Self(value)
            }
        }
    )+};
}

aligned_types!(To1 = 1, To64 = 64, To4096 = 4096, To8192 = 8192, To2M = 2_097_152);

fn aligned_boxes<T: From<u8> + Copy + PartialEq + core::fmt::Debug, A: Allocator + Clone>(alloc: &A) {
    let boxed = Box::new_in(T::from(9), alloc.clone());
    assert!(core::ptr::from_ref(&*boxed).is_aligned());
    let mut vector = Vec::new_in(alloc.clone());
    for value in 0..5 {
        vector.push(T::from(value));
        assert!(vector.as_ptr().is_aligned());
    }
    vector.truncate(3);
    vector.shrink_to_fit();
    assert_eq!(vector, [0, 1, 2].map(T::from));
    let slice: Box<[T], A> = vector.into_boxed_slice();
    assert_eq!((slice[2], *boxed), (T::from(2), T::from(9)));
}

pub(crate) fn boxes_are_aligned_as_their_type(device: &Device) {
    fn all<A: Allocator + Clone>(alloc: &A) {
        aligned_boxes::<To1, A>(alloc);
        aligned_boxes::<To64, A>(alloc);
        aligned_boxes::<To4096, A>(alloc);
        aligned_boxes::<To8192, A>(alloc);
        aligned_boxes::<To2M, A>(alloc);
    }
    // Values of 2 MiB come by the stack, several at once in a debug build.
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(256 << 20).spawn_scoped(scope, || {
            all(&alloc(device));
            all(&OnHost::new(&pinned(device)));
            all(&NewDelete);
        });
        thread.expect("there are threads").join().expect("it ends");
    });
}

pub(crate) fn maps_insert_and_remove(device: &Device) {
    let mut map = HashMap::new_in(alloc(device));
    for key in 0..20_000_u64 {
        map.insert(key, key.to_string());
    }
    for key in (0..20_000).step_by(3) {
        assert_eq!(map.remove(&key), Some(key.to_string()));
    }
    map.shrink_to_fit();
    assert_eq!(map.len(), 13_333);
    let copy = map.clone();
    drop(map);
    for key in 0..20_000_u64 {
        assert_eq!(copy.get(&key).cloned(), (key % 3 != 0).then(|| key.to_string()));
    }
}

/// The calls that collections do not make: another alignment for the new block, up and down.
pub(crate) fn alignments_change_when_a_block_is_resized(device: &Device) {
    resizes_with_another_alignment(&alloc(device));
    resizes_with_another_alignment(&NewDelete);
}

fn resizes_with_another_alignment<A: Allocator>(alloc: &A) {
    let host = |bytes, align| HostLayout::from_size_align(bytes, align).expect("it is valid");
    let steps = [
        host(100, 8),
        host(5000, 8192),
        host(5000, 1),
        host(MAPPED, HUGE_PAGE),
        host(MAPPED + 4096, 64),
        host(70, 4096),
        host(0, 16),
        host(0, 4096),
        host(300, 2),
    ];
    let mut block = alloc.allocate_zeroed(steps[0]).expect("there is memory");
    for pair in steps.windows(2) {
        let (old, new) = (pair[0], pair[1]);
        // SAFETY: the block is live, as long as `old` says, and this test's own.
        let before = unsafe { block.as_mut() };
        before.iter_mut().enumerate().for_each(|(index, byte)| *byte = pattern(index) | 1);
        let kept = old.size().min(new.size());
        let resized = if new.size() < old.size() {
            // SAFETY: the block came from this allocator with the layout `old`, and the new one is not larger.
            unsafe { alloc.shrink(block.cast(), old, new) }
        } else {
            // SAFETY: the block came from this allocator with the layout `old`, and the new one is not smaller.
            unsafe { alloc.grow_zeroed(block.cast(), old, new) }
        };
        block = resized.expect("there is memory");
        assert_eq!((block.len(), block.cast::<u8>().addr().get() % new.align()), (new.size(), 0));
        // SAFETY: the block is live, initialised, as long as `new` says, and this test's own.
        let after = unsafe { block.as_ref() };
        assert!(
            after[..kept].iter().enumerate().all(|(index, byte)| *byte == pattern(index) | 1),
            "{pair:?}"
        );
        assert!(after[kept..].iter().all(|byte| *byte == 0), "{pair:?}");
    }
    // SAFETY: the block came from this allocator with the last layout.
    unsafe { alloc.deallocate(block.cast(), steps[steps.len() - 1]) };
}

pub(crate) fn a_pinned_vector_is_uploaded_as_it_is(device: &Device) {
    let stream = device.stream().expect("there are streams");
    let on_device = Cuda::new(device);
    let mut vector = Vec::new_in(alloc(device));
    vector.extend((0..100_000_u32).map(|number| number.wrapping_mul(2_654_435_761)));
    let mut back = vector.clone();
    back.fill(0);
    let bytes = size_of_val(vector.as_slice());
    let there = on_device.allocate_sync(layout(bytes, 1)).expect("there is memory");
    copy(&stream, there.address(), vector.as_ptr().expose_provenance() as u64, bytes);
    copy(&stream, back.as_mut_ptr().expose_provenance() as u64, there.address(), bytes);
    stream.synchronize().expect("the copies succeed");
    assert_eq!(vector, back);
    // SAFETY: the block came from this resource with this layout, and the copies are over.
    unsafe { on_device.deallocate_sync(there, layout(bytes, 1)) };
}
