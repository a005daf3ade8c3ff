//! What a ledger says of the blocks that are out.

#![expect(unsafe_code, reason = "frees blocks by their addresses")]

use alluvion::sim::SimConfig;
use alluvion::source::{Cuda, Managed};
use alluvion::testing::Bench;
use alluvion::{
    DevicePtr, Error, ErrorKind, Layout, Ledger, MisuseKind, PoolConfig, Resource, ResourceExt, Sim, Stream,
};

use crate::raw_block::{Held, layout_of};

/// Frees a block of which the test has ordered all uses before.
pub(crate) fn free<R: Resource>(
    ledger: &Ledger<R>,
    block: DevicePtr,
    stream: &Stream,
) -> Result<usize, Error> {
    // SAFETY: the tests order the uses of a block before its free, or record their streams.
    unsafe { ledger.free(block, stream.as_ref()) }
}

#[test]
fn a_block_is_freed_with_its_own_layout_once() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let ledger = Ledger::new(Cuda::new(&bench.device()).stats());
    let block = ledger.allocate(layout_of(1000), stream.as_ref()).expect("there is memory");
    let aligned = Layout::new(5000, 512).expect("a power of two");
    assert_eq!(
        ledger.allocate(aligned, stream.as_ref()).unwrap_err().kind(),
        ErrorKind::UnsupportedAlignment
    );
    assert_eq!((ledger.live_blocks(), ledger.live_bytes()), (1, 1000));
    assert_eq!(free(&ledger, block, &stream).expect("it is out"), 1000);
    assert_eq!(ledger.resource().counts().bytes.live, 0);
    let again = free(&ledger, block, &stream).unwrap_err();
    assert_eq!(again.misuse().map(|misuse| misuse.what), Some(MisuseKind::NotOut));
    assert_eq!(
        again.to_string(),
        format!(
            "misuse: {block} was named, but no block is out there: it is free already, or did not come from here"
        )
    );
    assert_eq!((ledger.live_blocks(), ledger.live_bytes()), (0, 0));
    bench.check();
}

#[test]
fn the_middle_of_a_block_is_not_freed_and_says_where_it_begins() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let ledger =
        Ledger::new(Cuda::new(&bench.device()).pool(PoolConfig::default()).expect("there is memory"));
    let blocks: Vec<_> = [300, 1 << 20, 256]
        .map(|bytes| (ledger.allocate(layout_of(bytes), stream.as_ref()).expect("there is memory"), bytes))
        .into();
    for &(block, bytes) in &blocks {
        for inside in [0, 1, bytes / 2, bytes - 1] {
            let found = ledger.containing(block.offset(inside)).expect("it is inside");
            assert_eq!((found.block, found.layout), (block, layout_of(bytes)));
        }
        let error = free(&ledger, block.offset(bytes - 1), &stream).unwrap_err();
        assert_eq!(error.misuse().map(|misuse| misuse.what), Some(MisuseKind::InteriorPointer { block }));
        assert!(error.to_string().ends_with(&format!("from the middle of the block at {block}")), "{error}");
    }
    // Of 300 bytes, which take 512.
    assert!(ledger.containing(blocks[0].0.offset(300)).is_none());
    assert_eq!(ledger.live_blocks(), 3);
    let mut starts: Vec<_> = blocks.iter().map(|(block, _)| block.address()).collect();
    starts.sort_unstable();
    assert_eq!(ledger.outstanding().iter().map(|found| found.block.address()).collect::<Vec<_>>(), starts);
    for (block, _) in blocks {
        free(&ledger, block, &stream).expect("it is out");
    }
    drop(ledger);
    bench.check();
}

#[test]
fn no_bytes_are_no_block() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let ledger =
        Ledger::new(Cuda::new(&bench.device()).pool(PoolConfig::default()).expect("there is memory"));
    for align in [1, 256, 4096] {
        let nothing = Layout::new(0, align).expect("a power of two");
        let block = ledger.allocate(nothing, stream.as_ref()).expect("nothing is asked for");
        assert_eq!((block, ledger.live_blocks()), (nothing.dangling(), 0));
        assert_eq!(free(&ledger, block, &stream).expect("there is nothing to free"), 0);
        let block = ledger.allocate_sync(nothing).expect("nothing is asked for");
        // SAFETY: there is no memory.
        assert_eq!(unsafe { ledger.free_sync(block) }.expect("there is nothing to free"), 0);
    }
}

#[test]
fn a_stream_of_another_device_frees_nothing() {
    let sim = Sim::with_config(SimConfig::default().devices(2));
    let (stream, elsewhere) = (sim.device(0).stream().unwrap(), sim.device(1).stream().unwrap());
    let strange = Sim::new().device(0).stream().unwrap();
    let ledger = Ledger::new(Cuda::new(&sim.device(0)));
    let block = ledger.allocate(layout_of(100), stream.as_ref()).expect("there is memory");
    assert_eq!(free(&ledger, block, &elsewhere).unwrap_err().kind(), ErrorKind::DeviceMismatch);
    assert_eq!(free(&ledger, block, &strange).unwrap_err().kind(), ErrorKind::DeviceMismatch);
    assert_eq!(ledger.record_stream(block, strange.as_ref()).unwrap_err().kind(), ErrorKind::DeviceMismatch);
    assert_eq!(free(&ledger, block, &stream).expect("it is out"), 100);
}

/// Whoever gets the block next writes to it: a hazard unless the free has waited for the other stream, at whatever time the machine
/// runs its work.
#[test]
fn a_free_comes_after_the_streams_that_were_recorded() {
    for (records, address) in [(1, 0), (3, 0), (1, 4095), (0, 0)] {
        let bench = Bench::sim();
        let (own, other) = (bench.stream(), bench.stream());
        let ledger =
            Ledger::new(Cuda::new(&bench.device()).pool(PoolConfig::default()).expect("there is memory"));
        let block = ledger.allocate(layout_of(4096), own.as_ref()).expect("there is memory");
        other.wait_for_stream(&own).expect("a stream waits for another");
        for _ in 0..records {
            ledger.record_stream(block.offset(address), other.as_ref()).expect("it is out");
        }
        // After it was recorded, and before the free.
        Held::adopt(ledger.resource(), block, layout_of(4096)).fill(7, other.as_ref());
        free(&ledger, block, &own).expect("it is out");
        let next = Held::of(ledger.resource(), 4096, own.as_ref());
        assert_eq!(next.pointer, block, "the pool hands it out again");
        next.fill(8, own.as_ref());
        bench.device().synchronize().expect("all work succeeds");
        next.free(own.as_ref());
        let sim = bench.simulated().expect("it is simulated");
        assert_eq!(sim.take_hazards().is_empty(), records > 0, "recorded {records} times");
    }
}

#[test]
fn a_recorded_stream_lives_until_the_block_is_free() {
    let bench = Bench::sim();
    let (own, other) = (bench.stream(), bench.stream());
    let ledger =
        Ledger::new(Cuda::new(&bench.device()).pool(PoolConfig::default()).expect("there is memory"));
    let block = ledger.allocate(layout_of(4096), own.as_ref()).expect("there is memory");
    other.wait_for_stream(&own).expect("a stream waits for another");
    ledger.record_stream(block, other.as_ref()).expect("it is out");
    Held::adopt(ledger.resource(), block, layout_of(4096)).fill(7, other.as_ref());
    drop(other);
    // SAFETY: the only work on the block is on the stream that was recorded.
    assert_eq!(unsafe { ledger.free_sync(block) }.expect("it is out"), 4096);
    let next = Held::allocate_sync(ledger.resource(), layout_of(4096)).expect("there is memory");
    next.fill(8, own.as_ref());
    own.synchronize().expect("all work succeeds");
    next.free_sync();
    drop(ledger);
    bench.check();
}

#[test]
fn a_stranger_is_not_recorded() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let ledger = Ledger::new(Cuda::new(&bench.device()));
    let block = Held::of(ledger.resource(), 100, stream.as_ref());
    assert_eq!(ledger.record_stream(block.pointer, stream.as_ref()).unwrap_err().kind(), ErrorKind::Misuse);
    assert_eq!(free(&ledger, block.pointer, &stream).unwrap_err().kind(), ErrorKind::Misuse);
    block.free(stream.as_ref());
    bench.check();
}

#[test]
fn a_ledger_with_blocks_out_keeps_its_resource() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let ledger = Ledger::new(Managed::new(&bench.device()).expect("the device has it"));
    let block = ledger.allocate(layout_of(100), stream.as_ref()).expect("there is memory");
    assert_eq!(format!("{ledger:?}"), "Ledger(1 blocks of 100 bytes) over Managed(gpu 0)");
    let ledger = ledger.into_resource().unwrap_err();
    assert_eq!(free(&ledger, block, &stream).expect("it is out"), 100);
    assert!(ledger.into_resource().is_ok());
    bench.check();
}

/// What is out when a ledger is dropped is live in the resource.
#[test]
fn blocks_outlive_their_ledger() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let cuda = Cuda::new(&bench.device()).stats();
    let ledger = Ledger::new(&cuda);
    let block = ledger.allocate(layout_of(100), stream.as_ref()).expect("there is memory");
    drop(ledger);
    assert_eq!(cuda.counts().bytes.live, 100);
    let block = Held::adopt(&cuda, block, layout_of(100));
    block.fill(5, stream.as_ref());
    block.check(5, stream.as_ref());
    block.free(stream.as_ref());
    bench.check();
}

/// A block that is forgotten is freed in the resource, or nowhere.
#[test]
fn a_forgotten_block_belongs_to_whoever_forgot_it() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let ledger = Ledger::new(Cuda::new(&bench.device()).stats());
    let block = ledger.allocate(layout_of(100), stream.as_ref()).expect("there is memory");
    assert!(ledger.is_out(block) && !ledger.is_out(block.offset(1)));
    assert_eq!(ledger.forget(block.offset(1)).unwrap_err().kind(), ErrorKind::Misuse);
    let forgotten = ledger.forget(block).expect("it is out");
    assert_eq!((forgotten.block, forgotten.layout), (block, layout_of(100)));
    assert!(!ledger.is_out(block));
    assert_eq!(
        (ledger.live_blocks(), ledger.live_bytes(), ledger.resource().counts().bytes.live),
        (0, 0, 100)
    );
    assert_eq!(free(&ledger, block, &stream).unwrap_err().kind(), ErrorKind::Misuse);
    Held::adopt(ledger.resource(), forgotten.block, forgotten.layout).free(stream.as_ref());
    bench.check();
}
