//! What a memory pool of the driver does.

use super::*;

/// Runs the body on a machine with pools; on one without, checks that it says so.
fn with_pools(driver: &dyn Driver, body: impl FnOnce()) {
    if has(driver, DeviceAttribute::MemoryPools) {
        body();
    } else {
        assert_eq!(code(driver.pool_create(GPU, PoolProperties::default())), Err(Code::NOT_SUPPORTED));
    }
}

pub(crate) fn a_pool_serves_in_stream_order(driver: &dyn Driver) {
    const BYTES: usize = 1 << 20;
    with_pools(driver, || {
        let pool = TestPool::new(driver, PoolProperties::default());
        let (first, second) = (TestStream::new(driver), TestStream::new(driver));
        let (event, down) = (TestEvent::new(driver), Pinned::new(driver, BYTES));
        let stall = first.stall();
        let (one, two) = (pool.allocate(BYTES, &first), pool.allocate(BYTES, &first));
        let (one, two) = (one.expect("there is memory"), two.expect("there is memory"));
        assert!(one != 0 && one % 256 == 0 && two % 256 == 0);
        assert!(one.abs_diff(two) >= BYTES as u64, "both are out");
        first.fill(one, FillValue::U8(1), BYTES).expect("it can be queued");
        first.fill(two, FillValue::U8(2), BYTES).expect("it can be queued");
        event.record(&first);
        // Another stream may use it after a wait, and free it.
        second.wait(&event).expect("it can be queued");
        second.copy(down.address(), one, BYTES).expect("it can be queued");
        pool.free(one, &second);
        second.synchronize().expect("the work is sound");
        assert!(stall.is_over());
        assert!(down.bytes().iter().all(|byte| *byte == 1));
        first.copy(down.address(), two, BYTES).expect("it can be queued");
        pool.free(two, &first);
        first.synchronize().expect("the work is sound");
        assert!(down.bytes().iter().all(|byte| *byte == 2));
    });
}

pub(crate) fn a_pool_counts_and_trims(driver: &dyn Driver) {
    const BYTES: usize = 32 << 20;
    with_pools(driver, || {
        let (stream, pool) = (TestStream::new(driver), TestPool::new(driver, PoolProperties::default()));
        assert_eq!(pool.set(PoolAttribute::ReleaseThreshold, u64::MAX), Ok(()));
        assert_eq!(pool.get(PoolAttribute::UsedCurrent), 0);
        let memory = pool.allocate(BYTES, &stream).expect("there is memory");
        stream.synchronize().expect("the work is sound");
        assert!(pool.get(PoolAttribute::UsedCurrent) >= BYTES as u64);
        assert!(pool.get(PoolAttribute::ReservedCurrent) >= pool.get(PoolAttribute::UsedCurrent));
        // What is out cannot be trimmed.
        pool.trim(0);
        assert!(pool.get(PoolAttribute::ReservedCurrent) >= BYTES as u64);
        pool.free(memory, &stream);
        stream.synchronize().expect("the work is sound");
        assert_eq!(pool.get(PoolAttribute::UsedCurrent), 0);
        assert!(pool.get(PoolAttribute::ReservedCurrent) >= BYTES as u64, "the threshold keeps it");
        assert!(pool.get(PoolAttribute::UsedHigh) >= BYTES as u64);
        assert!(pool.get(PoolAttribute::ReservedHigh) >= BYTES as u64);
        pool.trim(usize::MAX);
        assert!(pool.get(PoolAttribute::ReservedCurrent) >= BYTES as u64);
        pool.trim(0);
        assert_eq!(pool.get(PoolAttribute::ReservedCurrent), 0);
        // The marks are reset to what is now.
        assert_eq!(pool.set(PoolAttribute::UsedHigh, 0), Ok(()));
        assert_eq!(pool.set(PoolAttribute::ReservedHigh, 0), Ok(()));
        assert_eq!(pool.get(PoolAttribute::UsedHigh), 0);
        assert_eq!(pool.get(PoolAttribute::ReservedHigh), 0);
    });
}

pub(crate) fn a_pool_has_attributes(driver: &dyn Driver) {
    use PoolAttribute as P;
    with_pools(driver, || {
        let pool = TestPool::new(driver, PoolProperties::default());
        assert_eq!(pool.get(P::ReleaseThreshold), 0);
        for bytes in [1 << 20, u64::MAX, 0] {
            assert_eq!(pool.set(P::ReleaseThreshold, bytes), Ok(()));
            assert_eq!(pool.get(P::ReleaseThreshold), bytes);
        }
        let reuse =
            [P::ReuseFollowEventDependencies, P::ReuseAllowOpportunistic, P::ReuseAllowInternalDependencies];
        for attribute in reuse {
            assert_eq!(pool.get(attribute), 1, "{attribute:?} is on in a new pool");
            assert_eq!(pool.set(attribute, 0), Ok(()));
            assert_eq!(pool.get(attribute), 0);
            assert_eq!(pool.set(attribute, 1), Ok(()));
            assert_eq!(pool.get(attribute), 1);
            assert_eq!(code(pool.set(attribute, 2)), Err(Code::INVALID_VALUE));
            assert_eq!(pool.get(attribute), 1);
        }
        for attribute in [P::ReservedCurrent, P::UsedCurrent] {
            assert_eq!(code(pool.set(attribute, 0)), Err(Code::INVALID_VALUE), "{attribute:?} is read only");
        }
        for attribute in [P::ReservedHigh, P::UsedHigh] {
            assert_eq!(code(pool.set(attribute, 1)), Err(Code::INVALID_VALUE), "{attribute:?} takes 0 only");
        }
    });
}

pub(crate) fn a_pool_keeps_to_its_limit(driver: &dyn Driver) {
    const LIMIT: usize = 64 << 20;
    with_pools(driver, || {
        let stream = TestStream::new(driver);
        let properties = PoolProperties { max_bytes: LIMIT as u64, ..PoolProperties::default() };
        let pool = match driver.pool_create(GPU, properties) {
            Err(refused) if driver.version() < 12_020 => {
                assert_eq!(refused.code, Code::NOT_SUPPORTED);
                return;
            }
            made => TestPool::of(driver, made.expect("a pool can be made")),
        };
        let memory = pool.allocate(LIMIT / 2, &stream).expect("there is memory");
        assert_eq!(code(pool.allocate(LIMIT, &stream)), Err(Code::OUT_OF_MEMORY));
        pool.free(memory, &stream);
        stream.synchronize().expect("the work is sound");
    });
}

pub(crate) fn a_default_pool_is_always_the_same(driver: &dyn Driver) {
    with_pools(driver, || {
        let (stream, pool) = (TestStream::new(driver), TestPool::of_device(driver));
        assert_eq!(driver.pool_default(GPU, PoolKind::Device), Ok(pool.raw));
        let memory = pool.allocate(4096, &stream).expect("there is memory");
        pool.free(memory, &stream);
        stream.synchronize().expect("the work is sound");
        match driver.pool_default(GPU, PoolKind::Managed) {
            Ok(managed) => assert_ne!(managed, pool.raw),
            Err(refused) => assert_eq!(refused.code, Code::NOT_SUPPORTED),
        }
    });
}
