//! Which memory is a plain allocation: cudart does not say, and the driver behind it does. Nobody is asked behind the other libraries.

use alluvion::driver::runtime::Runtime;
use alluvion::driver::{AddressRange, Call, Code, Driver, DriverError, PinnedFlags, PoolKind, StreamFlags};

use crate::child::in_child;
use crate::owed::start;
use crate::stand_in::StandIn;

const CUDART: StandIn = StandIn::new(Runtime::Cudart, 13);
const BYTES: usize = 4096;

#[test]
fn a_plain_allocation_is_known_by_any_address_in_it() {
    for stand_in in [CUDART, StandIn::new(Runtime::Cudart, 12).lacking("LACKS_DRIVER")] {
        in_child("plain::a_plain_allocation_is_known_by_any_address_in_it", stand_in, &[], || {
            let (_sim, driver) = start(stand_in);
            let whole = driver.allocate_device(1, BYTES).expect("there is memory");
            let managed = driver.allocate_managed(1, BYTES).expect("there is memory");
            let pinned = driver.allocate_pinned(1, BYTES, PinnedFlags::default()).expect("there is memory");
            for start in [whole, managed, pinned.as_ptr().expose_provenance() as u64] {
                let range = AddressRange { start, bytes: BYTES };
                for address in [start, start + 1, start + BYTES as u64 - 1] {
                    assert_eq!(driver.plain_allocation(address), Ok(Some(range)), "{address:x}");
                }
            }
            assert_eq!(driver.context_device(), Ok(None), "nothing is left current");
        });
    }
}

#[test]
fn other_memory_is_no_plain_allocation() {
    in_child("plain::other_memory_is_no_plain_allocation", CUDART, &[], || {
        let (_sim, driver) = start(CUDART);
        let stream = driver.stream_create(1, StreamFlags::default()).expect("a stream can be made");
        // Pools of managed memory, too: that memory is managed does not make it plain.
        let pooled = [PoolKind::Device, PoolKind::Managed].map(|kind| {
            let pool = driver.pool_default(1, kind).expect("the machine has one");
            // SAFETY: pool and stream are live, and of this device.
            unsafe { driver.allocate_async(1, BYTES, pool, stream) }.expect("there is memory")
        });
        for address in [pooled[0], pooled[1] + 1, 7] {
            assert_eq!(driver.plain_allocation(address), Ok(None), "{address:x}");
        }
    });
}

#[test]
fn a_library_that_is_not_asked_knows_of_none() {
    for stand_in in [StandIn::new(Runtime::Hip, 7), StandIn::new(Runtime::Maca, 3)] {
        in_child("plain::a_library_that_is_not_asked_knows_of_none", stand_in, &[], || {
            let (_sim, driver) = start(stand_in);
            let whole = driver.allocate_device(1, BYTES).expect("there is memory");
            assert_eq!(driver.plain_allocation(whole), Ok(None));
        });
    }
}

#[test]
fn without_the_function_the_driver_behind_cudart_cannot_be_asked() {
    let lacking = CUDART.without("cuPointerGetAttributes");
    in_child("plain::without_the_function_the_driver_behind_cudart_cannot_be_asked", lacking, &[], || {
        let (_sim, driver) = start(lacking);
        assert_eq!(driver.missing(), ["cuPointerGetAttributes"]);
        let not_found = DriverError::new(Call::PointerAttributes, Code::NOT_FOUND);
        assert_eq!(driver.plain_allocation(7), Err(not_found));
    });
}
