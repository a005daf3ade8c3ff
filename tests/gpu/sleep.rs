//! Pools and containers that sleep, with data that kernels write and check.

#![expect(unsafe_code, reason = "puts a pool to sleep")]

use std::time::Duration;

use alluvion::source::{Cuda, Mapped, Pinned};
use alluvion::tag::{Tag, with_tag};
use alluvion::{
    DeviceBuffer, DeviceVec, ErrorKind, Machine, Pool, PoolConfig, Resource, ResourceExt, SleepConfig, Stream,
};

use crate::gpu_kernels::Kernels;
use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

/// A GPU, its pool over pages, and kernels that write and count.
struct Rig {
    kernels: Kernels,
    stream: Stream,
    pool: Pool<Mapped>,
    host: Pool<Pinned>,
    counters: Cuda,
}

impl Rig {
    fn new() -> Self {
        let kernels = Kernels::load();
        let device =
            Machine::of_environment().and_then(|machine| machine.device(0)).expect("these tests need a GPU");
        let stream = device.stream().expect("the driver makes one");
        let config = PoolConfig::default().checked(true);
        let pool = Mapped::new(&device).and_then(|mapped| mapped.pool(config)).expect("it has pages");
        let host = Pinned::new(&device).and_then(|host| host.pool(PoolConfig::default()));
        Self { kernels, stream, pool, host: host.expect("it can pin"), counters: Cuda::new(&device) }
    }

    /// Writes each block with a word of its own, late.
    fn write(&self, blocks: &[Held<'_, Pool<Mapped>>], first_word: u32) {
        for (word, block) in (first_word..).zip(blocks) {
            let words = block.layout.bytes() / 4;
            let wait = Duration::from_micros(50);
            self.kernels.write_late(self.stream.as_ref(), block.pointer, words, word, wait);
        }
    }

    /// How many words of the blocks are not as written.
    fn others(&self, blocks: &[Held<'_, Pool<Mapped>>], first_word: u32) -> u32 {
        let counter = Held::allocate_sync(&self.counters, layout_of(256)).expect("there is memory");
        counter.fill(0, self.stream.as_ref());
        for (word, block) in (first_word..).zip(blocks) {
            let words = block.layout.bytes() / 4;
            self.kernels.count_others(self.stream.as_ref(), block.pointer, words, word, counter.pointer);
        }
        let count = counter.words(self.stream.as_ref())[0];
        counter.free_sync();
        count
    }

    fn blocks(&self, sizes: &[usize]) -> Vec<Held<'_, Pool<Mapped>>> {
        sizes.iter().map(|bytes| Held::of(&self.pool, *bytes, self.stream.as_ref())).collect()
    }
}

const SIZES: [usize; 8] = [300 << 10, 64 * MIB, 1000, 5 * MIB, 1 << 20, 200 * MIB, 7 << 10, 33 * MIB];

#[test]
fn a_pool_sleeps_and_wakes_with_its_contents() {
    let rig = Rig::new();
    let blocks = rig.blocks(&SIZES);
    let bytes: usize = SIZES.iter().sum();
    let addresses: Vec<_> = blocks.iter().map(|block| block.pointer).collect();
    for round in 0..4 {
        let word = 0x1000 * (round + 1);
        rig.write(&blocks, word);
        // The kernels are still queued: it waits for them.
        // SAFETY: nothing uses the blocks until they are awake.
        let mut sleeper =
            unsafe { rig.pool.sleep(SleepConfig::default().keep_in(&rig.host)) }.expect("it can sleep");
        assert_eq!(rig.pool.pool_size(), 0);
        assert!(sleeper.record().kept_bytes() >= bytes);
        let refused = rig.pool.allocate_sync(layout_of(256)).expect_err("it sleeps");
        assert_eq!(refused.kind(), ErrorKind::Asleep);
        // Somebody else has the memory meanwhile, and writes it.
        let mut other = DeviceBuffer::zeroed_in(bytes, &rig.stream, &rig.counters).expect("it is free");
        other.fill(0xEE, &rig.stream).expect("it is live");
        drop(other);
        sleeper.wake().expect("there is memory");
        drop(sleeper);
        assert_eq!(blocks.iter().map(|block| block.pointer).collect::<Vec<_>>(), addresses);
        assert_eq!(rig.others(&blocks, word), 0, "round {round}");
    }
    blocks.into_iter().for_each(|block| block.free(rig.stream.as_ref()));
}

#[test]
fn a_tag_sleeps_beside_a_program_that_goes_on() {
    let rig = Rig::new();
    let weights = with_tag("weights", || rig.blocks(&SIZES));
    let rest = rig.blocks(&[3 * MIB, 500, 80 * MIB]);
    rig.write(&weights, 0x100);
    rig.write(&rest, 0x200);
    let tag = with_tag("weights", Tag::current);
    let config = SleepConfig::default().keep_in(&rig.host).tag(tag);
    // SAFETY: nothing uses the weights until they are awake.
    let mut sleeper = unsafe { rig.pool.sleep(config) }.expect("it can sleep");
    assert_eq!(sleeper.record().blocks(), SIZES.len());
    assert_eq!(rig.others(&rest, 0x200), 0);
    for round in 0..20 {
        let more = rig.blocks(&[MIB << (round % 7), 3000]);
        rig.write(&more, 0x1000 + round);
        assert_eq!(rig.others(&more, 0x1000 + round), 0, "round {round}");
        more.into_iter().for_each(|block| block.free(rig.stream.as_ref()));
    }
    sleeper.wake().expect("there is memory");
    assert_eq!((rig.others(&weights, 0x100), rig.others(&rest, 0x200)), (0, 0));
    weights.into_iter().chain(rest).for_each(|block| block.free(rig.stream.as_ref()));
}

#[test]
fn without_memory_it_sleeps_on_and_wakes_later() {
    let rig = Rig::new();
    let blocks = rig.blocks(&[256 * MIB, 256 * MIB, 512 * MIB]);
    rig.write(&blocks, 7);
    // SAFETY: nothing uses the blocks until they are awake.
    let mut sleeper =
        unsafe { rig.pool.sleep(SleepConfig::default().keep_in(&rig.host)) }.expect("it can sleep");
    // All but half of it, in pieces: other programs may take some meanwhile.
    let mut taken = Vec::new();
    while rig.pool.device().memory_info().expect("the driver answers").free_bytes > 700 * MIB {
        taken.push(Held::allocate_sync(&rig.counters, layout_of(128 * MIB)).expect("so much is free"));
    }
    for _ in 0..3 {
        let error = sleeper.wake().expect_err("700 MiB are not enough for 1 GiB");
        assert!(
            error.is_out_of_memory() && error.requested_bytes().is_some_and(|bytes| bytes > 0),
            "{error}"
        );
        assert!(sleeper.is_asleep());
    }
    taken.into_iter().for_each(Held::free_sync);
    sleeper.wake().expect("there is memory again");
    drop(sleeper);
    assert_eq!(rig.others(&blocks, 7), 0);
    blocks.into_iter().for_each(|block| block.free(rig.stream.as_ref()));
}

#[test]
fn a_vector_sleeps_and_wakes() {
    let rig = Rig::new();
    let numbers: Vec<u32> = (0..20_000_000_u32).map(|at| at.wrapping_mul(0x9E37_79B9)).collect();
    let mut vector = DeviceVec::from_slice_in(&numbers, &rig.stream, &rig.pool).expect("there is memory");
    for _ in 0..3 {
        let asleep = vector.sleep(SleepConfig::default().keep_in(&rig.host)).expect("it can sleep");
        assert_eq!(rig.pool.pool_size(), 0);
        vector = asleep.wake().expect("there is memory");
        assert!(vector.to_vec(&rig.stream).expect("it is awake") == numbers);
    }
}
