//! What a driver knows about an address.

use alluvion::driver::{
    AddressRange, DeviceAttribute, Driver, MapAccess, MemoryKind, PointerInfo, PoolProperties,
};

use super::has;
use super::rig::{GPU, Memory, PAGE, Pages, Pinned, Reservation, TestPool, TestStream, physical, release};

fn asked(driver: &dyn Driver, address: u64) -> Option<PointerInfo> {
    driver.pointer_attributes(address).expect("any address may be asked about")
}

fn range(driver: &dyn Driver, address: u64) -> Option<AddressRange> {
    driver.address_range(address).expect("any address may be asked about")
}

/// `None` where the driver cannot tell, too.
fn plain(driver: &dyn Driver, address: u64) -> Option<AddressRange> {
    driver.plain_allocation(address).expect("any address may be asked about")
}

fn holds(range: AddressRange, address: u64, bytes: usize) -> bool {
    range.start <= address && address + bytes as u64 <= range.start + range.bytes as u64
}

pub(crate) fn an_address_knows_its_memory(driver: &dyn Driver) {
    const BYTES: usize = 3 * PAGE;
    let of_gpu = |kind| Some(PointerInfo { kind, ordinal: Some(GPU) });
    let mut blocks = vec![(Memory::new(driver, BYTES), MemoryKind::Device)];
    if has(driver, DeviceAttribute::ManagedMemory) {
        blocks.push((Memory::managed(driver, BYTES), MemoryKind::Managed));
    }
    for (block, kind) in &blocks {
        for address in [block.address, block.address + 1, block.address + BYTES as u64 - 1] {
            assert_eq!(asked(driver, address), of_gpu(*kind), "{address:x} in {:x}", block.address);
            let found = range(driver, address).expect("the driver allocated it");
            assert_eq!(found.start, block.address);
            assert!(found.bytes >= BYTES, "{found:?}");
            let plain = plain(driver, address);
            assert!(plain.is_none_or(|plain| plain == found), "{plain:?} {found:?}");
        }
    }
    let pinned = Pinned::new(driver, BYTES);
    for address in [pinned.address(), pinned.address() + BYTES as u64 - 1] {
        assert_eq!(asked(driver, address), of_gpu(MemoryKind::PinnedHost));
        let found = range(driver, address);
        assert!(found.is_none_or(|found| holds(found, pinned.address(), BYTES)));
        // A driver may know either of both.
        let plain = plain(driver, address);
        assert!(plain.is_none_or(|plain| holds(plain, pinned.address(), BYTES)), "{plain:?}");
        assert!(plain.is_none() || found.is_none() || plain == found, "{plain:?} {found:?}");
    }
    if has(driver, DeviceAttribute::HostRegister) {
        let pages = Pages::new(2);
        pages.register(driver).expect("pages can be registered");
        assert_eq!(asked(driver, pages.address() + 1), of_gpu(MemoryKind::PinnedHost));
        let registered = plain(driver, pages.address() + 1);
        assert!(registered.is_none_or(|plain| plain.start == pages.address()), "{registered:?}");
        pages.unregister(driver).expect("they are registered");
        assert_eq!(asked(driver, pages.address() + 1), None);
        assert_eq!(plain(driver, pages.address() + 1), None);
    }
}

pub(crate) fn an_address_that_nobody_knows_is_no_error(driver: &dyn Driver) {
    let (pages, on_the_stack) = (Pages::new(1), 0_u8);
    let of_the_stack = (&raw const on_the_stack).expose_provenance() as u64;
    for address in [0, 1, of_the_stack, pages.address(), u64::MAX] {
        assert_eq!(asked(driver, address), None, "{address:x}");
        assert_eq!(range(driver, address), None, "{address:x}");
        assert_eq!(plain(driver, address), None, "{address:x}");
    }
}

pub(crate) fn an_address_of_a_pool_or_a_mapping_is_the_devices(driver: &dyn Driver) {
    let of_device = Some(PointerInfo { kind: MemoryKind::Device, ordinal: Some(GPU) });
    if has(driver, DeviceAttribute::MemoryPools) {
        let (stream, pool) = (TestStream::new(driver), TestPool::new(driver, PoolProperties::default()));
        let address = pool.allocate(PAGE, &stream).expect("there is memory");
        assert_eq!(asked(driver, address), of_device);
        assert_eq!(asked(driver, address + PAGE as u64 - 1), of_device);
        let found = range(driver, address + 1).expect("the driver allocated it");
        assert!(holds(found, address, PAGE), "{found:?}");
        assert_eq!(plain(driver, address), None);
        pool.free(address, &stream);
        stream.synchronize().expect("the work is sound");
    }
    if has(driver, DeviceAttribute::VirtualMemory) {
        let unit = driver.virtual_granularity(GPU).expect("it is a number");
        let (reserved, memory) = (Reservation::new(driver, 2 * unit, 0), physical(driver, unit));
        reserved.map(unit, unit, memory).expect("it fits");
        reserved.set_access(unit, unit, MapAccess::ReadWrite).expect("it is mapped");
        let address = reserved.address + unit as u64;
        assert_eq!(asked(driver, address), of_device);
        assert_eq!(asked(driver, address + unit as u64 - 1), of_device);
        let found = range(driver, address + 1).expect("it is mapped");
        assert!(holds(found, address, unit), "{found:?}");
        assert_eq!(plain(driver, address), None);
        assert_eq!(plain(driver, reserved.address), None, "nothing is mapped there");
        // Where it can be asked: pages are for network cards, too, wherever the device makes such.
        if let Ok(is_capable) = driver.is_rdma_capable(address) {
            assert_eq!(is_capable, Some(has(driver, DeviceAttribute::PageRdma)));
            assert_eq!(driver.is_rdma_capable(1), Ok(None));
        }
        reserved.unmap(unit, unit).expect("it is mapped");
        release(driver, memory);
    }
}
