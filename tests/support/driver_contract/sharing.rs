//! What lends memory to other processes and devices, as far as one process can show it.

use alluvion::driver::{EventHandle, MemoryHandle, Sharing};

use super::*;

/// Runs the body where the machine can lend anything.
fn with_sharing(driver: &dyn Driver, body: impl FnOnce(&dyn Sharing)) {
    if let Some(sharing) = driver.sharing() {
        body(sharing);
    }
}

pub(crate) fn a_device_has_a_number_that_all_know(driver: &dyn Driver) {
    with_sharing(driver, |sharing| {
        let count = driver.device_count().expect("it knows");
        let mut numbers: Vec<_> = (0..count).map(|ordinal| sharing.device_uuid(ordinal)).collect();
        assert!(numbers.iter().all(Result::is_ok), "{numbers:?}");
        assert_eq!(sharing.device_uuid(GPU), numbers[0]);
        numbers.sort_unstable_by_key(|number| number.unwrap_or_default());
        numbers.dedup();
        assert_eq!(numbers.len(), count as usize);
        assert_eq!(code(sharing.device_uuid(count)), Err(Code::INVALID_DEVICE));
    });
}

pub(crate) fn a_dma_buf_is_of_whole_pages(driver: &dyn Driver) {
    with_sharing(driver, |sharing| {
        if !has(driver, DeviceAttribute::VirtualMemory) {
            return;
        }
        let unit = driver.virtual_granularity(GPU).expect("it is a number");
        let (reserved, memory) = (Reservation::new(driver, unit, 0), physical(driver, unit));
        reserved.map(0, unit, memory).expect("it fits");
        reserved.set_access(0, unit, MapAccess::ReadWrite).expect("it is mapped");
        // SAFETY: the memory is mapped there.
        match unsafe { sharing.dma_buf(GPU, reserved.address, unit) } {
            Ok(descriptor) => {
                assert!(has(driver, DeviceAttribute::DmaBuf));
                assert!(matches!(descriptor, ExportedMemory::FileDescriptor(_)));
                // SAFETY: as above.
                assert!(unsafe { sharing.dma_buf(GPU, reserved.address + 256, unit - 256) }.is_err());
            }
            Err(refused) => assert!(
                matches!(refused.code, Code::NOT_SUPPORTED | Code::NOT_FOUND),
                "{refused}: {:?}",
                has(driver, DeviceAttribute::DmaBuf)
            ),
        }
        reserved.unmap(0, unit).expect("it is mapped");
        release(driver, memory);
    });
}

pub(crate) fn a_handle_is_for_other_processes(driver: &dyn Driver) {
    with_sharing(driver, |sharing| {
        let memory = Memory::new(driver, 1 << 20);
        write(driver, memory.address, &pattern(4096, 51));
        // SAFETY: the address lies in the memory above.
        let handle = match unsafe { sharing.memory_handle(GPU, memory.address) } {
            Ok(handle) => handle,
            Err(refused) => return assert_eq!(refused.code, Code::NOT_SUPPORTED),
        };
        // SAFETY: the memory is freed after all that is done with the handle.
        let own = code(unsafe { sharing.memory_open(GPU, handle) });
        assert!(matches!(own, Err(Code::INVALID_CONTEXT | Code::INVALID_VALUE)), "{own:?}");
        assert_eq!(read(driver, memory.address, 4096), pattern(4096, 51));
    });
}

pub(crate) fn bytes_that_are_no_handle_are_refused(driver: &dyn Driver) {
    with_sharing(driver, |sharing| {
        for byte in [0, 0xff] {
            // SAFETY: there is no exporter that could free anything.
            assert!(unsafe { sharing.memory_open(GPU, MemoryHandle([byte; 64])) }.is_err());
            // SAFETY: as above.
            assert!(unsafe { sharing.event_open(GPU, EventHandle([byte; 64])) }.is_err());
        }
        assert!(sharing.memory_import(GPU, &ExportedMemory::Fabric(Box::new([7; 64]))).is_err());
        assert!(sharing.pool_import(GPU, &ExportedMemory::Fabric(Box::new([7; 64]))).is_err());
        #[cfg(unix)]
        {
            let (reader, _writer) = std::io::pipe().expect("there are descriptors");
            let foreign = ExportedMemory::FileDescriptor(reader.into());
            assert!(sharing.memory_import(GPU, &foreign).is_err());
            assert!(sharing.pool_import(GPU, &foreign).is_err());
        }
    });
}

pub(crate) fn a_shared_event_is_an_event(driver: &dyn Driver) {
    with_sharing(driver, |sharing| {
        let event = match sharing.event_create_shared(GPU) {
            Ok(event) => event,
            Err(refused) => return assert_eq!(refused.code, Code::NOT_SUPPORTED),
        };
        let event = TestEvent::of(driver, event);
        assert_eq!(event.query(), Ok(true));
        // SAFETY: the event was made for other processes, and is live.
        let handle = unsafe { sharing.event_handle(GPU, event.raw) }.expect("it was made for that");
        // SAFETY: the event is destroyed after all that is done with the handle.
        assert!(unsafe { sharing.event_open(GPU, handle) }.is_err(), "it is for other processes");
        let (first, second) = (TestStream::new(driver), TestStream::new(driver));
        let (memory, down) = (Memory::new(driver, 4096), Pinned::new(driver, 4096));
        let stall = first.stall();
        first.fill(memory.address, FillValue::U8(0x3c), 4096).expect("it can be queued");
        event.record(&first);
        second.wait(&event).expect("it can be queued");
        second.copy(down.address(), memory.address, 4096).expect("it can be queued");
        event.synchronize().expect("the work is sound");
        assert!(stall.is_over());
        second.synchronize().expect("the work is sound");
        assert!(down.bytes().iter().all(|byte| *byte == 0x3c));
    });
}

pub(crate) fn what_goes_out_comes_in(driver: &dyn Driver) {
    let way = HandleType::POSIX_FILE_DESCRIPTOR;
    if !has(driver, DeviceAttribute::MemoryDescriptors) || !has(driver, DeviceAttribute::VirtualMemory) {
        return;
    }
    with_sharing(driver, |sharing| {
        let bytes = driver.virtual_granularity(GPU).expect("it can be asked for").max(32 << 20);
        let memory = driver.memory_create(GPU, bytes, way).expect("there is memory");
        // SAFETY: the memory is live.
        let exported = unsafe { driver.memory_export(GPU, memory, way) }.expect("it was created for that");
        // Two handles of one memory, at two addresses.
        let imported = sharing.memory_import(GPU, &exported).expect("it was just exported");
        let (one, two) = (Reservation::new(driver, bytes, 0), Reservation::new(driver, bytes, 0));
        assert_eq!((one.map(0, bytes, memory), two.map(0, bytes, imported)), (Ok(()), Ok(())));
        for range in [&one, &two] {
            assert_eq!(range.set_access(0, bytes, MapAccess::ReadWrite), Ok(()));
        }
        write(driver, one.address, &pattern(4096, 52));
        assert_eq!(read(driver, two.address, 4096), pattern(4096, 52));
        // It outlives the exporter's part, and the descriptor.
        assert_eq!(one.unmap(0, bytes), Ok(()));
        release(driver, memory);
        drop(exported);
        release(driver, imported);
        assert_eq!(read(driver, two.address, 4096), pattern(4096, 52));
        let during = driver.memory_info(GPU).expect("it can be asked for").free_bytes;
        assert_eq!(two.unmap(0, bytes), Ok(()));
        let after = driver.memory_info(GPU).expect("it can be asked for").free_bytes;
        assert!(after >= during + bytes, "{after} after {during}");
    });
}

pub(crate) fn devices_reach_each_other_where_they_say_so(driver: &dyn Driver) {
    with_sharing(driver, |sharing| {
        let count = driver.device_count().expect("it knows");
        for (ordinal, peer) in (0..count).flat_map(|one| (0..count).map(move |two| (one, two))) {
            if ordinal == peer {
                continue;
            }
            if sharing.can_reach(ordinal, peer).expect("it knows") {
                assert_eq!(sharing.reach(ordinal, peer), Ok(()));
                assert_eq!(sharing.reach(ordinal, peer), Ok(()), "to ask again changes nothing");
            } else {
                assert_eq!(code(sharing.reach(ordinal, peer)), Err(Code::PEER_ACCESS_UNSUPPORTED));
            }
        }
        for absent in [(count, GPU), (GPU, count)] {
            assert_eq!(code(sharing.can_reach(absent.0, absent.1)), Err(Code::INVALID_DEVICE));
        }
    });
}

pub(crate) fn a_pool_is_open_to_its_own_device(driver: &dyn Driver) {
    with_sharing(driver, |sharing| {
        if !has(driver, DeviceAttribute::MemoryPools) {
            return;
        }
        let pool = TestPool::new(driver, PoolProperties::default());
        // SAFETY: the pool is live, and there is no work.
        let set = |accessor, access| unsafe { sharing.pool_set_access(GPU, pool.raw, accessor, access) };
        assert_eq!(set(GPU, MapAccess::ReadWrite), Ok(()));
        assert!(set(GPU, MapAccess::None).is_err(), "its own device keeps it");
        assert!(set(driver.device_count().expect("it knows"), MapAccess::ReadWrite).is_err());
        // SAFETY: the pool is live.
        let plain = unsafe { sharing.pool_export(GPU, pool.raw, HandleType::POSIX_FILE_DESCRIPTOR) };
        let lends =
            driver.attribute(GPU, DeviceAttribute::PoolHandleTypes).expect("it can be asked for") != 0;
        let refused = if lends { Code::INVALID_VALUE } else { Code::NOT_SUPPORTED };
        assert_eq!(code(plain), Err(refused), "it was not made for that");
    });
}
