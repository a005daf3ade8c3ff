//! What sleeps may not be touched, and is as before when it wakes.

#![expect(unsafe_code, reason = "puts a pool to sleep")]

use alluvion::source::{Mapped, Pinned};
use alluvion::tag::with_tag;
use alluvion::{DeviceVec, PoolConfig, ResourceExt, Sim, SleepConfig};

use crate::raw_block::Held;
use crate::{note, told};

const MIB: usize = 1 << 20;

#[test]
fn a_pool_sleeps_and_wakes() {
    let picture = told("asleep::a_pool_sleeps_and_wakes", "", || {
        let sim = Sim::new();
        let device = sim.device(0);
        let stream = device.stream().unwrap();
        let pool = Mapped::new(&device).unwrap().pool(PoolConfig::default()).unwrap();
        let host = Pinned::new(&device).unwrap().pool(PoolConfig::default()).unwrap();
        let blocks: Vec<_> = [1000, 3 * MIB, 5000, MIB + 1]
            .into_iter()
            .map(|bytes| with_tag("kept", || Held::of(&pool, bytes, stream.as_ref())))
            .collect();
        // SAFETY: no work uses the blocks, and none is freed meanwhile.
        let mut sleeper = unsafe { pool.sleep(SleepConfig::default().keep_in(&host)) }.unwrap();
        for block in &blocks {
            note(&format!("dead {:x} {}", block.pointer.address(), block.layout.bytes()));
        }
        sleeper.wake().unwrap();
        drop(sleeper);
        for block in blocks {
            note(&format!("live {:x} {} kept", block.pointer.address(), block.layout.bytes()));
            block.free(stream.as_ref());
        }
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
    assert!(picture.resizes >= 8 && picture.told.iter().any(|told| told == "sleep"), "{}", picture.resizes);
}

#[test]
fn a_container_that_is_dropped_asleep_is_gone() {
    let picture = told("asleep::a_container_that_is_dropped_asleep_is_gone", "", || {
        let sim = Sim::new();
        let device = sim.device(0);
        let stream = device.stream().unwrap();
        let pool = Mapped::new(&device).unwrap().pool(PoolConfig::default()).unwrap();
        let numbers = DeviceVec::filled_in(1000, 7_u32, &stream, &pool).unwrap();
        let address = numbers.as_device_ptr().address();
        let asleep = numbers.sleep(SleepConfig::default()).unwrap_or_else(|_| panic!("nothing forbids it"));
        note(&format!("dead {address:x} 4000"));
        drop(asleep);
        note(&format!("dead {address:x} 4000"));
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
}
