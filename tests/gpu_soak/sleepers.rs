//! Containers that sleep and wake while others use the pool.

use std::sync::atomic::{AtomicUsize, Ordering};

use alluvion::source::{Mapped, Pinned};
use alluvion::{DeviceVec, Pool, PoolConfig, Resource as _, ResourceExt as _, SleepConfig};

/// Elements: 4 MiB, more than a page.
const COUNT: usize = 1 << 20;

/// Sends containers to sleep and wakes them, and looks whether they have what was written. Counts those that slept.
pub(crate) fn sleep_and_wake(pool: &Pool<Mapped>, goes_on: &dyn Fn() -> bool, slept: &AtomicUsize) {
    let stream = pool.device().stream().expect("a stream can be made");
    let host = Pinned::new(pool.device()).expect("the host has memory").pool(PoolConfig::default());
    let host = host.expect("nothing is asked for yet");
    let mut word = 0_u32;
    while goes_on() {
        word = word.wrapping_add(0x9E37_79B9);
        let vector = match DeviceVec::filled_in(COUNT, word, &stream, pool) {
            Ok(vector) => vector,
            Err(error) => {
                assert!(error.is_out_of_memory(), "{error}");
                continue;
            }
        };
        let mut asleep = match vector.sleep(SleepConfig::default().keep_in(&host)) {
            Ok(asleep) => asleep,
            Err(refused) => panic!("{refused}"),
        };
        slept.fetch_add(1, Ordering::Relaxed);
        // The others have the room, and give it back.
        let vector = loop {
            match asleep.wake() {
                Ok(vector) => break vector,
                Err(refused) => {
                    assert!(refused.error().is_out_of_memory(), "{refused}");
                    asleep = refused.into_value();
                    std::thread::yield_now();
                }
            }
        };
        let read = vector.to_vec(&stream).expect("it can be read");
        assert!(read.iter().all(|&read| read == word), "what slept is as it was");
    }
}
