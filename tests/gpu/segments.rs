//! Segments that stay, as the driver sees them: one allocation each, for network cards and other drivers of the kernel.

#![expect(unsafe_code, reason = "lends a segment, and puts a pool to sleep")]
#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use alluvion::driver::HandleType;
use alluvion::source::{Mapped, MappedConfig, Pinned};
use alluvion::suballoc::SegmentHooks;
use alluvion::{Device, DeviceVec, Layout, Machine, PoolConfig, Resource, ResourceExt, SleepConfig};

const MIB: usize = 1 << 20;
const SEGMENT: usize = 64 * MIB;

fn device() -> Device {
    Machine::of_environment().and_then(|machine| machine.device(0)).expect("these tests need a GPU")
}

#[test]
fn a_segment_is_one_allocation_that_others_may_reach() {
    let device = device();
    let can = device.capabilities().expect("the driver says").clone();
    let handles = can.page_handle_types.0 & HandleType::POSIX_FILE_DESCRIPTOR.0;
    let config = MappedConfig::default().handle_types(HandleType(handles));
    let pool = Mapped::with_config(&device, config).expect("it has pages");
    let pool = pool.pool(PoolConfig::default().registered(SEGMENT)).expect("a right configuration");
    let layouts = [(1000, 256), (3 * MIB, 4096), (SEGMENT, 4096), (SEGMENT + 1, 256)];
    let blocks = layouts.map(|(bytes, align)| {
        let layout = Layout::new(bytes, align).expect("it is small");
        (pool.allocate_sync(layout).expect("there is memory"), layout)
    });
    let segments = pool.segments();
    assert_eq!(segments.iter().map(|segment| segment.bytes / SEGMENT).sum::<usize>(), 4);
    for segment in &segments {
        let address = segment.address.address();
        let range =
            device.driver().address_range(address + 5).expect("it can be asked").expect("it is mapped");
        assert_eq!((range.start, range.bytes), (address, segment.bytes), "one handle");
        match device.driver().is_rdma_capable(address) {
            Ok(is_capable) => assert_eq!(is_capable, Some(can.page_rdma)),
            Err(error) => println!("is_rdma_capable: {error}"),
        }
        // SAFETY: the pool keeps the segment.
        match unsafe { device.dma_buf(address, segment.bytes) } {
            Ok(_) => assert!(can.dma_buf),
            Err(error) => assert!(!can.dma_buf, "{error}"),
        }
    }
    println!("pages for RDMA: {}, dma-buf: {}", can.page_rdma, can.dma_buf);
    for (block, layout) in blocks {
        let base = segments.iter().rfind(|segment| segment.address <= block).expect("it lies in one");
        assert!((block.address() - base.address.address()).is_multiple_of(layout.align() as u64));
        if handles != 0 {
            // SAFETY: the block is live.
            let export = unsafe { pool.export(block, layout) }.expect("its pages are exported");
            assert_eq!(export.visible_bytes(), base.bytes);
        }
        // SAFETY: the block came from this pool with this layout, and nothing uses it.
        unsafe { pool.deallocate_sync(block, layout) };
    }
    assert_eq!(pool.trim(0).expect("it can be trimmed"), 4 * SEGMENT);
}

#[test]
fn hooks_hear_of_segments_around_a_sleep() {
    let device = device();
    let stream = device.stream().expect("the driver makes one");
    let known: Arc<Mutex<BTreeMap<u64, usize>>> = Arc::default();
    let [adding, dropping] = [Arc::clone(&known), Arc::clone(&known)];
    let hooks = SegmentHooks::default()
        .on_added(move |segment| {
            adding.lock().expect("no panic").insert(segment.address.address(), segment.bytes);
            Ok(())
        })
        .on_dropped(move |segment| {
            dropping.lock().expect("no panic").remove(&segment.address.address());
            Ok(())
        });
    let config = PoolConfig::default().registered(SEGMENT).segment_hooks(hooks);
    let pool = Mapped::new(&device).and_then(|mapped| mapped.pool(config)).expect("it has pages");
    let host = Pinned::new(&device).expect("it can pin");
    let numbers: Vec<u32> = (0..30_000_000).collect();
    let vector = DeviceVec::from_slice_in(&numbers, &stream, &pool).expect("there is memory");
    let before = known.lock().expect("no panic").clone();
    assert_eq!(before.values().sum::<usize>(), 2 * SEGMENT);
    // SAFETY: nothing uses the vector until it is awake.
    let mut sleeper =
        unsafe { pool.sleep(SleepConfig::default().keep_in(&host)) }.expect("nothing forbids it");
    assert!(known.lock().expect("no panic").is_empty());
    sleeper.wake().expect("there is memory");
    assert_eq!(*known.lock().expect("no panic"), before);
    assert!(vector.to_vec(&stream).expect("it is awake") == numbers);
    drop((sleeper, vector));
    pool.freeze();
    assert_eq!(pool.trim(0).expect("nothing is done"), 0);
    drop(pool);
    assert!(known.lock().expect("no panic").is_empty());
}
