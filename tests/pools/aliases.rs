//! Pages that have moved and are mapped where they were, too.

use alluvion::driver::{Call, Code};
use alluvion::sim::{CallCounts, Fault};
use alluvion::source::Mapped;
use alluvion::suballoc::PageBudget;
use alluvion::{DeviceVec, Pool, PoolConfig, Resource, Sim, Stream};

use crate::paged::{PAGE, exact, free_all, machine, pool};
use crate::raw_block::Held;

/// A pool that moves pages rather than grow.
fn tight() -> PoolConfig {
    exact().budget(PageBudget::Bytes(0))
}

/// Sixteen blocks of a page; of the even ones, which are freed, seven pages move to a long one, which is freed as well. Returns the others.
fn moved<'p>(pool: &'p Pool<Mapped>, stream: &Stream) -> Vec<Held<'p, Pool<Mapped>>> {
    let mut kept: Vec<_> = (0..16).map(|_| Held::of(pool, PAGE, stream.as_ref())).collect();
    kept.sort_by_key(|block| block.pointer);
    for at in (0..16).step_by(2).rev() {
        kept.remove(at).free(stream.as_ref());
    }
    stream.synchronize().expect("nothing fails");
    let long = Held::of(pool, 7 * PAGE, stream.as_ref());
    long.touch(5, stream.as_ref()).expect("it is mapped");
    long.free(stream.as_ref());
    stream.synchronize().expect("nothing fails");
    assert_eq!((pool.status().moves, pool.status().pages), (7, 16));
    kept
}

fn calls_of<T>(sim: &Sim, action: impl FnOnce() -> T) -> (T, CallCounts) {
    let before = sim.calls();
    let it = action();
    (it, sim.calls() - before)
}

#[test]
fn pages_return_to_where_they_were_without_a_call() {
    let sim = machine(64);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, tight());
    let mut kept = moved(&pool, &stream);
    assert_eq!(sim.live().mappings, 16 + 7);
    // The last one lies before the long one, which is free. What is before it has the most memory.
    let last = kept.pop().unwrap();
    free_all(kept, &stream);
    stream.synchronize().unwrap();
    let (all, made) = calls_of(&sim, || Held::of(&pool, 15 * PAGE, stream.as_ref()));
    let of_pages =
        [Call::MemoryCreate, Call::MemoryMap, Call::MemoryUnmap, Call::MemoryRelease].map(|call| made[call]);
    assert_eq!((of_pages, pool.status().moves, pool.status().pages), ([0; 4], 14, 16), "{made:?}");
    all.touch(6, stream.as_ref()).unwrap();
    free_all(vec![all, last], &stream);
    stream.synchronize().unwrap();
    assert_eq!(pool.trim(0).unwrap(), 16 * PAGE);
    let live = sim.live();
    assert_eq!((live.physical, live.mappings), (0, 0), "{live}");
    drop((pool, stream));
    sim.assert_clean();
}

/// The contents of the blocks on pages that return are what was written last, through whichever address.
#[test]
fn what_is_written_through_one_address_is_read_through_the_next() {
    let sim = machine(64);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, tight());
    let numbers = |len: usize, seed: u32| (0..len as u32).map(move |at| at.wrapping_mul(0x9E37_79B9) ^ seed);
    let mut live: Vec<(DeviceVec<u32, &Pool<Mapped>>, u32)> = Vec::new();
    let mut random = 1_u64;
    for round in 0..200_u32 {
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let len = [PAGE / 8, PAGE / 4, 3 * PAGE / 4, 5 * PAGE / 4][(random >> 40) as usize % 4];
        live.push((
            DeviceVec::from_slice_in(&numbers(len, round).collect::<Vec<_>>(), &stream, &pool).unwrap(),
            round,
        ));
        while live.len() > 8 {
            let at = (random >> 33) as usize % live.len();
            let (vector, seed) = live.swap_remove(at);
            assert!(vector.to_vec(&stream).unwrap().into_iter().eq(numbers(vector.len(), seed)), "of {seed}");
        }
        stream.synchronize().unwrap();
    }
    assert!(pool.status().moves > 20, "{:?}", pool.status());
    drop(live);
    drop((pool, stream));
    sim.assert_clean();
}

#[test]
fn a_sleep_gives_the_memory_of_pages_with_aliases_back() {
    let sim = machine(64);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, tight());
    let kept = moved(&pool, &stream);
    let free = || sim.device(0).memory_info().unwrap().free_bytes;
    let vector = DeviceVec::from_slice_in(&[7_u32; 3 * PAGE / 4], &stream, &pool).unwrap();
    let before = free();
    let asleep =
        vector.sleep(alluvion::suballoc::SleepConfig::default()).map_err(|failed| failed.to_string());
    drop(asleep.unwrap());
    assert!(free() > before, "its pages went");
    free_all(kept, &stream);
    stream.synchronize().unwrap();
    pool.trim(0).unwrap();
    assert_eq!(free(), 64 * PAGE);
    drop((pool, stream));
    sim.assert_clean();
}

/// A page is given back with all of its addresses, or it stays.
#[test]
fn a_page_of_which_an_alias_cannot_be_unmapped_stays_until_it_can() {
    let sim = machine(64);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, tight());
    let kept = moved(&pool, &stream);
    free_all(kept, &stream);
    stream.synchronize().unwrap();
    sim.inject(Fault::nth(Call::MemoryUnmap, 1, Code::NOT_PERMITTED));
    assert_eq!(pool.trim(0).unwrap(), 15 * PAGE);
    assert_eq!((sim.faults_left(), pool.status().pages, sim.live().physical), (0, 1, 1));
    // It is as good as any other meanwhile, and nothing else is mapped where it is stuck.
    let all = Held::of(&pool, 40 * PAGE, stream.as_ref());
    all.touch(1, stream.as_ref()).unwrap();
    all.free(stream.as_ref());
    stream.synchronize().unwrap();
    pool.trim(0).unwrap();
    let live = sim.live();
    assert_eq!((pool.pool_size(), live.physical, live.mappings), (0, 0, 0), "{live}");
    drop((pool, stream));
    sim.assert_clean();
}

#[test]
fn a_pool_grows_elsewhere_where_an_alias_in_the_way_cannot_be_unmapped() {
    let sim = machine(64);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, exact().budget(PageBudget::Bytes(16 * PAGE)));
    let mut kept = moved(&pool, &stream);
    sim.inject(Fault::every(Call::MemoryUnmap, Code::NOT_PERMITTED));
    for _ in 0..12 {
        let block = Held::of(&pool, 2 * PAGE, stream.as_ref());
        block.touch(9, stream.as_ref()).unwrap();
        kept.push(block);
    }
    sim.clear_faults();
    free_all(kept, &stream);
    stream.synchronize().unwrap();
    let all = Held::of(&pool, 20 * PAGE, stream.as_ref());
    all.touch(1, stream.as_ref()).unwrap();
    all.free(stream.as_ref());
    drop((pool, stream));
    let live = sim.live();
    assert_eq!((live.physical, live.mappings, live.reservations), (0, 0, 0), "{live}");
}

/// A page is not released while it has an address, also when the pool ends.
#[test]
fn a_page_of_which_an_alias_cannot_be_unmapped_outlives_the_pool() {
    let sim = machine(64);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, tight());
    free_all(moved(&pool, &stream), &stream);
    stream.synchronize().unwrap();
    sim.inject(Fault::nth(Call::MemoryUnmap, 1, Code::NOT_PERMITTED));
    let ((), made) = calls_of(&sim, || drop(pool));
    assert_eq!((made[Call::MemoryUnmap], made[Call::MemoryRelease], sim.faults_left()), (16 + 7, 15, 0));
    let live = sim.live();
    assert_eq!((live.physical, live.mappings, live.reservations), (1, 1, 1), "{live}");
}

/// Each alias in the way that is stuck costs a turn, and the request is served behind them.
#[test]
fn a_request_passes_several_aliases_that_cannot_be_unmapped() {
    let sim = machine(64);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, tight());
    let mut kept = moved(&pool, &stream);
    // All that is free, so that the next request needs a page, and the shortest gaps are where the pages have been.
    kept.extend([7, 1].map(|pages| Held::of(&pool, pages * PAGE, stream.as_ref())));
    let before = pool.pool_size();
    sim.inject(Fault::every(Call::MemoryUnmap, Code::NOT_PERMITTED));
    let (block, made) = calls_of(&sim, || Held::of(&pool, PAGE, stream.as_ref()));
    block.touch(3, stream.as_ref()).unwrap();
    assert_eq!((made[Call::MemoryUnmap], pool.pool_size() - before), (7, PAGE), "{made:?}");
    sim.clear_faults();
    kept.push(block);
    free_all(kept, &stream);
    drop((pool, stream));
    let live = sim.live();
    assert_eq!((live.physical, live.mappings, live.reservations), (0, 0, 0), "{live}");
}
