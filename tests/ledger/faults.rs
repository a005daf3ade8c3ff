//! A driver call below a ledger fails: nothing is freed then, and nothing is lost.

#![expect(unsafe_code, reason = "frees blocks by their addresses, and captures")]

use alluvion::driver::{Call, Code};
use alluvion::sim::Fault;
use alluvion::source::Cuda;
use alluvion::testing::Bench;
use alluvion::{ErrorKind, Ledger, PoolConfig, ResourceExt};

use crate::answers::free;
use crate::raw_block::{Held, layout_of};

#[test]
fn what_was_not_allocated_is_not_entered() {
    let bench = Bench::sim();
    let (sim, stream) = (bench.simulated().expect("it is simulated"), bench.stream());
    let ledger = Ledger::new(Cuda::new(&bench.device()));
    sim.inject(Fault::every(Call::AllocateDevice, Code::OUT_OF_MEMORY));
    let layout = layout_of(100);
    assert!(ledger.allocate(layout, stream.as_ref()).is_err_and(|error| error.is_out_of_memory()));
    assert!(ledger.allocate_sync(layout).is_err_and(|error| error.is_out_of_memory()));
    assert_eq!(ledger.live_blocks(), 0);
    sim.clear_faults();
    let block = ledger.allocate(layout, stream.as_ref()).expect("there is memory");
    free(&ledger, block, &stream).expect("it is out");
    bench.check();
}

/// A free that cannot wait for the recorded stream leaves the block out, and can be made again.
#[test]
fn a_recorded_stream_that_cannot_be_waited_for_keeps_the_block_out() {
    for call in [Call::EventRecord, Call::StreamWaitEvent] {
        let bench = Bench::sim();
        let sim = bench.simulated().expect("it is simulated");
        let (own, other) = (bench.stream(), bench.stream());
        let pool = Cuda::new(&bench.device()).pool(PoolConfig::default()).expect("there is memory");
        let ledger = Ledger::new(pool);
        let block = ledger.allocate(layout_of(4096), own.as_ref()).expect("there is memory");
        other.wait_for_stream(&own).expect("a stream waits for another");
        ledger.record_stream(block, other.as_ref()).expect("it is out");
        Held::adopt(ledger.resource(), block, layout_of(4096)).fill(7, other.as_ref());
        sim.inject(Fault::every(call, Code::OUT_OF_MEMORY));
        let error = free(&ledger, block, &own).unwrap_err();
        assert_eq!((error.kind(), error.call()), (ErrorKind::OutOfMemory, Some(call)));
        assert_eq!((ledger.live_blocks(), ledger.live_bytes()), (1, 4096));
        sim.clear_faults();
        // The stream is still recorded.
        free(&ledger, block, &own).expect("it is out");
        let next = Held::of(ledger.resource(), 4096, own.as_ref());
        assert_eq!(next.pointer, block);
        next.fill(8, own.as_ref());
        next.free(own.as_ref());
        drop(ledger);
        bench.check();
    }
}

/// The wait on the host fails as the one on the device does.
#[test]
fn a_synchronous_free_that_cannot_wait_keeps_the_block_out() {
    let bench = Bench::sim();
    let sim = bench.simulated().expect("it is simulated");
    let (own, other) = (bench.stream(), bench.stream());
    let ledger = Ledger::new(Cuda::new(&bench.device()));
    let block = ledger.allocate(layout_of(4096), own.as_ref()).expect("there is memory");
    other.wait_for_stream(&own).expect("a stream waits for another");
    ledger.record_stream(block, other.as_ref()).expect("it is out");
    Held::adopt(ledger.resource(), block, layout_of(4096)).fill(7, other.as_ref());
    sim.inject(Fault::every(Call::EventRecord, Code::OUT_OF_MEMORY));
    // SAFETY: the only work on the block is on the stream that was recorded.
    let error = unsafe { ledger.free_sync(block) }.unwrap_err();
    assert_eq!((error.call(), ledger.live_blocks()), (Some(Call::EventRecord), 1));
    sim.clear_faults();
    // SAFETY: as above.
    assert_eq!(unsafe { ledger.free_sync(block) }.expect("it is out"), 4096);
    bench.check();
}

/// A capture cannot wait for work outside of it.
#[test]
fn a_free_in_a_capture_keeps_a_block_out_that_others_use() {
    let bench = Bench::sim();
    let (own, other) = (bench.stream(), bench.stream());
    let driver = bench.device().driver().clone();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default()).expect("there is memory");
    let ledger = Ledger::new(pool);
    let block = ledger.allocate(layout_of(4096), own.as_ref()).expect("there is memory");
    other.wait_for_stream(&own).expect("a stream waits for another");
    ledger.record_stream(block, other.as_ref()).expect("it is out");
    Held::adopt(ledger.resource(), block, layout_of(4096)).fill(7, other.as_ref());
    // SAFETY: the stream is live, and this thread alone uses it.
    unsafe { driver.stream_begin_capture(0, own.raw(), alluvion::driver::CaptureMode::Relaxed) }.unwrap();
    assert_eq!(free(&ledger, block, &own).unwrap_err().kind(), ErrorKind::Capture);
    assert_eq!(ledger.live_blocks(), 1);
    // SAFETY: as above.
    let graph = unsafe { driver.stream_end_capture(0, own.raw()) }.expect("the capture is whole");
    // SAFETY: the graph was made above, and is used no more.
    unsafe { driver.graph_destroy(0, graph) }.expect("it is live");
    free(&ledger, block, &own).expect("it is out");
    drop(ledger);
    bench.check();
}
