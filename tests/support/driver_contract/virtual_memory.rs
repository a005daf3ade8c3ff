//! What addresses and the memory behind them do apart.

use super::*;

/// Runs the body with the granularity on a machine with virtual memory; on one without, checks that it says so.
fn with_virtual_memory(driver: &dyn Driver, body: impl FnOnce(usize)) {
    if has(driver, DeviceAttribute::VirtualMemory) {
        let granularity = driver.virtual_granularity(GPU).expect("it can be asked for");
        assert!(granularity.is_power_of_two() && granularity >= 4096);
        body(granularity);
    } else {
        assert_eq!(code(driver.virtual_granularity(GPU)), Err(Code::NOT_SUPPORTED));
    }
}

pub(crate) fn what_is_mapped_can_be_used(driver: &dyn Driver) {
    with_virtual_memory(driver, |page| {
        let stream = TestStream::new(driver);
        let range = Reservation::new(driver, 4 * page, 0);
        assert_eq!(range.address % page as u64, 0);
        // Two allocations side by side are one range; the rest has nothing behind it.
        let (one, two) = (physical(driver, page), physical(driver, 2 * page));
        assert_eq!(range.map(0, page, one), Ok(()));
        assert_eq!(range.map(page, 2 * page, two), Ok(()));
        assert_eq!(range.set_access(0, 3 * page, MapAccess::ReadWrite), Ok(()));
        let expected = pattern(3 * page, 21);
        write(driver, range.address, &expected);
        assert!(read(driver, range.address, 3 * page) == expected);
        stream.fill(range.address + page as u64 - 4, FillValue::U8(0), 8).expect("it can be queued");
        stream.synchronize().expect("the work is sound");
        assert_eq!(read(driver, range.address + page as u64 - 5, 10)[1..9], [0; 8]);
        // Both mappings go in one call.
        assert_eq!(range.unmap(0, 3 * page), Ok(()));
        release(driver, one);
        release(driver, two);
        assert_eq!(range.free(), Ok(()));
        std::mem::forget(range);
    });
}

pub(crate) fn mappings_move_with_their_contents(driver: &dyn Driver) {
    with_virtual_memory(driver, |page| {
        let range = Reservation::new(driver, 2 * page, 0);
        let memory = physical(driver, page);
        assert_eq!(range.map(0, page, memory), Ok(()));
        assert_eq!(range.set_access(0, page, MapAccess::ReadWrite), Ok(()));
        write(driver, range.address, &pattern(page, 22));
        assert_eq!(range.unmap(0, page), Ok(()));
        assert_eq!(range.map(page, page, memory), Ok(()));
        assert_eq!(range.set_access(page, page, MapAccess::Read), Ok(()));
        assert!(read(driver, range.address + page as u64, page) == pattern(page, 22));
        assert_eq!(range.unmap(page, page), Ok(()));
        release(driver, memory);
    });
}

pub(crate) fn mappings_that_cannot_be_are_refused(driver: &dyn Driver) {
    with_virtual_memory(driver, |page| {
        let refused = Err(Code::INVALID_VALUE);
        assert_eq!(code(driver.virtual_reserve(GPU, 0, 0)), refused);
        assert_eq!(code(driver.virtual_reserve(GPU, page + 1, 0)), refused);
        assert_eq!(code(driver.memory_create(GPU, page + 1, HandleType::NONE)), refused);
        let range = Reservation::new(driver, 4 * page, 0);
        let (one, two) = (physical(driver, 2 * page), physical(driver, page));
        // Nothing is there yet.
        assert_eq!(code(range.set_access(0, page, MapAccess::ReadWrite)), refused);
        assert_eq!(range.unmap(0, page), Ok(()), "there is nothing to take away");
        assert_eq!(range.map(0, 2 * page, one), Ok(()));
        // Something is there already; and half of a mapping is no mapping.
        assert_eq!(code(range.map(page, page, two)), refused);
        assert_eq!(code(range.unmap(0, page)), refused);
        assert_eq!(code(range.map(2 * page + 1, page, two)), refused);
        // None of that has changed anything.
        assert_eq!(range.set_access(0, 2 * page, MapAccess::ReadWrite), Ok(()));
        write(driver, range.address, &pattern(2 * page, 23));
        assert!(read(driver, range.address, 2 * page) == pattern(2 * page, 23));
        // A gap in the range is no error.
        assert_eq!(range.unmap(0, 4 * page), Ok(()));
        release(driver, one);
        release(driver, two);
    });
}

pub(crate) fn a_reservation_with_mappings_is_not_freed(driver: &dyn Driver) {
    with_virtual_memory(driver, |page| {
        let range = Reservation::new(driver, 2 * page, 0);
        let memory = physical(driver, page);
        assert_eq!(range.map(page, page, memory), Ok(()));
        assert_eq!(code(range.free()), Err(Code::INVALID_VALUE));
        assert_eq!(range.set_access(page, page, MapAccess::ReadWrite), Ok(()), "it is as it was");
        assert_eq!(range.unmap(page, page), Ok(()));
        release(driver, memory);
    });
}

pub(crate) fn a_reservation_is_aligned_as_asked(driver: &dyn Driver) {
    with_virtual_memory(driver, |page| {
        for align in [page, 16 * page, 512 * page] {
            let range = Reservation::new(driver, page, align);
            assert_eq!(range.address % align as u64, 0, "aligned to {align}");
        }
        // Addresses are not memory: more of them than any device has bytes.
        let wide = Reservation::new(driver, 1 << 42, 0);
        assert_ne!(wide.address, 0);
    });
}

pub(crate) fn physical_memory_lives_while_it_is_mapped(driver: &dyn Driver) {
    with_virtual_memory(driver, |page| {
        // Large enough to be seen in what is free.
        let bytes = page.max(32 << 20);
        let range = Reservation::new(driver, bytes, 0);
        let memory = physical(driver, bytes);
        assert_eq!(range.map(0, bytes, memory), Ok(()));
        assert_eq!(range.set_access(0, bytes, MapAccess::ReadWrite), Ok(()));
        write(driver, range.address, &pattern(page, 24));
        release(driver, memory);
        assert!(read(driver, range.address, page) == pattern(page, 24));
        let during = driver.memory_info(GPU).expect("it can be asked for");
        assert_eq!(range.unmap(0, bytes), Ok(()));
        let after = driver.memory_info(GPU).expect("it can be asked for");
        assert!(after.free_bytes >= during.free_bytes + bytes, "{after:?} after {during:?}");
    });
}

pub(crate) fn memory_goes_out_as_it_was_made_to(driver: &dyn Driver) {
    with_virtual_memory(driver, |page| {
        let plain = physical(driver, page);
        for way in [HandleType::POSIX_FILE_DESCRIPTOR, HandleType::FABRIC, HandleType::NONE] {
            // SAFETY: the memory is live.
            assert!(unsafe { driver.memory_export(GPU, plain, way) }.is_err(), "{way}");
        }
        release(driver, plain);
        let ways = driver.attribute(GPU, DeviceAttribute::PoolHandleTypes).expect("it can be asked for");
        let way = HandleType::POSIX_FILE_DESCRIPTOR;
        if !HandleType(ways as u32).contains(way) {
            return;
        }
        let memory = driver.memory_create(GPU, page, way).expect("there is memory");
        // SAFETY: the memory is live.
        let exported = unsafe { driver.memory_export(GPU, memory, way) };
        assert!(matches!(exported, Ok(ExportedMemory::FileDescriptor(_))), "{exported:?}");
        release(driver, memory);
    });
}
