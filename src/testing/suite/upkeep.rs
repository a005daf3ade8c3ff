//! Describing, trimming, accounting, ending.

use super::super::Bench;
use super::super::block::Block;
use crate::compose::ResourceExt;
use crate::device::Device;
use crate::resource::Resource;

/// `{}` describes the stack on one line, `{:#}` a layer a line.
#[track_caller]
pub fn the_description_is_one_line<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let resource = make(&bench.device());
    let line = resource.describe().to_string();
    assert!(!line.trim().is_empty() && !line.contains('\n'), "{line:?}");
    let mut layers = 1;
    let mut upstream = resource.upstream();
    while let Some(under) = upstream {
        layers += 1;
        upstream = under.upstream();
    }
    let lines = format!("{:#}", resource.describe());
    assert_eq!(lines.lines().count(), layers, "{layers} layers print as {lines:?}");
    assert!(lines.lines().all(|line| line.trim_start_matches("> ").len() > 1), "{lines:?}");
}

/// Trimming gives back what nobody uses, and nothing else: live blocks stay, what was given back can be had again, and on a
/// simulated machine, which nobody else uses, nothing is kept in the end.
#[track_caller]
pub fn trimming_is_harmless<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let taken = || {
        let free = bench.device().memory_info().map(|info| info.free_bytes);
        bench.simulated().map(|sim| (sim.live().allocations(), free.expect("a device knows its memory")))
    };
    let before = taken();
    let resource = make(&bench.device());
    let stream = bench.stream();
    resource.trim(0).expect("a resource that has served nothing can be trimmed");
    let bytes = bench.at_most(1 << 20);
    let live = Block::of(&resource, bytes, stream.as_ref());
    for _ in 0..3 {
        let freed = Block::of(&resource, bytes, stream.as_ref());
        let range = freed.range();
        freed.free(stream.as_ref());
        // Once behind work that is not over, once when all is quiet.
        resource.trim(0).expect("trimming succeeds");
        bench.device().synchronize().expect("all work succeeds");
        resource.trim(0).expect("trimming succeeds");
        resource.trim(usize::MAX).expect("keeping everything succeeds");
        assert!(live.range().1 <= range.0 || range.1 <= live.range().0);
    }
    live.free(stream.as_ref());
    bench.device().synchronize().expect("all work succeeds");
    resource.trim(0).expect("trimming succeeds");
    let after = taken();
    assert_eq!(
        after, before,
        "`trim(0)` gives back less than was taken: the left are the allocations that are out and the bytes that are free now, the \
         right those from before the resource was made; a layer that does not forward `trim` to its upstream looks so"
    );
    Block::of(&resource, bytes, stream.as_ref()).free(stream.as_ref());
    bench.check();
}

/// No more is free than there is.
#[track_caller]
pub fn memory_info_is_plausible<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let resource = make(&bench.device());
    let stream = bench.stream();
    let block = Block::of(&resource, bench.at_most(1 << 20), stream.as_ref());
    let info = resource.memory_info().expect("the resource knows its memory");
    assert!(0 < info.total_bytes && info.free_bytes <= info.total_bytes, "{info:?}");
    block.free(stream.as_ref());
}

/// When the resource is gone, and its blocks were freed before, so is everything that it took.
#[track_caller]
pub fn nothing_leaks<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    // Once to let the machine make what it keeps (contexts, spare events, a stream of its own), then in earnest.
    use_and_drop(bench, &make);
    let before = bench.footprint();
    for _ in 0..4 {
        use_and_drop(bench, &make);
    }
    let after = bench.footprint();
    // What hardware has free also changes where nothing is lost: then it takes more rounds to tell.
    let is_lost = after != before
        && (bench.is_simulated()
            || sinks(|| {
                use_and_drop(bench, &make);
                bench.device().memory_info().expect("a device knows its memory").free_bytes
            }));
    assert!(!is_lost, "the resource left something behind: {before:?}, then {after:?}");
    bench.check();
}

/// Whether what is free after each round goes down, however it swings.
///
/// What is free after managed memory was freed swings, because the driver keeps some of the pages on the device for a while. On an
/// H200 each [`use_and_drop`] raises it by 12 MiB or lowers it by 116 MiB, and after 32 rounds it is what it was. The swing is of
/// 128 MiB and pages have 2 MiB, so that 64 rounds see the top of every such swing.
fn sinks(mut free_after_a_round: impl FnMut() -> usize) -> bool {
    let mut most = || (0..64).map(|_| free_after_a_round()).max();
    let (first, second) = (most(), most());
    second < first
}

fn use_and_drop<R: Resource>(bench: &Bench, make: &impl Fn(&Device) -> R) {
    let resource = make(&bench.device());
    let (first, second) = (bench.stream(), bench.stream());
    // On hardware what is lost must stand out: 16 MiB a time where free memory is counted in pages of 2 MiB.
    let bytes = bench.at_most(16 << 20).min(bench.exhaustion_bytes());
    for bytes in [1, 3000, bytes] {
        let ordered = Block::of(&resource, bytes, first.as_ref());
        let synchronous =
            Block::allocate_sync(&resource, super::super::block::layout_of(bytes)).expect("memory is left");
        let elsewhere = Block::of(&resource, bytes, first.as_ref());
        second.wait_for_stream(&first).expect("a stream can wait for another");
        elsewhere.free(second.as_ref());
        synchronous.free_sync();
        ordered.free(first.as_ref());
    }
    drop((first, second));
    drop(resource);
    bench.device().synchronize().expect("all work succeeds");
}

#[cfg(test)]
mod tests {
    use super::sinks;

    const MIB: usize = 1 << 20;

    /// What is free after each round, of a device that swings and of a resource that loses `lost` bytes in each.
    fn swinging(step: usize, lost: usize) -> impl FnMut() -> usize {
        let mut rounds = 0;
        move || {
            rounds += 1;
            142_503 * MIB + rounds * step % (128 * MIB) - rounds * lost
        }
    }

    #[test]
    fn what_swings_does_not_sink() {
        for step in [0, 2, 12, 36, 126] {
            assert!(!sinks(swinging(step * MIB, 0)), "{step} MiB a round");
        }
    }

    #[test]
    fn a_page_a_round_is_found_below_the_swing() {
        for step in [0, 2, 12, 36, 126] {
            assert!(sinks(swinging(step * MIB, 2 * MIB)), "{step} MiB a round");
        }
    }
}
