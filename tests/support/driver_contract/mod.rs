//! The contract of `Driver`, clause by clause, for any machine.
//!
//! `clauses!` makes a test of each; the simulator and the GPU run the same functions. What a machine may lack is
//! asked of its attributes; what it lacks, it must refuse with the documented code.

#![allow(dead_code, reason = "each machine's tests use this module on their own")]
#![expect(unsafe_code, reason = "calls the driver")]

pub(crate) mod rig;

mod addresses;
mod captures;
mod contexts;
mod pools;
mod sharing;
mod virtual_memory;

pub(crate) use addresses::*;
pub(crate) use captures::*;
pub(crate) use contexts::*;
pub(crate) use pools::*;
pub(crate) use sharing::*;
pub(crate) use virtual_memory::*;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use alluvion::driver::{
    Advice, Call, CaptureMode, CaptureStatus, Code, DeviceAttribute, Driver, DriverError, ExportedMemory,
    FillValue, HandleType, Location, MapAccess, PinnedFlags, PoolAttribute, PoolKind, PoolProperties,
    RawStream, RelaxedCapture, StreamFlags,
};
use rig::{
    GPU, Memory, PAGE, PEBIBYTE, Pages, Pinned, Reservation, TestEvent, TestPool, TestStream, advise, code,
    copy, pattern, physical, read, release, write,
};

/// Makes a test of each clause. `$machine` makes or finds a machine and hands a `&dyn Driver` to the clause; `$misused`
/// does so for clauses that break a promise of the caller on purpose, where the driver must notice.
macro_rules! clauses {
    ($machine:path, $misused:path) => {
        $crate::driver_contract::clauses! { $machine:
            a_machine_names_itself
            a_device_that_is_not_there_is_refused
            every_attribute_can_be_asked_for
            memory_info_follows_what_is_allocated
            device_memory_is_aligned_and_disjoint
            memory_sizes_that_cannot_be_are_refused
            managed_memory_is_the_hosts_too
            pinned_memory_has_one_address
            registered_memory_is_pinned_until_it_is_unregistered
            copies_go_in_every_direction
            a_synchronous_copy_is_done
            work_on_one_stream_runs_in_order
            fills_repeat_their_value_and_nothing_else
            fills_that_are_not_aligned_are_refused
            an_event_that_was_never_recorded_is_done
            an_event_is_done_when_its_stream_is
            a_wait_covers_what_was_recorded_before_it
            a_wait_outlives_its_event
            a_stream_that_is_destroyed_finishes_its_work
            a_synchronised_context_has_no_work_left
            a_blocking_stream_is_ordered_with_the_legacy_stream
            freeing_waits_for_the_device
            stream_ids_are_never_used_twice
            priorities_are_clamped
            host_calls_run_once_and_in_order
            a_thread_has_a_capture_mode_of_its_own
            a_stream_that_does_not_capture_says_so
            a_pool_serves_in_stream_order
            a_pool_counts_and_trims
            a_pool_has_attributes
            a_pool_keeps_to_its_limit
            a_default_pool_is_always_the_same
            what_is_mapped_can_be_used
            mappings_move_with_their_contents
            mappings_that_cannot_be_are_refused
            a_reservation_is_aligned_as_asked
            physical_memory_lives_while_it_is_mapped
            memory_goes_out_as_it_was_made_to
            what_a_stream_captures_does_not_run
            a_capture_may_allocate
            a_capture_has_a_number_and_a_graph
            managed_memory_can_be_sent_and_advised_on
            any_thread_may_call
            codes_have_names
            attributes_have_numbers
            a_stream_knows_its_device
            each_thread_has_a_current_device
            a_context_is_made_current_where_none_is
            code_of_others_runs_with_a_current_device
            what_a_thread_has_made_current_stays_current
            an_address_knows_its_memory
            an_address_that_nobody_knows_is_no_error
            an_address_of_a_pool_or_a_mapping_is_the_devices
            a_device_has_a_number_that_all_know
            a_handle_is_for_other_processes
            a_dma_buf_is_of_whole_pages
            bytes_that_are_no_handle_are_refused
            a_shared_event_is_an_event
            what_goes_out_comes_in
            devices_reach_each_other_where_they_say_so
            a_pool_is_open_to_its_own_device
        }
        $crate::driver_contract::clauses! { $misused:
            an_event_of_a_capture_that_is_over_draws_nobody_in
            memory_that_is_not_registered_is_not_unregistered
            a_reservation_with_mappings_is_not_freed
            a_capture_that_is_broken_ends_all_the_same
        }
    };
    ($machine:path: $($clause:ident)+) => {
        $(#[test] fn $clause() { $machine($crate::driver_contract::$clause); })+
    };
}
pub(crate) use clauses;

/// Whether it is CUDA, or simulates it, and not another vendor's library.
fn speaks_cuda(driver: &dyn Driver) -> bool {
    !matches!(driver.name(), "hip" | "maca")
}

fn has(driver: &dyn Driver, attribute: DeviceAttribute) -> bool {
    driver.attribute(GPU, attribute).expect("it can be asked for") == 1
}

pub(crate) fn a_machine_names_itself(driver: &dyn Driver) {
    assert!(!driver.name().is_empty());
    // Other vendors count their own versions, in the same way.
    let oldest = if speaks_cuda(driver) { 12_000 } else { 1_000 };
    assert!(driver.version() >= oldest, "{}", driver.version());
    assert!(driver.device_count().expect("it knows") >= 1);
    assert!(!driver.device_name(GPU).expect("it is there").is_empty());
}

pub(crate) fn a_device_that_is_not_there_is_refused(driver: &dyn Driver) {
    let count = driver.device_count().expect("it knows");
    for ordinal in [count, u32::MAX] {
        let absent = |call| Some(DriverError::new(call, Code::INVALID_DEVICE));
        assert_eq!(driver.device_name(ordinal).err(), absent(Call::DeviceName));
        assert_eq!(driver.attribute(ordinal, DeviceAttribute::PciBus).err(), absent(Call::Attribute));
        assert_eq!(driver.memory_info(ordinal).err(), absent(Call::MemoryInfo));
        assert_eq!(driver.context_synchronize(ordinal).err(), absent(Call::ContextSynchronize));
        assert_eq!(driver.stream_create(ordinal, StreamFlags::default()).err(), absent(Call::StreamCreate));
        assert_eq!(driver.event_create(ordinal).err(), absent(Call::EventCreate));
        assert_eq!(driver.allocate_device(ordinal, 256).err(), absent(Call::AllocateDevice));
        let pinned = driver.allocate_pinned(ordinal, PAGE, PinnedFlags::default());
        assert_eq!(pinned.err(), absent(Call::AllocatePinned));
        assert_eq!(driver.pool_default(ordinal, PoolKind::Device).err(), absent(Call::PoolDefault));
        assert_eq!(driver.virtual_granularity(ordinal).err(), absent(Call::VirtualGranularity));
        assert_eq!(driver.set_context(ordinal).err(), absent(Call::ContextSet));
    }
}

pub(crate) fn every_attribute_can_be_asked_for(driver: &dyn Driver) {
    use DeviceAttribute as A;
    let ask = |attribute| driver.attribute(GPU, attribute).expect("it can be asked for");
    assert!((3..100).contains(&ask(A::ComputeMajor)));
    assert!((0..10).contains(&ask(A::ComputeMinor)));
    assert!(ask(A::Multiprocessors) >= 1);
    assert_eq!(ask(A::UnifiedAddressing), 1, "the contract needs one address space");
    assert_eq!(ask(A::MapHostMemory), 1);
    for flag in [
        A::MemoryPools,
        A::ManagedMemory,
        A::ConcurrentManagedAccess,
        A::PageableMemoryAccess,
        A::PageableUsesHostPageTables,
        A::VirtualMemory,
        A::Integrated,
        A::HostRegister,
    ] {
        assert!((0..=1).contains(&ask(flag)), "{flag:?} is yes or no");
    }
    assert!(ask(A::PoolHandleTypes) >= 0);
    assert!(ask(A::HostNumaNode) >= -1);
    assert!(ask(A::PciDomain) >= 0 && ask(A::PciBus) >= 0 && ask(A::PciDevice) >= 0);
}

pub(crate) fn codes_have_names(driver: &dyn Driver) {
    for &known in Code::KNOWN {
        assert_eq!(driver.code_name(known).as_deref(), known.name());
        assert!(driver.code_text(known).is_some_and(|text| !text.is_empty()), "{known}");
    }
    assert_eq!((driver.code_name(Code(12_345)), driver.code_text(Code(12_345))), (None, None));
}

pub(crate) fn attributes_have_numbers(driver: &dyn Driver) {
    use DeviceAttribute as A;
    for attribute in [A::ComputeMajor, A::ComputeMinor, A::Multiprocessors, A::PciBus, A::VirtualMemory] {
        assert_eq!(driver.attribute_by_number(GPU, attribute.number()), driver.attribute(GPU, attribute));
    }
    for unknown in [i32::MIN, -1, 0, 1_000_000] {
        assert_eq!(code(driver.attribute_by_number(GPU, unknown)), Err(Code::INVALID_VALUE), "{unknown}");
    }
    let count = driver.device_count().expect("it knows");
    let number = A::ComputeMajor.number();
    assert_eq!(code(driver.attribute_by_number(count, number)), Err(Code::INVALID_DEVICE));
}

pub(crate) fn a_stream_knows_its_device(driver: &dyn Driver) {
    // SAFETY: each stream that is asked for is live, or one that always is.
    let ask = |raw| unsafe { driver.stream_context_device(raw) };
    for ordinal in 0..driver.device_count().expect("it knows") {
        let raw = driver.stream_create(ordinal, StreamFlags::default()).expect("a stream can be made");
        assert_eq!(ask(raw), Ok(Some(ordinal)));
        // SAFETY: it was made above and nobody uses it.
        unsafe { driver.stream_destroy(ordinal, raw) }.expect("it is live");
    }
    // Which context a default stream is of, the current one says.
    for raw in [RawStream(0), RawStream::LEGACY, RawStream::PER_THREAD] {
        assert_eq!(code(ask(raw)), Err(Code::INVALID_HANDLE));
    }
}

pub(crate) fn memory_info_follows_what_is_allocated(driver: &dyn Driver) {
    const BYTES: usize = 64 << 20;
    // The first allocation of all may set things up that stay.
    drop(Memory::new(driver, BYTES));
    let before = driver.memory_info(GPU).expect("it can be asked for");
    assert!(before.free_bytes <= before.total_bytes && before.free_bytes > BYTES);
    let memory = Memory::new(driver, BYTES);
    let during = driver.memory_info(GPU).expect("it can be asked for");
    assert_eq!(during.total_bytes, before.total_bytes);
    assert!(during.free_bytes + BYTES <= before.free_bytes, "{during:?} after {before:?}");
    drop(memory);
    let after = driver.memory_info(GPU).expect("it can be asked for");
    assert!(after.free_bytes >= during.free_bytes + BYTES, "{after:?} after {during:?}");
}

pub(crate) fn device_memory_is_aligned_and_disjoint(driver: &dyn Driver) {
    let sizes = [1, 255, 256, 257, 4096, 1 << 20];
    let blocks: Vec<_> = sizes.iter().map(|bytes| (Memory::new(driver, *bytes), *bytes)).collect();
    let mut ranges: Vec<_> = blocks.iter().map(|(block, bytes)| (block.address, *bytes as u64)).collect();
    ranges.sort_unstable();
    assert!(ranges.iter().all(|(address, _)| *address != 0 && address % 256 == 0), "{ranges:x?}");
    assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{ranges:x?}");
    // Each holds what was written to it, to the last byte.
    for (i, (block, bytes)) in blocks.iter().enumerate() {
        write(driver, block.address, &pattern(*bytes, i as u8));
    }
    for (i, (block, bytes)) in blocks.iter().enumerate() {
        assert_eq!(read(driver, block.address, *bytes), pattern(*bytes, i as u8));
    }
}

pub(crate) fn memory_sizes_that_cannot_be_are_refused(driver: &dyn Driver) {
    let pinned = |bytes| driver.allocate_pinned(GPU, bytes, PinnedFlags::default());
    assert_eq!(code(driver.allocate_device(GPU, 0)), Err(Code::INVALID_VALUE));
    assert_eq!(code(driver.allocate_device(GPU, PEBIBYTE)), Err(Code::OUT_OF_MEMORY));
    assert_eq!(code(pinned(0)), Err(Code::INVALID_VALUE));
    assert_eq!(code(pinned(PEBIBYTE)), Err(Code::OUT_OF_MEMORY));
    if has(driver, DeviceAttribute::ManagedMemory) {
        assert_eq!(code(driver.allocate_managed(GPU, 0)), Err(Code::INVALID_VALUE));
    }
    if has(driver, DeviceAttribute::MemoryPools) {
        let (stream, pool) = (TestStream::new(driver), TestPool::new(driver, PoolProperties::default()));
        assert_eq!(code(pool.allocate(0, &stream)), Err(Code::INVALID_VALUE));
        assert_eq!(code(pool.allocate(PEBIBYTE, &stream)), Err(Code::OUT_OF_MEMORY));
        assert_eq!(stream.synchronize(), Ok(()));
    }
    if has(driver, DeviceAttribute::VirtualMemory) {
        assert_eq!(code(driver.memory_create(GPU, 0, HandleType::NONE)), Err(Code::INVALID_VALUE));
        assert_eq!(code(driver.memory_create(GPU, PEBIBYTE, HandleType::NONE)), Err(Code::OUT_OF_MEMORY));
    }
    // A refusal changes nothing.
    let memory = Memory::new(driver, 4096);
    write(driver, memory.address, &pattern(4096, 1));
    assert_eq!(read(driver, memory.address, 4096), pattern(4096, 1));
}

pub(crate) fn managed_memory_is_the_hosts_too(driver: &dyn Driver) {
    const BYTES: usize = 1 << 16;
    if !has(driver, DeviceAttribute::ManagedMemory) {
        assert_eq!(code(driver.allocate_managed(GPU, BYTES)), Err(Code::NOT_SUPPORTED));
        return;
    }
    let (stream, memory) = (TestStream::new(driver), Memory::managed(driver, BYTES));
    assert_eq!(memory.address % 256, 0);
    let pointer = std::ptr::with_exposed_provenance_mut::<u8>(memory.address as usize);
    // SAFETY: the memory is managed, `BYTES` long, and no work touches it yet.
    unsafe { pointer.copy_from(pattern(BYTES, 3).as_ptr(), BYTES) };
    let copied = Memory::new(driver, BYTES);
    stream.copy(copied.address, memory.address, BYTES).expect("it can be queued");
    stream.fill(memory.address + 10, FillValue::U8(0xAB), 5).expect("it can be queued");
    stream.synchronize().expect("the work is sound");
    assert_eq!(read(driver, copied.address, BYTES), pattern(BYTES, 3));
    // SAFETY: the work is done, and every byte was written.
    let host = unsafe { std::slice::from_raw_parts(pointer, BYTES) };
    assert_eq!(host[..10], pattern(BYTES, 3)[..10]);
    assert_eq!(host[10..15], [0xAB; 5]);
    assert_eq!(host[15..], pattern(BYTES, 3)[15..]);
}

pub(crate) fn pinned_memory_has_one_address(driver: &dyn Driver) {
    const BYTES: usize = 3 * PAGE;
    let (stream, memory) = (TestStream::new(driver), Memory::new(driver, BYTES));
    let (mut up, down) = (Pinned::new(driver, BYTES), Pinned::new(driver, BYTES));
    assert_eq!(up.address() % 4096, 0, "it is aligned to a page");
    up.bytes_mut().copy_from_slice(&pattern(BYTES, 5));
    // The device is given the host's address, as the destination of a fill too.
    stream.copy(memory.address, up.address(), BYTES).expect("it can be queued");
    stream.copy(down.address(), memory.address, BYTES).expect("it can be queued");
    stream.fill(down.address(), FillValue::U32(0x0403_0201), 2).expect("it can be queued");
    stream.synchronize().expect("the work is sound");
    assert_eq!(down.bytes()[..8], [1, 2, 3, 4, 1, 2, 3, 4]);
    assert_eq!(down.bytes()[8..], pattern(BYTES, 5)[8..]);
    // Neither portability nor mapping is needed for that.
    let flags = PinnedFlags { portable: false, mapped: false, write_combined: false };
    let plain = driver.allocate_pinned(GPU, BYTES, flags).expect("there is memory to pin");
    // SAFETY: it was just made and nobody uses it.
    assert_eq!(unsafe { driver.free_pinned(GPU, plain) }, Ok(()));
}

pub(crate) fn registered_memory_is_pinned_until_it_is_unregistered(driver: &dyn Driver) {
    let pages = Pages::new(4);
    if !has(driver, DeviceAttribute::HostRegister) {
        assert_eq!(code(pages.register(driver)), Err(Code::NOT_SUPPORTED));
        return;
    }
    assert_eq!(pages.register(driver), Ok(()));
    assert_eq!(code(pages.register(driver)), Err(Code::HOST_MEMORY_ALREADY_REGISTERED));
    let (stream, memory) = (TestStream::new(driver), Memory::new(driver, pages.len()));
    write(driver, memory.address, &pattern(pages.len(), 9));
    stream.copy(pages.address(), memory.address, pages.len()).expect("it can be queued");
    stream.fill(pages.address(), FillValue::U8(7), 1).expect("the device reaches it by the host's address");
    stream.synchronize().expect("the work is sound");
    assert_eq!(pages.bytes()[0], 7);
    assert_eq!(pages.bytes()[1..], pattern(pages.len(), 9)[1..]);
    assert_eq!(pages.unregister(driver), Ok(()));
    // It can be registered again, and has kept its bytes.
    assert_eq!(pages.register(driver), Ok(()));
    assert_eq!(pages.unregister(driver), Ok(()));
    assert_eq!(pages.bytes()[1..], pattern(pages.len(), 9)[1..]);
}

pub(crate) fn memory_that_is_not_registered_is_not_unregistered(driver: &dyn Driver) {
    let pages = Pages::new(1);
    let refused = Err(Code::HOST_MEMORY_NOT_REGISTERED);
    assert_eq!(code(pages.unregister(driver)), refused);
    if has(driver, DeviceAttribute::HostRegister) {
        assert_eq!(pages.register(driver), Ok(()));
        assert_eq!(pages.unregister(driver), Ok(()));
        assert_eq!(code(pages.unregister(driver)), refused);
    }
}

pub(crate) fn copies_go_in_every_direction(driver: &dyn Driver) {
    const BYTES: usize = 100_000;
    let (first, second) = (Memory::new(driver, BYTES), Memory::new(driver, BYTES));
    let (mut up, down) = (Pinned::new(driver, BYTES), Pinned::new(driver, BYTES));
    up.bytes_mut().copy_from_slice(&pattern(BYTES, 11));
    // Pinned to device, device to device, device to pinned, pinned to pinned; `read` and `write` do the pageable ones.
    assert_eq!(copy(driver, first.address, up.address(), BYTES), Ok(()));
    assert_eq!(copy(driver, second.address, first.address, BYTES), Ok(()));
    assert_eq!(copy(driver, down.address(), second.address, BYTES), Ok(()));
    assert_eq!(down.bytes(), pattern(BYTES, 11));
    assert_eq!(copy(driver, down.address(), up.address() + 1, 3), Ok(()));
    assert_eq!(down.bytes()[..4], [&up.bytes()[1..4], &up.bytes()[3..4]].concat());
    // A part, into the middle.
    assert_eq!(copy(driver, first.address + 7, second.address + 50_001, 1), Ok(()));
    let mut expected = pattern(BYTES, 11);
    expected[7] = expected[50_001];
    assert_eq!(read(driver, first.address, BYTES), expected);
    // Nothing at all.
    assert_eq!(copy(driver, first.address, second.address, 0), Ok(()));
    assert_eq!(read(driver, first.address, BYTES), expected);
}

pub(crate) fn a_synchronous_copy_is_done(driver: &dyn Driver) {
    // Larger than what a driver stages in one piece.
    const BYTES: usize = 4 << 20;
    let (first, second) = (Memory::new(driver, BYTES), Memory::new(driver, BYTES));
    let (stream, down) = (TestStream::new(driver), Pinned::new(driver, BYTES));
    for seed in 0..3 {
        // Another stream, which nothing orders after the copies but that they are done, finds their bytes.
        write(driver, first.address, &pattern(BYTES, seed));
        assert_eq!(copy(driver, second.address, first.address, BYTES), Ok(()));
        stream.copy(down.address(), second.address, BYTES).expect("it can be queued");
        stream.synchronize().expect("the work is sound");
        assert!(down.bytes() == pattern(BYTES, seed), "round {seed}");
    }
}

pub(crate) fn work_on_one_stream_runs_in_order(driver: &dyn Driver) {
    const BYTES: usize = 1 << 20;
    let (stream, memory) = (TestStream::new(driver), Memory::new(driver, BYTES));
    let down = Pinned::new(driver, BYTES);
    let stall = stream.stall();
    for value in 0..50 {
        stream.fill(memory.address, FillValue::U8(value), BYTES).expect("it can be queued");
    }
    stream.copy(down.address(), memory.address, BYTES).expect("it can be queued");
    stream.fill(memory.address, FillValue::U8(0xFF), BYTES).expect("it can be queued");
    if stream.query().expect("the work is sound") {
        assert!(stall.is_over());
    }
    stream.synchronize().expect("the work is sound");
    assert!(stall.is_over());
    assert_eq!(stream.query(), Ok(true));
    assert!(down.bytes().iter().all(|byte| *byte == 49));
    assert!(read(driver, memory.address, BYTES).iter().all(|byte| *byte == 0xFF));
}

pub(crate) fn fills_repeat_their_value_and_nothing_else(driver: &dyn Driver) {
    let (stream, memory) = (TestStream::new(driver), Memory::new(driver, 64));
    let mut expected = vec![0x11; 64];
    stream.fill(memory.address, FillValue::U8(0x11), 64).expect("it can be queued");
    stream.fill(memory.address + 1, FillValue::U8(0x22), 3).expect("it can be queued");
    stream.fill(memory.address + 6, FillValue::U16(0x3433), 5).expect("it can be queued");
    stream.fill(memory.address + 20, FillValue::U32(0x4847_4645), 3).expect("it can be queued");
    assert_eq!(
        stream.fill(memory.address + 40, FillValue::U32(u32::MAX), 0),
        Ok(()),
        "no repetition is legal"
    );
    stream.synchronize().expect("the work is sound");
    expected[1..4].fill(0x22);
    expected[6..16].copy_from_slice(&0x3433_u16.to_ne_bytes().repeat(5));
    expected[20..32].copy_from_slice(&0x4847_4645_u32.to_ne_bytes().repeat(3));
    assert_eq!(read(driver, memory.address, 64), expected);
}

pub(crate) fn fills_that_are_not_aligned_are_refused(driver: &dyn Driver) {
    let (stream, memory) = (TestStream::new(driver), Memory::new(driver, 64));
    stream.fill(memory.address, FillValue::U8(0), 64).expect("it can be queued");
    let refused = Err(Code::INVALID_VALUE);
    assert_eq!(code(stream.fill(memory.address + 1, FillValue::U16(1), 1)), refused);
    assert_eq!(code(stream.fill(memory.address + 1, FillValue::U32(1), 1)), refused);
    assert_eq!(code(stream.fill(memory.address + 2, FillValue::U32(1), 1)), refused);
    stream.synchronize().expect("a refusal changes nothing");
    assert_eq!(read(driver, memory.address, 64), [0; 64]);
}

pub(crate) fn an_event_that_was_never_recorded_is_done(driver: &dyn Driver) {
    let (stream, event) = (TestStream::new(driver), TestEvent::new(driver));
    assert_eq!(event.query(), Ok(true));
    assert_eq!(event.synchronize(), Ok(()));
    assert_eq!(stream.wait(&event), Ok(()));
    assert_eq!(stream.synchronize(), Ok(()));
}

pub(crate) fn an_event_is_done_when_its_stream_is(driver: &dyn Driver) {
    let (stream, event) = (TestStream::new(driver), TestEvent::new(driver));
    let stall = stream.stall();
    event.record(&stream);
    // It does not wait; and it does not say "done" too early.
    if event.query().expect("the work is sound") {
        assert!(stall.is_over());
    }
    assert_eq!(event.synchronize(), Ok(()));
    assert!(stall.is_over());
    assert_eq!(event.query(), Ok(true));
    // Recorded anew, it speaks of the new work.
    let stall = stream.stall();
    event.record(&stream);
    assert_eq!(event.synchronize(), Ok(()));
    assert!(stall.is_over());
}

pub(crate) fn a_wait_covers_what_was_recorded_before_it(driver: &dyn Driver) {
    const BYTES: usize = 1 << 16;
    let (writer, reader) = (TestStream::new(driver), TestStream::new(driver));
    let (memory, event) = (Memory::new(driver, BYTES), TestEvent::new(driver));
    let down = Pinned::new(driver, BYTES);
    stream_fill_and_wait(&writer, memory.address, BYTES, 1);
    let stall = writer.stall();
    writer.fill(memory.address, FillValue::U8(2), BYTES).expect("it can be queued");
    event.record(&writer);
    assert_eq!(reader.wait(&event), Ok(()));
    // The wait holds for the record before it, whatever becomes of the event.
    event.record(&reader);
    reader.copy(down.address(), memory.address, BYTES).expect("it can be queued");
    reader.synchronize().expect("the work is sound");
    assert!(stall.is_over());
    assert!(down.bytes().iter().all(|byte| *byte == 2));
    writer.synchronize().expect("the work is sound");
}

fn stream_fill_and_wait(stream: &TestStream<'_>, address: u64, bytes: usize, value: u8) {
    stream.fill(address, FillValue::U8(value), bytes).expect("it can be queued");
    stream.synchronize().expect("the work is sound");
}

pub(crate) fn a_wait_outlives_its_event(driver: &dyn Driver) {
    let (first, second) = (TestStream::new(driver), TestStream::new(driver));
    let event = TestEvent::new(driver);
    let stall = first.stall();
    event.record(&first);
    assert_eq!(second.wait(&event), Ok(()));
    drop(event);
    second.synchronize().expect("the work is sound");
    assert!(stall.is_over());
    first.synchronize().expect("the work is sound");
}

pub(crate) fn a_stream_that_is_destroyed_finishes_its_work(driver: &dyn Driver) {
    const BYTES: usize = 4096;
    let (stream, event) = (TestStream::new(driver), TestEvent::new(driver));
    let memory = Memory::new(driver, BYTES);
    let stall = stream.stall();
    stream.fill(memory.address, FillValue::U8(6), BYTES).expect("it can be queued");
    event.record(&stream);
    drop(stream);
    assert_eq!(event.synchronize(), Ok(()));
    assert!(stall.is_over());
    assert_eq!(read(driver, memory.address, BYTES), [6; BYTES]);
}

pub(crate) fn a_synchronised_context_has_no_work_left(driver: &dyn Driver) {
    let streams = [TestStream::new(driver), TestStream::new(driver), TestStream::new(driver)];
    let stalls = streams.each_ref().map(TestStream::stall);
    assert_eq!(driver.context_synchronize(GPU), Ok(()));
    assert!(stalls.iter().all(rig::Stall::is_over));
    assert!(streams.iter().all(|stream| stream.query() == Ok(true)));
}

pub(crate) fn a_blocking_stream_is_ordered_with_the_legacy_stream(driver: &dyn Driver) {
    let blocking = TestStream::with(driver, StreamFlags { blocking: true, priority: 0 });
    let legacy = TestStream::default_stream(driver, RawStream::LEGACY);
    let event = TestEvent::new(driver);
    let memory = Memory::new(driver, 64);
    // The legacy stream waits for it, and it for the legacy stream.
    let stall = blocking.stall();
    legacy.fill(memory.address, FillValue::U8(1), 64).expect("it can be queued");
    event.record(&legacy);
    assert_eq!(event.synchronize(), Ok(()));
    assert!(stall.is_over());
    let stall = legacy.stall();
    blocking.fill(memory.address, FillValue::U8(2), 64).expect("it can be queued");
    blocking.synchronize().expect("the work is sound");
    assert!(stall.is_over());
    assert_eq!(read(driver, memory.address, 64), [2; 64]);
}

pub(crate) fn freeing_waits_for_the_device(driver: &dyn Driver) {
    const BYTES: usize = 1 << 20;
    let (stream, memory) = (TestStream::new(driver), Memory::new(driver, BYTES));
    let stall = stream.stall();
    stream.fill(memory.address, FillValue::U8(1), BYTES).expect("it can be queued");
    drop(memory);
    assert!(stall.is_over());
    let pinned = Pinned::new(driver, BYTES);
    let stall = stream.stall();
    stream.fill(pinned.address(), FillValue::U8(1), BYTES).expect("it can be queued");
    drop(pinned);
    assert!(stall.is_over());
    stream.synchronize().expect("the work is sound");
}

pub(crate) fn stream_ids_are_never_used_twice(driver: &dyn Driver) {
    let legacy = TestStream::default_stream(driver, RawStream::LEGACY);
    let mut ids = vec![legacy.id().expect("every driver since 12.0 knows")];
    for _ in 0..20 {
        // Each takes, most likely, the handle that the one before gave back.
        let (stream, other) = (TestStream::new(driver), TestStream::new(driver));
        let id = stream.id().expect("every driver since 12.0 knows");
        assert_eq!(stream.id(), Ok(id), "it does not change");
        ids.extend([id, other.id().expect("every driver since 12.0 knows")]);
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

pub(crate) fn priorities_are_clamped(driver: &dyn Driver) {
    let (least, greatest) = driver.stream_priority_range(GPU).expect("it can be asked for");
    assert!(greatest <= least, "the greatest priority is the lower number");
    for priority in [least, greatest, i32::MIN, i32::MAX] {
        let stream = TestStream::with(driver, StreamFlags { blocking: false, priority });
        assert_eq!(stream.synchronize(), Ok(()));
    }
}

pub(crate) fn host_calls_run_once_and_in_order(driver: &dyn Driver) {
    let (stream, order) = (TestStream::new(driver), Arc::new(AtomicU32::new(0)));
    let (memory, down) = (Memory::new(driver, 4), Pinned::new(driver, 4));
    let address = down.address() as usize;
    for turn in 0..10_u32 {
        let order = Arc::clone(&order);
        stream.fill(memory.address, FillValue::U32(turn), 1).expect("it can be queued");
        stream.copy(down.address(), memory.address, 4).expect("it can be queued");
        stream.call(move || {
            let seen = std::ptr::with_exposed_provenance::<u32>(address);
            // SAFETY: the memory is pinned until the stream is synchronised, and the copy before this call is done.
            let seen = unsafe { seen.read() };
            // Stays at the first turn that came out of order.
            let _ = (seen == turn)
                .then(|| order.compare_exchange(turn, turn + 1, Ordering::SeqCst, Ordering::SeqCst));
        });
    }
    stream.synchronize().expect("the work is sound");
    assert_eq!(order.load(Ordering::SeqCst), 10);
    assert_eq!(Arc::strong_count(&order), 1, "the functions are gone");
}

pub(crate) fn a_thread_has_a_capture_mode_of_its_own(driver: &dyn Driver) {
    let exchange = |mode| driver.exchange_capture_mode(mode).expect("it can be exchanged");
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(exchange(CaptureMode::Relaxed), CaptureMode::Global);
            assert_eq!(exchange(CaptureMode::ThreadLocal), CaptureMode::Relaxed);
            thread::scope(|scope| {
                scope.spawn(|| assert_eq!(exchange(CaptureMode::Global), CaptureMode::Global));
            });
            let relaxed = RelaxedCapture::enter(driver).expect("it can be exchanged");
            assert_eq!(exchange(CaptureMode::Relaxed), CaptureMode::Relaxed);
            drop(relaxed);
            assert_eq!(exchange(CaptureMode::Global), CaptureMode::ThreadLocal);
        });
    });
}

pub(crate) fn a_stream_that_does_not_capture_says_so(driver: &dyn Driver) {
    assert_eq!(TestStream::new(driver).capture_status(), Ok(CaptureStatus::None));
    let legacy = TestStream::default_stream(driver, RawStream::LEGACY);
    assert_eq!(legacy.capture_status(), Ok(CaptureStatus::None));
}

pub(crate) fn managed_memory_can_be_sent_and_advised_on(driver: &dyn Driver) {
    const BYTES: usize = 4 << 20;
    if !has(driver, DeviceAttribute::ManagedMemory) || !has(driver, DeviceAttribute::ConcurrentManagedAccess)
    {
        // `managed_memory_is_the_hosts_too` tests what such a machine has.
        return;
    }
    let (stream, memory) = (TestStream::new(driver), Memory::managed(driver, BYTES));
    for advice in [
        Advice::ReadMostly(true),
        Advice::ReadMostly(false),
        Advice::PreferredLocation(Some(Location::Device(GPU))),
        Advice::PreferredLocation(Some(Location::Host)),
        Advice::PreferredLocation(None),
        Advice::AccessedBy(Location::Device(GPU), true),
        Advice::AccessedBy(Location::Device(GPU), false),
        Advice::AccessedBy(Location::Host, true),
        Advice::AccessedBy(Location::Host, false),
    ] {
        assert_eq!(advise(driver, memory.address, BYTES, advice), Ok(()), "{advice:?}");
    }
    // There and back again, bytes and all.
    write(driver, memory.address, &pattern(BYTES, 31));
    assert_eq!(stream.prefetch(memory.address, BYTES, Location::Device(GPU)), Ok(()));
    stream.fill(memory.address, FillValue::U8(1), 16).expect("it can be queued");
    assert_eq!(stream.prefetch(memory.address, BYTES, Location::Host), Ok(()));
    stream.synchronize().expect("the work is sound");
    let bytes = read(driver, memory.address, BYTES);
    assert!(bytes[..16] == [1; 16] && bytes[16..] == pattern(BYTES, 31)[16..]);
    // Neither a device that is not there, nor memory that does not move.
    let absent = Location::Device(driver.device_count().expect("it knows"));
    assert_eq!(code(stream.prefetch(memory.address, BYTES, absent)), Err(Code::INVALID_DEVICE));
    let advice = Advice::AccessedBy(absent, true);
    assert_eq!(code(advise(driver, memory.address, BYTES, advice)), Err(Code::INVALID_DEVICE));
    let fixed = Memory::new(driver, BYTES);
    let refused = Err(Code::INVALID_VALUE);
    assert_eq!(code(stream.prefetch(fixed.address, BYTES, Location::Device(GPU))), refused);
    assert_eq!(code(advise(driver, fixed.address, BYTES, Advice::ReadMostly(true))), refused);
    assert_eq!(stream.synchronize(), Ok(()));
}

pub(crate) fn any_thread_may_call(driver: &dyn Driver) {
    const BYTES: usize = 1 << 16;
    thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || {
                for turn in 0..20 {
                    let (stream, memory) = (TestStream::new(driver), Memory::new(driver, BYTES));
                    let down = Pinned::new(driver, BYTES);
                    let event = TestEvent::new(driver);
                    stream.fill(memory.address, FillValue::U8(seed * 20 + turn), BYTES).expect("queued");
                    event.record(&stream);
                    let other = TestStream::new(driver);
                    other.wait(&event).expect("queued");
                    other.copy(down.address(), memory.address, BYTES).expect("queued");
                    other.synchronize().expect("the work is sound");
                    assert!(down.bytes().iter().all(|byte| *byte == seed * 20 + turn));
                }
            });
        }
    });
}
