//! Checks what a resource gives, and takes, at once.
//!
//! A resource may always answer "not at once". What it does at once it does as [`allocate`](Resource::allocate) and
//! [`deallocate`](Resource::deallocate) do, without a driver call; and what it does not do at once it has not begun.

use super::super::block::{Block, layout_of};
use super::super::{Bench, locks_held};
use crate::device::Device;
use crate::resource::{DeviceAccessible, Figures, Layout, Resource};
use crate::stream::{Stream, StreamRef};

/// Of classes of small, of medium and of large blocks.
const SIZES: [usize; 7] = [1, 256, 257, 5000, 70_000, 1 << 20, (2 << 20) + 1];

/// Calls `action`, and asserts that no driver call was made, and that no lock is held afterwards.
#[track_caller]
fn without_a_wait<T>(bench: &Bench, action: impl FnOnce() -> T) -> T {
    let before = bench.simulated().map(|sim| sim.calls());
    let answer = action();
    if let (Some(sim), Some(before)) = (bench.simulated(), before) {
        let made = sim.calls() - before;
        assert_eq!(made.total(), 0, "an answer at once took driver calls: {made:?}");
    }
    assert_eq!(locks_held().unwrap_or(0), 0, "locks are held after an answer at once");
    answer
}

/// Asks at once, and then as always. What comes is apart from all that is live.
#[track_caller]
fn take<'r, R: Resource>(
    bench: &Bench,
    resource: &'r R,
    layout: Layout,
    stream: StreamRef<'_>,
) -> Block<'r, R> {
    let block = match without_a_wait(bench, || Block::allocate_at_once(resource, layout, stream)) {
        Some(block) => block,
        None => {
            Block::allocate(resource, layout, stream).unwrap_or_else(|error| panic!("{layout:?}: {error}"))
        }
    };
    assert!(block.pointer.is_aligned_to(layout.block_align()), "{} for {layout:?}", block.pointer);
    block
}

/// Frees at once, and if that is refused, as always.
#[track_caller]
fn give<R: Resource>(bench: &Bench, block: Block<'_, R>, stream: StreamRef<'_>) {
    if let Err(block) = without_a_wait(bench, || block.free_at_once(stream)) {
        block.free(stream);
    }
}

/// What comes at once is aligned and apart from what is live, and takes no driver call, on streams of every kind; a stream of
/// another device gets nothing.
#[track_caller]
pub fn at_once_takes_no_driver_call<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let own = bench.stream();
    let resource = make(&bench.device());
    #[expect(unsafe_code, reason = "wraps a stream of the test")]
    // SAFETY: the stream is of this device, and outlives its wrapper and all clones of it, which nobody but the resource may have:
    // both are dropped before it. Nobody captures.
    let foreign = unsafe { Stream::from_raw(&bench.device(), own.raw()) }.expect("there are numbers left");
    let default = bench.device().default_stream();
    for stream in [&own, &foreign, &default] {
        let stream = stream.as_ref();
        let mut live: Vec<Block<'_, R>> = Vec::new();
        for bytes in [0, 1, 256, 257, 5000, 70_000, 1 << 20].map(|bytes| bench.at_most(bytes)) {
            for align in [1, Layout::MIN_ALIGN, resource.max_align().min(bench.at_most(64 << 10))] {
                let layout = Layout::new(bytes, align).expect("small sizes fit");
                let block = take(bench, &resource, layout, stream);
                give(bench, block, stream);
                let block = take(bench, &resource, layout, stream);
                let (from, to) = block.range();
                for (start, end) in live.iter().map(Block::range) {
                    assert!(
                        to <= start || end <= from,
                        "two live blocks overlap: {from:#x} to {to:#x}, and {start:#x} to {end:#x}"
                    );
                }
                live.push(block);
            }
        }
        live.into_iter().for_each(|block| give(bench, block, stream));
    }
    let layout = layout_of(bench.at_most(512));
    let elsewhere = Bench::sim();
    let streams = bench.second_device().into_iter().chain([elsewhere.device()]);
    for stream in streams.map(|device| device.stream().expect("the driver makes a stream")) {
        for layout in [layout, layout_of(0)] {
            let taken = without_a_wait(bench, || Block::allocate_at_once(&resource, layout, stream.as_ref()));
            assert!(taken.is_none(), "a stream of another device was served");
        }
    }
    bench.check();
}

/// A name, labels and a value.
type Line = String;

/// The figures of the resource and of all under it. Those of a log depend on when its writer runs, and the memory of the host
/// that a suballocator takes depends on the addresses that it has. What a guard has looked at by now is what the device is done
/// with, which only the simulated one repeats; and so is how many events were recorded to ask it.
fn figures_of(bench: &Bench, resource: &dyn Resource) -> Vec<Line> {
    let is_repeated = |name: &str| {
        !name.starts_with("alluvion_log_")
            && name != "alluvion_metadata_bytes"
            && (bench.is_simulated()
                || !["alluvion_guard_verified_total", "alluvion_events_recorded_total"].contains(&name))
    };
    let mut lines = Vec::new();
    let mut at = Some(resource);
    while let Some(resource) = at {
        if let Some(book) = resource.layer() {
            book.figures(&mut Figures::new(&[], &mut |figure| {
                if is_repeated(figure.name) {
                    lines.push(format!("{} {:?} {}", figure.name, figure.labels, figure.value));
                }
            }));
        }
        at = resource.upstream();
    }
    lines
}

/// The figures of the whole stack are the same whether a program asks at once, and again where that is refused, or does not.
#[track_caller]
pub fn at_once_changes_no_figure<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let run = |asks: usize| {
        let bench = bench.with_seed(0);
        let resource = make(&bench.device());
        let stream = bench.stream();
        let stream = stream.as_ref();
        let (mut live, mut lines) = (Vec::new(), Vec::new());
        for round in 0..3 {
            for bytes in SIZES.into_iter().chain([0]).map(|bytes| bench.at_most(bytes)) {
                let layout = layout_of(bytes);
                let at_once = (0..asks).find_map(|_| Block::allocate_at_once(&resource, layout, stream));
                live.push(match at_once {
                    Some(block) => block,
                    None => Block::of(&resource, bytes, stream),
                });
            }
            let keep = live.len() / 2;
            for block in live.drain(keep..) {
                let refused = (0..asks).try_fold(block, |block, _| match block.free_at_once(stream) {
                    Ok(()) => Err(()),
                    Err(block) => Ok(block),
                });
                if let Ok(block) = refused {
                    block.free(stream);
                }
            }
            lines.push(format!("round {round}"));
            lines.extend(figures_of(&bench, &resource));
        }
        live.into_iter().for_each(|block| block.free(stream));
        lines.extend(figures_of(&bench, &resource));
        bench.check();
        lines
    };
    let as_always = run(0);
    for asks in [1, 2] {
        let at_once = run(asks);
        for (left, right) in as_always.iter().zip(&at_once) {
            assert_eq!(left, right, "the left is a figure of a program that does not ask at once");
        }
        assert_eq!(as_always.len(), at_once.len());
    }
}

/// What is freed at once is ordered as what is freed, and what comes at once may be used at once: nobody finds the bytes of
/// another block.
#[track_caller]
pub fn blocks_at_once_are_ordered<R: DeviceAccessible>(bench: &Bench, make: impl Fn(&Device) -> R) {
    for seed in bench.seeds() {
        let bench = bench.with_seed(seed);
        let resource = make(&bench.device());
        let (first, second) = (bench.stream(), bench.stream());
        let streams = [first.as_ref(), second.as_ref()];
        let mut held = Vec::new();
        for word in 1..=24_u32 {
            let stream = streams[word as usize / 3 % 2];
            let layout = layout_of(bench.at_most([256, 4096, 20_000][word as usize % 3]));
            let block = take(&bench, &resource, layout, stream);
            block.fill(word, stream);
            if word % 4 == 0 {
                held.push((block, word, stream));
            } else {
                give(&bench, block, stream);
            }
        }
        bench.device().synchronize().expect("all work succeeds");
        for (block, word, stream) in held {
            block.check(word, stream);
            give(&bench, block, stream);
        }
        bench.check();
    }
}
