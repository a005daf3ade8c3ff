//! What hurt the users of layers who asked for what cannot be.

use alluvion::adaptor::{
    Aligned, AlignedBook, Allowance, Guard, GuardBook, GuardConfig, LogConfig, Stats, Tracking, TrackingBook,
};
use alluvion::relief::Relief;
use alluvion::source::{Cuda, CudaAsync};
use alluvion::testing::Bench;
use alluvion::{AnyResource, Device, DeviceAccessible, ErrorKind, Layout, PoolConfig, Resource, ResourceExt};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

/// Every layer over one upstream.
fn layers<U: DeviceAccessible + Send + Sync + 'static>(make: impl Fn() -> U) -> Vec<AnyResource> {
    let log = LogConfig::default().write_to(std::io::sink()).expect("there is a thread for it");
    vec![
        AnyResource::new(make().aligned(4096).expect("a power of two")),
        AnyResource::new(make().aligned(MIB).expect("a power of two")),
        AnyResource::new(make().budget(Allowance::new("all", 1 << 60).child("part", 1 << 60))),
        AnyResource::new(make().failure_callback(|_| Relief::None)),
        AnyResource::new(make().fallback(make()).expect("they are of one device")),
        AnyResource::new(make().guard(GuardConfig::default()).expect("there is a stream and pinned memory")),
        AnyResource::new(make().limiting(1 << 60)),
        AnyResource::new(make().logging(log)),
        AnyResource::new(make().prefetch()),
        AnyResource::new(make().stats()),
        AnyResource::new(make().thread_safe()),
        AnyResource::new(make().tracking()),
        AnyResource::new(
            make()
                .guard(GuardConfig::default())
                .and_then(|guard| guard.aligned(512))
                .expect("there is a stream and pinned memory")
                .limiting(1 << 60)
                .tracking()
                .stats(),
        ),
    ]
}

/// Sizes near the largest became small ones when a layer rounded them up or added to them, and alignments were lost on the way
/// through (rmm 1156, 2002, 2402). Through each layer, over what aligns to 256 and over what aligns to 2 MiB.
pub(crate) fn absurd_sizes_and_alignments_through_layers(bench: &Bench) {
    for bytes in [usize::MAX, usize::MAX - 3, isize::MAX as usize + 1] {
        for align in [1, 32, 256, 512, 2 * MIB] {
            assert_eq!(Layout::new(bytes, align).unwrap_err().kind(), ErrorKind::SizeOverflow, "{bytes}");
        }
    }
    let device = bench.device();
    let pool = |device: &Device| {
        Cuda::new(device).pool(PoolConfig::default().checked(true)).expect("it starts with nothing")
    };
    let stacks = [
        layers(|| Cuda::new(&device)),
        layers(|| CudaAsync::new(&device).expect("the device has pools")),
        layers(|| pool(&device)),
    ];
    for resource in stacks.into_iter().flatten() {
        through(bench, &resource);
    }
    bench.check();
}

fn through(bench: &Bench, resource: &AnyResource) {
    let stream = bench.stream();
    let mut held = Vec::new();
    for align in [1, 32, 256, 512, 2 * MIB, 1 << 40] {
        for bytes in [0, 1, 1000, 70_000] {
            let layout = Layout::new(bytes, align).expect("a small layout");
            let answers =
                [Held::allocate(resource, layout, stream.as_ref()), Held::allocate_sync(resource, layout)];
            for answer in answers {
                match answer {
                    Ok(block) => {
                        assert!(align <= resource.max_align(), "{resource:?}: {layout:?}");
                        assert!(
                            block.pointer.is_aligned_to(layout.block_align()),
                            "{resource:?}: {layout:?}"
                        );
                        held.push(block);
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::UnsupportedAlignment, "{resource:?}: {error}");
                        assert!(align > resource.max_align(), "{resource:?}: {error}");
                    }
                }
            }
        }
    }
    let is_apart = |at: usize| {
        let block = &held[at];
        held[..at]
            .iter()
            .all(|other| block.layout.is_empty() || other.layout.is_empty() || !block.overlaps(other))
    };
    assert!((0..held.len()).all(is_apart), "{resource:?}");
    for (word, block) in held.iter().enumerate() {
        block.fill(word as u32, stream.as_ref());
    }
    for (word, block) in held.iter().enumerate() {
        block.check(word as u32, stream.as_ref());
    }
    // What no machine has, as large as a layout can be: refused by each layer and below it, and in no book.
    for bytes in [1 << 50, isize::MAX as usize / 2, isize::MAX as usize - 255] {
        for refused in
            [resource.allocate(layout_of(bytes), stream.as_ref()), resource.allocate_sync(layout_of(bytes))]
        {
            let error = refused.expect_err("no machine has so much");
            assert!(
                error.is_out_of_memory() && error.requested_bytes() >= Some(bytes),
                "{resource:?}: {error}"
            );
        }
    }
    held.into_iter().for_each(|block| block.free(stream.as_ref()));
    stream.synchronize().expect("all work succeeds");
    let books = [
        resource.find::<Aligned>().map(AlignedBook::moved_blocks),
        resource.find::<Guard>().map(GuardBook::live_blocks),
        resource.find::<Tracking>().map(TrackingBook::live_blocks),
        resource.find::<Allowance>().map(Allowance::used_bytes),
        resource.find::<Stats>().map(|tally| tally.counts().bytes.live as usize),
    ];
    assert!(books.iter().flatten().all(|live| *live == 0), "{resource:?}: {books:?}");
    if let Some(watch) = resource.find::<Guard>() {
        watch.check().expect("all work succeeds");
        assert!(watch.violations().is_empty(), "{}", watch.violations()[0]);
    }
}
