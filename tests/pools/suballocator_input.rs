//! Bad input to arenas, fixed sizes and bins: a typed error, or what the documentation says; and nothing is lost.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvion::error::Cause;
use alluvion::relief::Relief;
use alluvion::source::Cuda;
use alluvion::suballoc::{Arena, ArenaConfig, Binning, BinningBuilder, FixedSize, FixedSizeConfig};
use alluvion::testing::{Bench, Shadow};
use alluvion::{Error, ErrorKind, PoolConfig, Resource, ResourceExt};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

/// A bench whose machine has made the stream that it keeps.
fn bench() -> Bench {
    let bench = Bench::sim();
    drop(Cuda::new(&bench.device()).pool(PoolConfig::default().initial(256)).expect("there is room"));
    bench
}

/// Refused, and nothing is kept.
#[track_caller]
fn refused<T>(bench: &Bench, made: impl FnOnce(Cuda) -> Result<T, Error>) -> Error {
    let before = bench.footprint();
    let Err(error) = made(Cuda::new(&bench.device())) else { panic!("it was made") };
    bench.device().synchronize().expect("nothing fails");
    assert_eq!(bench.footprint(), before, "{error}");
    error
}

#[track_caller]
fn is_senseless(error: &Error, what: &str) {
    assert!(matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::SizeOverflow), "{what}: {error}");
}

#[test]
fn arenas_that_make_no_sense_are_refused() {
    let bench = bench();
    let arena = |bytes| refused(&bench, |cuda| Arena::new(cuda, ArenaConfig::default().bytes(bytes)));
    for bytes in [0, 1, 255, 1 << 40, usize::MAX] {
        is_senseless(&arena(bytes), &bytes.to_string());
    }
    assert!(arena(65 * MIB).is_out_of_memory());
    assert!(arena(1 << 39).is_out_of_memory());
    let odd = Arena::new(Cuda::new(&bench.device()), ArenaConfig::default().bytes(MIB + 255)).unwrap();
    assert_eq!(odd.bytes(), MIB, "rounded down");
    // Half of what is free, if nothing is said.
    let half = Arena::new(Cuda::new(&bench.device()), ArenaConfig::default()).unwrap();
    assert_eq!(half.bytes(), (63 * MIB / 2) / 256 * 256);
}

#[test]
fn fixed_sizes_that_make_no_sense_are_refused() {
    let bench = bench();
    let config = FixedSizeConfig::default;
    for (what, config) in [
        ("no size", config().block(0)),
        ("no blocks", config().blocks(0)),
        ("neither", config().block(0).blocks(0)),
        ("a size that overflows", config().block(usize::MAX)),
        ("a size that overflows when it is rounded", config().block(isize::MAX as usize)),
        ("a product that overflows", config().block(1 << 40).blocks(1 << 40)),
        ("more than a segment", config().block(1 << 30).blocks(1 << 10)),
        ("a maximum below the first blocks", config().block(4096).blocks(4).maximum(3 * 4096)),
        ("no maximum", config().block(256).blocks(1).maximum(0)),
    ] {
        is_senseless(&refused(&bench, |cuda| FixedSize::new(cuda, config)), what);
    }
    assert!(refused(&bench, |cuda| FixedSize::new(cuda, config())).is_out_of_memory(), "128 MiB of 64");
}

#[test]
fn a_fixed_size_serves_its_size_and_no_more() {
    let bench = bench();
    let stream = bench.stream();
    let config = FixedSizeConfig::default().block(1000).blocks(2).maximum(6 * 1024);
    let fixed = FixedSize::new(Shadow::new(Cuda::new(&bench.device())), config).unwrap();
    assert_eq!(fixed.block_bytes(), 1024, "rounded up");
    let error = fixed.allocate(layout_of(1025), stream.as_ref()).unwrap_err();
    assert!(error.is_out_of_memory() && error.limit() == Some(1024), "{error}");
    for _ in 0..3 {
        let blocks: Vec<_> = (1..=6).map(|step| Held::of(&fixed, 170 * step, stream.as_ref())).collect();
        let error = fixed.allocate(layout_of(1), stream.as_ref()).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
        assert_eq!(fixed.status().live_bytes, 6 * 1024);
        blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
    }
    stream.synchronize().unwrap();
    assert_eq!(fixed.trim(0).unwrap(), 6 * 1024);
    fixed.upstream().assert_clean();
    bench.check();
}

#[test]
fn bins_that_make_no_sense_are_refused() {
    let bench = bench();
    type Builder = BinningBuilder<Cuda>;
    type Decide = fn(Builder) -> Builder;
    let cases: [(&str, Decide); 9] = [
        ("a bin of nothing", |bins| bins.bin(0)),
        ("two of one size", |bins| bins.bin(4096).bin(4096)),
        ("two of one size, rounded", |bins| bins.bin(4000).bin(4096)),
        ("one in a range and beside it", |bins| bins.range(10..=13).bin(4096)),
        ("an empty range", |bins| bins.range(RangeInclusive::new(14, 12))),
        ("a range beyond all sizes", |bins| bins.range(60..=63)),
        ("no blocks", |bins| bins.bin(4096).blocks(0)),
        ("a bin that overflows", |bins| bins.bin(usize::MAX)),
        ("blocks that overflow", |bins| bins.bin(1 << 40).blocks(1 << 20)),
    ];
    for (what, bins) in cases {
        is_senseless(&refused(&bench, |cuda| bins(Binning::over(cuda).blocks(2)).build()), what);
    }
    let elsewhere = Cuda::new(&bench.second_device().unwrap());
    let other = |cuda| Binning::with_given_bins(cuda).bin_over(4096, elsewhere.clone()).build();
    assert!(refused(&bench, other).is_device_mismatch());
    let large = |cuda| Binning::over(cuda).bin(4096).bin(8 * MIB).blocks(16).build();
    assert!(refused(&bench, large).is_out_of_memory(), "the first bin goes when the second cannot be had");
}

/// In whatever order they are named, a request goes to the smallest bin that serves it, and what is larger than all to the
/// upstream; a bin that has run out is not passed over.
#[test]
fn bins_are_sorted_and_serve_by_size() {
    let bench = bench();
    let stream = bench.stream();
    let two = |bytes: usize| {
        let config =
            FixedSizeConfig::default().block(bytes).blocks(2).maximum(2 * layout_of(bytes).rounded_bytes());
        FixedSize::new(Cuda::new(&bench.device()), config).unwrap()
    };
    let bins = Binning::with_given_bins(Shadow::new(Cuda::new(&bench.device())))
        .bin_over(100_000, two(100_000))
        .bin_over(1_000, two(1_000))
        .bin_over(10_000, two(10_000))
        .build()
        .unwrap();
    assert_eq!(bins.bins().collect::<Vec<_>>(), [1_024, 10_240, 100_096]);
    for bytes in [1, 1_000, 1_025, 10_000, 10_241, 100_000] {
        let blocks: Vec<_> = (0..2).map(|_| Held::of(&bins, bytes, stream.as_ref())).collect();
        let error = bins.allocate(layout_of(bytes), stream.as_ref()).expect_err("the bin has two");
        assert!(error.is_out_of_memory(), "{bytes}: {error}");
        assert_eq!(bins.upstream().live().len(), 0, "a bin is not passed over for {bytes} bytes");
        blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
    }
    let large = Held::of(&bins, 100_097, stream.as_ref());
    assert_eq!(bins.upstream().live().len(), 1, "what no bin serves is the upstream's");
    large.free(stream.as_ref());
    bins.upstream().assert_clean();
    bench.check();
}

#[test]
fn no_bins_are_the_upstream() {
    let bench = bench();
    let stream = bench.stream();
    let bins = Binning::over(Shadow::new(Cuda::new(&bench.device()))).build().unwrap();
    assert_eq!(bins.bins().len(), 0);
    let block = Held::of(&bins, 1, stream.as_ref());
    assert_eq!(bins.upstream().live().len(), 1);
    block.free(stream.as_ref());
    bins.upstream().assert_clean();
}

/// They are dropped with live blocks, as a pool is.
#[test]
fn they_are_dropped_with_live_blocks() {
    let bench = bench();
    let stream = bench.stream();
    let before = bench.footprint();
    let leave = |resource: &dyn Fn() -> Box<dyn Resource>| {
        let resource = resource();
        for bytes in [300, 3000] {
            let _ = Held::of(&resource, bytes, stream.as_ref()).into_parts();
        }
        Held::of(&resource, 2000, stream.as_ref()).free(stream.as_ref());
        drop(resource);
        bench.device().synchronize().unwrap();
        assert_eq!(bench.footprint(), before);
    };
    let cuda = || Cuda::new(&bench.device());
    leave(&|| Box::new(Arena::new(cuda(), ArenaConfig::default().bytes(4 * MIB)).unwrap()));
    leave(&|| Box::new(FixedSize::new(cuda(), FixedSizeConfig::default().block(4096)).unwrap()));
    leave(&|| Box::new(Binning::over(cuda()).range(9..=12).build().unwrap()));
    bench.check();
}

/// An arena tells of what it cannot serve, and asks its handlers after that.
#[test]
fn an_arena_tells_and_asks() {
    let bench = bench();
    let stream = bench.stream();
    let (told, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (telling, asking, before) = (Arc::clone(&told), Arc::clone(&asked), Arc::clone(&told));
    let config = ArenaConfig::default()
        .bytes(2 * MIB)
        .on_out_of_memory(move |report| {
            assert_eq!((report.cause, report.maximum_bytes), (Cause::Limit, Some(2 * MIB)), "{report:?}");
            assert!(
                before.load(Ordering::Relaxed) > asking.fetch_add(1, Ordering::Relaxed),
                "told, then asked"
            );
            Relief::None
        })
        .dump_on_failure(move |report| {
            assert_eq!(report.live_bytes, 2 * MIB - 256);
            telling.fetch_add(1, Ordering::Relaxed);
        });
    let arena = Arena::new(Cuda::new(&bench.device()), config).unwrap();
    let most = Held::of(&arena, 2 * MIB - 256, stream.as_ref());
    let error = arena.allocate(layout_of(512), stream.as_ref()).unwrap_err();
    assert!(error.is_out_of_memory() && error.out_of_memory_report().is_some(), "{error}");
    assert_eq!((told.load(Ordering::Relaxed), asked.load(Ordering::Relaxed)), (1, 1));
    // More than the arena is: said at once, or after it was tried.
    assert!(arena.allocate(layout_of(3 * MIB), stream.as_ref()).unwrap_err().is_out_of_memory());
    most.free(stream.as_ref());
    Held::of(&arena, 2 * MIB, stream.as_ref()).free(stream.as_ref());
    bench.check();
}
