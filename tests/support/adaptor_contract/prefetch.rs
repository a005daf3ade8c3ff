//! Migration ahead of use: blocks hold what is written, wherever they are.

use alluvion::source::{Cuda, Managed};
use alluvion::testing::{Bench, Shadow};
use alluvion::{DeviceAccessible, PoolConfig, ResourceExt};

use crate::raw_block::Held;

fn write_and_read<R: DeviceAccessible>(bench: &Bench, resource: &R) {
    let (first, second) = (bench.stream(), bench.stream());
    for round in 0..3 {
        let held: Vec<_> =
            [100, 4096, 1 << 20, 3_000_001].map(|bytes| Held::of(resource, bytes, first.as_ref())).into();
        held.iter().for_each(|block| block.fill(round, first.as_ref()));
        second.wait_for_stream(&first).expect("nothing captures");
        held.iter().for_each(|block| block.check(round, second.as_ref()));
        held.into_iter().for_each(|block| block.free(second.as_ref()));
    }
    bench.check();
}

pub(crate) fn managed_blocks_migrate_and_hold_what_is_written(bench: &Bench) {
    let managed = Managed::new(&bench.device()).expect("the device has managed memory");
    let resource = Shadow::new(managed).prefetch();
    write_and_read(bench, &resource);
    assert_eq!((resource.book().queued(), resource.book().refused()), (12, 0));
    resource.upstream().assert_clean();
    let managed = Managed::new(&bench.device()).expect("the device has managed memory");
    let pool = managed.pool(PoolConfig::default()).expect("it starts with nothing").prefetch();
    write_and_read(bench, &pool);
    assert_eq!((pool.book().queued(), pool.book().refused()), (12, 0));
}

pub(crate) fn memory_that_stays_is_left_alone(bench: &Bench) {
    let resource = Cuda::new(&bench.device()).prefetch();
    assert_eq!(resource.book().migrates(), Some(false));
    write_and_read(bench, &resource);
    assert_eq!((resource.book().queued(), resource.book().refused()), (0, 0));
}

/// A source that nobody knows: the driver says what it is, once.
pub(crate) fn the_driver_is_asked_about_what_is_not_known(bench: &Bench) {
    let resource = crate::adaptor_contract::Plain::unknown(Cuda::new(&bench.device())).prefetch();
    assert_eq!(resource.book().migrates(), None);
    write_and_read(bench, &resource);
    assert_eq!((resource.book().migrates(), resource.book().refused()), (Some(false), 1));
    let managed = Managed::new(&bench.device()).expect("the device has managed memory");
    let resource = crate::adaptor_contract::Plain::unknown(managed).prefetch();
    write_and_read(bench, &resource);
    assert_eq!((resource.book().migrates(), resource.book().queued()), (Some(true), 12));
}
