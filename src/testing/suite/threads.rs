//! Many threads.

use super::super::Bench;
use super::super::block::Block;
use crate::device::Device;
use crate::resource::{DeviceAccessible, Resource};

const THREADS: u32 = 4;

/// A block may be freed on another thread than it was allocated on, on the same stream and on another one.
#[track_caller]
pub fn free_on_another_thread<R: Resource + Sync>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let resource = make(&bench.device());
    let (here, there) = (bench.stream(), bench.stream());
    for _ in 0..8 {
        let same = Block::of(&resource, bench.at_most(1000), here.as_ref());
        let other = Block::of(&resource, bench.at_most(5000), here.as_ref());
        let synchronous = Block::of(&resource, bench.at_most(300), here.as_ref());
        let event = here.record().expect("the driver records an event");
        std::thread::scope(|scope| {
            let (here, there) = (&here, &there);
            scope.spawn(move || {
                same.free(here.as_ref());
                there.wait_event(&event).expect("a stream can wait for an event");
                other.free(there.as_ref());
                event.synchronize().expect("the work succeeds");
                synchronous.free_sync();
            });
        });
    }
    bench.check();
}

/// Four threads allocate and free at once, each on a stream of its own, and no two live blocks overlap.
#[track_caller]
pub fn four_threads_at_once<R: Resource + Sync>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let resource = make(&bench.device());
    let device = bench.device();
    let bytes = |step: u32| bench.at_most(1 + (step as usize * 7919) % 20_000);
    let sizes: Vec<usize> = (0..100).map(bytes).collect();
    let kept: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (resource, device, sizes) = (&resource, &device, &sizes);
                scope.spawn(move || {
                    let stream = device.stream().expect("the driver makes a stream");
                    let mut live = std::collections::VecDeque::new();
                    for &bytes in sizes {
                        live.push_back(Block::of(resource, bytes, stream.as_ref()));
                        if live.len() > 8 {
                            live.pop_front().into_iter().for_each(|block| block.free(stream.as_ref()));
                        }
                    }
                    stream.synchronize().expect("the stream's work succeeds");
                    live
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no thread panics")).collect()
    });
    let mut ranges: Vec<_> = kept.iter().map(Block::range).collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two live blocks overlap: {:#x?} and {:#x?}", pair[0], pair[1]);
    }
    kept.into_iter().for_each(Block::free_sync);
    bench.check();
}

/// Four threads allocate, write, read back and free at once: each finds its own bytes.
#[track_caller]
pub fn four_threads_keep_their_bytes<R: DeviceAccessible + Sync>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let resource = make(&bench.device());
    let device = bench.device();
    let largest = bench.at_most(6000);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (resource, device) = (&resource, &device);
            scope.spawn(move || {
                let stream = device.stream().expect("the driver makes a stream");
                for step in 0..40 {
                    let word = thread << 16 | step;
                    let bytes = largest.min(1 + (step as usize * 151) % 6000);
                    let block = Block::of(resource, bytes, stream.as_ref());
                    block.fill(word, stream.as_ref());
                    if step % 4 == 0 {
                        std::thread::yield_now();
                        block.check(word, stream.as_ref());
                    } else {
                        block.copy_out(stream.as_ref()).check(word, stream.as_ref());
                    }
                    block.free(stream.as_ref());
                }
            });
        }
    });
    bench.check();
}
