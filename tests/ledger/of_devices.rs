//! The ledger that each device has.

#![expect(unsafe_code, reason = "frees blocks by their addresses")]

use alluvion::sim::SimConfig;
use alluvion::source::Cuda;
use alluvion::testing::Bench;
use alluvion::{AnyResource, DevicePtr, Error, ErrorKind, Layout, PoolConfig, ResourceExt, Sim, Stream};

use crate::raw_block::layout_of;

fn free(block: DevicePtr, stream: &Stream) -> Result<usize, Error> {
    // SAFETY: the tests order the uses of a block before its free.
    unsafe { stream.device().ledger().free(block, stream.as_ref()) }
}

#[test]
fn each_block_goes_back_to_the_resource_that_it_came_from() {
    let bench = Bench::sim();
    let (device, stream) = (bench.device(), bench.stream());
    let [first, second] = [0, 1].map(|_| AnyResource::new(Cuda::new(&device).stats()));
    let live = |resource: &AnyResource| {
        resource.find::<alluvion::adaptor::Stats>().map(|book| book.counts().bytes.live)
    };
    let ledger = device.ledger();
    let blocks = [&first, &second, &first]
        .map(|owner| ledger.allocate(owner, layout_of(100), stream.as_ref()).expect("there is memory"));
    assert_eq!((live(&first), live(&second)), (Some(200), Some(100)));
    assert_eq!((ledger.live_blocks(), ledger.live_bytes(), ledger.outstanding().len()), (3, 300, 3));
    assert_eq!(ledger.owner(blocks[1].offset(99)), Some(second.clone()));
    assert_eq!(free(blocks[1], &stream).expect("it is out"), 100);
    assert_eq!((live(&first), live(&second)), (Some(200), Some(0)));
    assert_eq!(free(blocks[1], &stream).unwrap_err().kind(), ErrorKind::Misuse);
    for block in [blocks[0], blocks[2]] {
        free(block, &stream).expect("it is out");
    }
    assert_eq!((live(&first), ledger.live_blocks(), ledger.containing(blocks[0])), (Some(0), 0, None));
    let nothing = ledger.allocate(&first, layout_of(0), stream.as_ref()).expect("nothing is asked for");
    assert_eq!(
        (nothing, free(nothing, &stream).expect("there is nothing")),
        (Layout::dangling(layout_of(0)), 0)
    );
    drop((first, second));
    bench.check();
}

#[test]
fn a_block_holds_its_resource() {
    let bench = Bench::sim();
    let (device, stream) = (bench.device(), bench.stream());
    let pool = AnyResource::new(Cuda::new(&device).pool(PoolConfig::default()).expect("there is memory"));
    let block = device.ledger().allocate(&pool, layout_of(100), stream.as_ref()).expect("there is memory");
    drop(pool);
    device.machine().reset_current_resources();
    assert!(device.ledger().owner(block).is_some());
    free(block, &stream).expect("it is out");
    bench.check();
}

#[test]
fn a_block_is_there_for_every_stream_and_goes_when_all_are_done() {
    let bench = Bench::sim();
    let (device, stream, other) = (bench.device(), bench.stream(), bench.stream());
    let pool = AnyResource::new(Cuda::new(&device).pool(PoolConfig::default()).expect("there is memory"));
    let block = device.ledger().allocate_sync(&pool, layout_of(4096)).expect("there is memory");
    crate::raw_block::Held::adopt(&pool, block, layout_of(4096)).fill(7, other.as_ref());
    device.ledger().record_stream(block, other.as_ref()).expect("it is out");
    // SAFETY: the only work on the block is on the stream that was recorded.
    assert_eq!(unsafe { device.ledger().free_sync(block) }.expect("it is out"), 4096);
    // SAFETY: it is refused.
    assert_eq!(unsafe { device.ledger().free_sync(block) }.unwrap_err().kind(), ErrorKind::Misuse);
    let again = device.ledger().allocate_sync(&pool, layout_of(4096)).expect("there is memory");
    crate::raw_block::Held::adopt(&pool, again, layout_of(4096)).fill(8, stream.as_ref());
    assert_eq!((again, free(again, &stream).expect("it is out")), (block, 4096));
    drop(pool);
    bench.check();
}

#[test]
fn devices_and_machines_have_ledgers_of_their_own() {
    let sims = [0, 1].map(|_| Sim::with_config(SimConfig::default().devices(2)));
    // Simulated machines count addresses from one number.
    let devices: Vec<_> = sims.iter().flat_map(|sim| [sim.device(0), sim.device(1)]).collect();
    let streams: Vec<_> = devices.iter().map(|device| device.stream().expect("a stream")).collect();
    let of = |at: usize| AnyResource::new(Cuda::new(&devices[at]));
    let blocks: Vec<_> = (0..4)
        .map(|at| {
            devices[at].ledger().allocate(&of(at), layout_of(100), streams[at].as_ref()).expect("memory")
        })
        .collect();
    assert_eq!(blocks[0], blocks[2]);
    assert_eq!(devices[0].ledger().containing(blocks[1]), None);
    for (wrong, kind) in [(1, ErrorKind::DeviceMismatch), (2, ErrorKind::DeviceMismatch)] {
        let ledger = devices[0].ledger();
        let refused = ledger.allocate(&of(wrong), layout_of(100), streams[0].as_ref());
        assert_eq!(refused.unwrap_err().kind(), kind);
        // SAFETY: it is refused.
        let refused = unsafe { ledger.free(blocks[0], streams[wrong].as_ref()) };
        assert_eq!(refused.unwrap_err().kind(), kind);
    }
    // A stream of the other device may use the block; one of another machine cannot.
    let ledger = devices[0].ledger();
    ledger.record_stream(blocks[0], streams[1].as_ref()).expect("it is out");
    let refused = ledger.record_stream(blocks[0], streams[2].as_ref());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::DeviceMismatch);
    for (block, stream) in blocks.into_iter().zip(&streams) {
        assert_eq!(free(block, stream).expect("it is out"), 100);
    }
    for sim in &sims {
        assert!(sim.take_hazards().is_empty());
    }
}
