//! What a pool over pages says of its memory, what it refuses to take back, and what it leaves when it ends or when the driver
//! fails.

#![expect(unsafe_code, reason = "frees what must not be freed, where it is refused")]

use alluvion::driver::{Call, Code};
use alluvion::sim::Fault;
use alluvion::source::{Cuda, Mapped};
use alluvion::suballoc::{BlockState, PageBudget, Snapshot};
use alluvion::testing::Stall;
use alluvion::{DevicePtr, MisuseKind, Pool, PoolConfig, Resource, Stream};

use crate::paged::{MIB, PAGE, exact, free_all, machine, machine_without_aliases, pool};
use crate::raw_block::{Held, layout_of};

/// Blocks of a page each, of which every third one is live and the others have no memory.
fn islands<'p>(pool: &'p Pool<Mapped>, count: usize, stream: &Stream) -> Vec<Held<'p, Pool<Mapped>>> {
    let mut blocks: Vec<_> = (0..3 * count).map(|_| Held::of(pool, PAGE, stream.as_ref())).collect();
    blocks.sort_by_key(|block| block.pointer);
    let (mut kept, mut at) = (Vec::new(), 0);
    for block in blocks {
        if at % 3 == 1 {
            kept.push(block);
        } else {
            block.free(stream.as_ref());
        }
        at += 1;
    }
    stream.synchronize().expect("nothing fails");
    pool.trim(0).expect("nothing fails");
    kept
}

/// Blocks lie side by side in each segment, and their sums are those of the status.
#[track_caller]
fn assert_tiled(snapshot: &Snapshot) {
    let mut blocks = snapshot.blocks.iter().peekable();
    for segment in &snapshot.segments {
        let end = segment.address.address() + segment.bytes as u64;
        let mut at = segment.address.address();
        while let Some(block) = blocks.next_if(|block| block.address.address() < end) {
            assert_eq!(block.address.address(), at, "{snapshot:?}");
            at += block.bytes as u64;
        }
        assert_eq!(at, end, "{snapshot:?}");
    }
    assert_eq!(blocks.next(), None, "{snapshot:?}");
    let bytes: usize = snapshot.segments.iter().map(|segment| segment.bytes).sum();
    assert_eq!(bytes, snapshot.status.reserved_bytes);
}

#[test]
fn a_segment_of_a_snapshot_is_a_stretch_of_memory() {
    let sim = machine(32);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, exact());
    let mut kept = islands(&pool, 4, &stream);
    let snapshot = pool.snapshot();
    assert_tiled(&snapshot);
    assert_eq!((snapshot.segments.len(), snapshot.blocks.len(), snapshot.status.pages), (4, 4, 4));
    // A block that lies over a hole joins what is on both sides, with a free rest.
    kept.push(Held::of(&pool, 2 * PAGE - 1000, stream.as_ref()));
    let snapshot = pool.snapshot();
    assert_tiled(&snapshot);
    assert_eq!((snapshot.segments.len(), snapshot.status.pages), (3, 6));
    let free: usize =
        snapshot.blocks.iter().filter(|block| block.state != BlockState::Live).map(|block| block.bytes).sum();
    assert_eq!(free, snapshot.status.free_bytes);
    free_all(kept, &stream);
    assert_tiled(&pool.snapshot());
}

#[test]
fn a_free_where_no_memory_is_says_what_is_wrong() {
    let sim = machine(32);
    let stream = sim.device(0).stream().unwrap();
    for checked in [true, false] {
        let pool = pool(&sim, exact().checked(checked));
        let kept = islands(&pool, 3, &stream);
        let before = pool.status();
        let refused = |address: u64| {
            let block = DevicePtr::new(address).expect("it is not null");
            // SAFETY: the block is not live, and so the free is refused.
            let error = unsafe { pool.try_deallocate(block, layout_of(PAGE), stream.as_ref()) }.unwrap_err();
            error.misuse().unwrap_or_else(|| panic!("{error}")).what
        };
        let first = kept[0].pointer.address();
        // The block before was freed, and its page was unmapped; the end of the range never had memory.
        for address in [first - PAGE as u64, first - 256, first + 100 * PAGE as u64] {
            let what = refused(address);
            let right = matches!(what, MisuseKind::DoubleFree | MisuseKind::ForeignPointer);
            assert!(right, "{address:#x}: {what:?}");
        }
        assert_eq!(refused(first + (4 << 40)), MisuseKind::ForeignPointer);
        assert_eq!(refused(first + 256), MisuseKind::InteriorPointer { block: kept[0].pointer });
        assert_eq!(pool.status(), before, "a free that was refused has changed something");
        free_all(kept, &stream);
    }
    drop(stream);
    sim.assert_clean();
}

#[test]
fn a_refused_request_leaves_the_source_what_it_had() {
    let sim = machine(32);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, exact());
    let kept = Held::of(&pool, 4 * PAGE, stream.as_ref());
    // Another user of the device.
    let beside = Cuda::new(&sim.device(0));
    let other = Held::allocate_sync(&beside, layout_of(20 * PAGE)).unwrap();
    let free = sim.device(0).memory_info().unwrap().free_bytes;
    let error = pool.allocate(layout_of(12 * PAGE), stream.as_ref()).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    assert_eq!((pool.pool_size(), sim.device(0).memory_info().unwrap().free_bytes), (4 * PAGE, free));
    Held::of(&pool, free, stream.as_ref()).free(stream.as_ref());
    kept.free(stream.as_ref());
    other.free_sync();
}

#[test]
fn a_pool_that_ends_leaves_no_page() {
    for budget in [None, Some(PageBudget::TimesPeak(1.0))] {
        let sim = machine(32);
        let stream = sim.device(0).stream().unwrap();
        let config = || budget.map_or_else(exact, |budget| exact().budget(budget));
        // Free, cached, live, behind work that is not over, and with holes.
        drop(pool(&sim, config().initial(5 * PAGE)));
        let with_live = pool(&sim, config());
        let live = islands(&with_live, 4, &stream);
        let pending = Held::of(&with_live, 3 * PAGE, stream.as_ref());
        let mut stall = Stall::on(stream.as_ref());
        pending.free(stream.as_ref());
        live.iter().for_each(|block| block.touch(1, stream.as_ref()).unwrap());
        stall.let_go_soon();
        // A block that is not freed ends with its pool.
        drop(live);
        drop(with_live);
        drop(stall);
        drop(stream);
        sim.assert_clean();
        assert_eq!((sim.live().mappings, sim.live().reservations), (0, 0));
    }
}

#[test]
fn a_pool_that_lost_its_context_ends_without_a_panic() {
    let sim = machine(32);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, exact());
    let kept = islands(&pool, 2, &stream);
    sim.poison(0, Code::ILLEGAL_ADDRESS);
    let error = pool.allocate(layout_of(20 * PAGE), stream.as_ref()).unwrap_err();
    assert!(error.is_context_lost(), "{error}");
    free_all(kept, &stream);
    let _ = pool.trim(0);
    drop((pool, stream));
    assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
}

/// What a program does with pages: grow, free, move, trim and grow into the holes. Returns the first error.
fn use_pages(pool: &Pool<Mapped>, stream: &Stream) -> Result<(), alluvion::Error> {
    let mut blocks = Vec::new();
    let mut outcome = Ok(());
    for _ in 0..6 {
        match Held::allocate(pool, layout_of(PAGE), stream.as_ref()) {
            Ok(block) => blocks.push(block),
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    let mut kept = Vec::new();
    for (at, block) in blocks.into_iter().enumerate() {
        if at % 2 == 1 { kept.push(block) } else { block.free(stream.as_ref()) }
    }
    outcome = outcome.and(stream.synchronize());
    for bytes in [3 * PAGE, 2 * PAGE, 5 * MIB] {
        match Held::allocate(pool, layout_of(bytes), stream.as_ref()) {
            Ok(block) => {
                outcome = outcome.and(block.touch(3, stream.as_ref()));
                block.free(stream.as_ref());
            }
            Err(error) => outcome = outcome.and(Err(error)),
        }
        outcome = outcome.and(stream.synchronize()).and(pool.trim(PAGE).map(drop));
    }
    free_all(kept, stream);
    outcome.and(stream.synchronize()).and(pool.trim(0).map(drop))
}

const MAPPING: [Call; 6] = [
    Call::VirtualReserve,
    Call::MemoryCreate,
    Call::MemoryMap,
    Call::MemorySetAccess,
    Call::MemoryUnmap,
    Call::MemoryRelease,
];

/// Pages of the device: enough for those that are lost where none can be released.
const DEVICE: usize = 48;

/// Each call fails, once or from then on; the same pool works when it no longer does.
fn fail_each(config: impl Fn() -> PoolConfig, most: usize, for_ever: bool) {
    fail_each_on(machine, &config, most, for_ever);
    fail_each_on(machine_without_aliases, &config, most, for_ever);
}

fn fail_each_on(
    machine: fn(usize) -> alluvion::Sim,
    config: &dyn Fn() -> PoolConfig,
    most: usize,
    for_ever: bool,
) {
    let sim = machine(DEVICE);
    let stream = sim.device(0).stream().unwrap();
    let before = sim.calls();
    {
        let pool = pool(&sim, config());
        use_pages(&pool, &stream).expect("nothing fails");
        assert!(pool.status().moves > 0, "{:?}", pool.status());
    }
    let made = sim.calls() - before;
    drop(stream);
    let (mut runs, mut errors) = (0, 0);
    for call in MAPPING {
        assert!(made[call] > 0, "{call:?} is never made");
        for nth in 1..=if for_ever { 1 } else { made[call] } {
            for code in [Code::OUT_OF_MEMORY, Code::NOT_SUPPORTED, Code::INVALID_VALUE] {
                let sim = machine(DEVICE);
                let stream = sim.device(0).stream().unwrap();
                let pool = pool(&sim, config());
                let words = || format!("{call:?} no. {nth} failing with {code}, for ever: {for_ever}");
                sim.inject(if for_ever { Fault::every(call, code) } else { Fault::nth(call, nth, code) });
                runs += 1;
                errors += u32::from(use_pages(&pool, &stream).is_err());
                assert!(for_ever || sim.faults_left() == 0, "{} did not strike", words());
                sim.clear_faults();
                let (live, status) = (sim.live(), pool.status());
                assert_eq!(status.live_blocks, 0, "{}: {status:?}", words());
                assert!(
                    live.mappings >= status.pages && live.physical >= status.pages,
                    "{}: {live}",
                    words()
                );
                assert!(
                    sim.machine().driver().may_alias() || live.mappings == status.pages,
                    "{}: {live}",
                    words()
                );
                // A page that could not be released is lost; the rest of the device is there.
                let lost = live.physical - status.pages;
                assert!(lost == 0 || call == Call::MemoryRelease, "{}: {live}", words());
                use_pages(&pool, &stream).unwrap_or_else(|error| panic!("{}: {error}", words()));
                let rest = Held::of(&pool, most.min(DEVICE - lost) * PAGE, stream.as_ref());
                rest.touch(1, stream.as_ref()).unwrap();
                rest.free(stream.as_ref());
                assert_tiled(&pool.snapshot());
                drop((pool, stream));
                let left = sim.live();
                assert_eq!((left.mappings, left.reservations, left.physical), (0, 0, lost), "{}", words());
                assert!(sim.hazards().is_empty(), "{}: {:?}", words(), sim.hazards());
            }
        }
    }
    // The pool gets over one that comes once, by asking again.
    assert!(if for_ever { errors > 0 } else { errors < runs / 8 }, "{errors} of {runs} runs had an error");
}

#[test]
fn a_mapping_call_that_fails_once_loses_nothing() {
    fail_each(|| exact().budget(PageBudget::TimesPeak(1.0)), DEVICE, false);
    fail_each(|| exact().maximum(16 * PAGE).budget(PageBudget::Bytes(0)), 16, false);
}

#[test]
fn a_mapping_call_that_fails_for_ever_loses_nothing() {
    fail_each(|| exact().budget(PageBudget::TimesPeak(1.0)), DEVICE, true);
}

/// While the mapping stays, and afterwards: nothing else is mapped there.
#[test]
fn addresses_where_a_failed_mapping_could_not_be_undone_are_never_chosen_again() {
    for budget in [None, Some(PageBudget::TimesPeak(1.0))] {
        let sim = machine_without_aliases(DEVICE);
        let stream = sim.device(0).stream().unwrap();
        let pool = pool(&sim, budget.map_or_else(exact, |budget| exact().budget(budget)));
        let mut kept = vec![Held::of(&pool, PAGE, stream.as_ref())];
        // Of three pages the second one gets no access, and cannot be unmapped. The pool asks for three others.
        sim.inject(Fault::nth(Call::MemorySetAccess, 2, Code::NOT_PERMITTED));
        sim.inject(Fault::every(Call::MemoryUnmap, Code::NOT_PERMITTED));
        kept.push(Held::of(&pool, 3 * PAGE, stream.as_ref()));
        let lost = sim.live().mappings - pool.status().pages;
        assert_eq!(lost, 1, "{}", sim.live());
        // While it is so, and afterwards: each request is served.
        for has_ended in [false, true] {
            if has_ended {
                sim.clear_faults();
            }
            for pages in [1, 2, 5, 3] {
                kept.push(Held::of(&pool, pages * PAGE, stream.as_ref()));
            }
        }
        kept.iter().for_each(|block| block.touch(1, stream.as_ref()).unwrap());
        assert_eq!(sim.live().mappings, pool.status().pages + lost, "{}", sim.live());
        assert_tiled(&pool.snapshot());
        free_all(kept, &stream);
        stream.synchronize().unwrap();
        use_pages(&pool, &stream).unwrap();
        // The end tries once more, and then the range goes too.
        drop((pool, stream));
        let left = sim.live();
        assert_eq!((left.mappings, left.reservations, left.physical), (0, 0, 0), "{left}");
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
    }
}

#[test]
fn a_range_with_lost_addresses_is_leaked_at_the_end() {
    let sim = machine(DEVICE);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, exact());
    sim.inject(Fault::nth(Call::MemorySetAccess, 1, Code::NOT_PERMITTED));
    sim.inject(Fault::every(Call::MemoryUnmap, Code::NOT_PERMITTED));
    let block = Held::of(&pool, PAGE, stream.as_ref());
    assert_eq!((sim.live().mappings, pool.status().pages), (2, 1), "{}", sim.live());
    block.free(stream.as_ref());
    sim.clear_faults();
    sim.inject(Fault::every(Call::MemoryUnmap, Code::NOT_PERMITTED));
    drop((pool, stream));
    assert_eq!((sim.live().mappings, sim.live().reservations), (2, 1), "{}", sim.live());
    assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
}

/// Each mapping gets no access, and the first attempts to undo that fail.
#[test]
fn a_mapping_that_is_undone_late_loses_nothing() {
    for failures in 1..4 {
        let sim = machine(DEVICE);
        let stream = sim.device(0).stream().unwrap();
        let pool = pool(&sim, exact());
        sim.inject(Fault::nth(Call::MemorySetAccess, 1, Code::NOT_PERMITTED));
        (0..failures).for_each(|_| sim.inject(Fault::nth(Call::MemoryUnmap, 1, Code::NOT_PERMITTED)));
        Held::of(&pool, PAGE, stream.as_ref()).free(stream.as_ref());
        stream.synchronize().unwrap();
        sim.clear_faults();
        use_pages(&pool, &stream).unwrap();
        Held::of(&pool, DEVICE * PAGE, stream.as_ref()).free(stream.as_ref());
        drop((pool, stream));
        let left = sim.live();
        assert_eq!((left.mappings, left.reservations, left.physical), (0, 0, 0), "{left}");
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
    }
}
