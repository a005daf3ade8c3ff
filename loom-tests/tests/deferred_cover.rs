//! Deferred covers: small blocks that are freed on a stream with another owner, which came by its raw handle and comes again, or is
//! wrapped, are covered with later ones. Until then, and whatever becomes of the handle meanwhile, another stream gets them behind the work
//! that used them, or not at all.

use alluvion::driver::RawStream;
use alluvion::suballoc::{Growth, Reuse};
use alluvion::{PoolConfig, Stream};
use loom_tests::{Plot, Seen, Site, Work, explore_bounded, spawn};

const USE: Work = Work(0);
const NEXT: Work = Work(1);
const OTHER: Work = Work(2);

/// Small enough to be covered with later ones, and long enough that it comes from the core alone.
const SMALL: usize = 60 << 10;

/// A pool with room for so many blocks.
fn site_of(blocks: usize, reuse: Reuse) -> Site {
    let bytes = blocks * SMALL;
    let config = PoolConfig::default().initial(bytes).maximum(bytes).growth(Growth::Exact);
    Site::new(bytes, config.reuse(reuse))
}

/// The same, and a stream by its handle that has an event already, so that frees on it are deferred.
fn site(blocks: usize, reuse: Reuse) -> (Site, RawStream, Stream) {
    let site = site_of(blocks, reuse);
    let raw = site.rig.bare();
    let home = site.rig.lent(raw);
    home.record().expect("nothing fails");
    (site, raw, home)
}

/// As [`site`], with a stream that is wrapped.
fn wrapped_site(blocks: usize, reuse: Reuse) -> (Site, RawStream, Stream) {
    let site = site_of(blocks, reuse);
    let (home, raw) = site.rig.foreign();
    home.record().expect("nothing fails");
    (site, raw, home)
}

/// Takes a block for another stream, and uses it, if there is one. Returns whether there was.
fn take_and_use(site: &Site, taking: &Stream, work: Work) -> bool {
    let taken = site.take(taking.as_ref(), SMALL);
    let had = taken.is_some();
    if let Some(plot) = taken {
        // It fails unless this comes after all that used it.
        site.use_on(taking.as_ref(), &plot, work);
        site.give(taking.as_ref(), plot);
    }
    had
}

fn use_and_give(site: &Site, home: &Stream, plot: Plot, work: Work) {
    site.use_on(home.as_ref(), &plot, work);
    site.give(home.as_ref(), plot);
}

/// The block is freed while another stream asks for it, on a stream that stays. No event covers the free: whoever asks has it covered,
/// or is too early.
fn wanted_elsewhere(
    site: fn(usize, Reuse) -> (Site, RawStream, Stream),
    busy: bool,
    seen: &'static [Seen; 2],
) {
    explore_bounded(Some(3), move || {
        let (site, raw, home) = site(1, Reuse::Wait);
        let taking = site.rig.stream();
        let plot = site.take(home.as_ref(), SMALL).expect("there is room");
        if busy {
            site.rig.mock.keep_busy();
        }
        let freeing = {
            let (site, home) = (site.clone(), home.clone());
            spawn(move || use_and_give(&site, &home, plot, USE))
        };
        seen[usize::from(take_and_use(&site, &taking, NEXT))].note(true);
        freeing.join().unwrap();
        drop((home, taking));
        site.rig.mock.end(raw);
        site.end();
    });
    assert!(seen.iter().all(|seen| seen.times() > 0), "{seen:?}");
}

#[test]
fn a_deferred_free_that_is_over_is_had_by_another_stream() {
    static SEEN: [Seen; 2] = [const { Seen::never() }; 2];
    wanted_elsewhere(site, false, &SEEN);
}

#[test]
fn a_deferred_free_that_is_not_over_is_had_behind_a_wait() {
    static SEEN: [Seen; 2] = [const { Seen::never() }; 2];
    wanted_elsewhere(site, true, &SEEN);
}

#[test]
fn a_deferred_free_on_a_wrapped_stream_is_had_by_another_stream() {
    static SEEN: [[Seen; 2]; 2] = [const { [const { Seen::never() }; 2] }; 2];
    for busy in [false, true] {
        wanted_elsewhere(wrapped_site, busy, &SEEN[usize::from(busy)]);
    }
}

/// A block is freed on a stream whose last handle goes, and whose owner then ends it, while another stream asks for the block.
fn free_and_end(site: &Site, raw: RawStream, home: Stream, taking: &Stream, seen: &'static [Seen; 2]) {
    let plot = site.take(home.as_ref(), SMALL).expect("there is room");
    site.rig.mock.keep_busy();
    let freeing = {
        let site = site.clone();
        spawn(move || {
            use_and_give(&site, &home, plot, USE);
            drop(home);
            site.rig.mock.end(raw);
        })
    };
    seen[usize::from(take_and_use(site, taking, NEXT))].note(true);
    freeing.join().unwrap();
}

/// The last handle of a wrapped stream covers what was deferred, and only then the owner ends the stream.
#[test]
fn the_last_handle_of_a_wrapped_stream_covers_its_deferred_frees() {
    static SEEN: [Seen; 2] = [const { Seen::never() }; 2];
    explore_bounded(Some(3), || {
        let (site, raw, home) = wrapped_site(1, Reuse::Wait);
        let taking = site.rig.stream();
        free_and_end(&site, raw, home, &taking, &SEEN);
        assert!(take_and_use(&site, &taking, OTHER), "nothing is lost with the handle");
        drop(taking);
        site.end();
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// The stream ends after the free, and its owner ends the handle: no event covers the free, and none can. The block is had once the
/// device has been waited for, or not; and the handle is left alone.
#[test]
fn a_deferred_free_outlives_its_handle() {
    static SEEN: [Seen; 2] = [const { Seen::never() }; 2];
    explore_bounded(Some(3), || {
        let (site, raw, home) = site(1, Reuse::Wait);
        let taking = site.rig.stream();
        free_and_end(&site, raw, home, &taking, &SEEN);
        drop(taking);
        site.end();
    });
    assert!(SEEN[0].times() > 0, "{SEEN:?}");
}

/// The block is freed by a visit, with no lease, while another thread takes the entry of the stream out to make room for another one,
/// and a third asks for the block. Then the owner ends the handle.
#[test]
fn a_visit_while_its_entry_is_taken_out() {
    static SEEN: [Seen; 2] = [const { Seen::never() }; 2];
    static AT_ONCE: [Seen; 2] = [const { Seen::never() }; 2];
    explore_bounded(Some(2), || {
        let (site, raw, home) = site(1, Reuse::Wait);
        let taking = site.rig.stream();
        let other = site.rig.bare();
        let plot = site.take(home.as_ref(), SMALL).expect("there is room");
        drop(home);
        site.rig.mock.keep_busy();
        let entering = {
            let site = site.clone();
            spawn(move || drop(site.rig.lent(other)))
        };
        let freeing = {
            let site = site.clone();
            spawn(move || {
                site.use_by_handle(raw, &plot, USE);
                AT_ONCE[usize::from(site.give_by_handle(raw, plot))].note(true);
                site.rig.mock.end(raw);
            })
        };
        SEEN[usize::from(take_and_use(&site, &taking, NEXT))].note(true);
        freeing.join().unwrap();
        entering.join().unwrap();
        drop(taking);
        site.rig.mock.end(other);
        site.end();
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
    assert!(AT_ONCE.iter().all(|seen| seen.times() > 0), "{AT_ONCE:?}");
}

/// Two threads free on the stream at once, the second free of which is covered, and with it the first: both are had by another stream
/// then, if its own work comes after.
#[test]
fn a_later_free_covers_those_before() {
    static SEEN: [Seen; 2] = [const { Seen::never() }; 2];
    explore_bounded(Some(2), || {
        let (site, raw, home) = site(2, Reuse::Wait);
        let taking = site.rig.stream();
        let plots = [(); 2].map(|()| site.take(home.as_ref(), SMALL).expect("there is room"));
        let [first, second] = plots;
        let freeing = {
            let (site, home) = (site.clone(), home.clone());
            spawn(move || use_and_give(&site, &home, first, USE))
        };
        use_and_give(&site, &home, second, OTHER);
        SEEN[usize::from(take_and_use(&site, &taking, NEXT))].note(true);
        freeing.join().unwrap();
        drop((home, taking));
        site.rig.mock.end(raw);
        site.end();
    });
    assert!(SEEN[1].times() > 0, "{SEEN:?}");
}
