//! Taking first and waiting second: who takes a block that another stream has freed waits for that stream before anybody uses the
//! block, and gives it back as the other's where the wait fails.
//!
//! The strategy is the last of the ladder, and alone here: what the others would find, it finds.

use alluvion::suballoc::{Growth, Reuse};
use alluvion::{PoolConfig, Stream};
use loom_tests::{Seen, Site, Work, explore, explore_bounded, spawn};

const USE: Work = Work(0);
const NEXT: Work = Work(1);
const AGAIN: Work = Work(2);

/// Long enough that a request comes from the core alone, and not with others.
const LONG: usize = 64 << 10;

fn site(bytes: usize) -> Site {
    let config = PoolConfig::default().initial(bytes).maximum(bytes).growth(Growth::Exact);
    Site::new(bytes, config.reuse(Reuse::LastStrategy))
}

/// A stream frees the one block and takes it again, which another stream wants: each of the two that has it comes after the one
/// before.
#[test]
fn a_block_is_taken_again_or_taken_first() {
    static SEEN: [Seen; 4] = [const { Seen::never() }; 4];
    explore(|| {
        let site = site(LONG);
        let (home, taking) = (site.rig.stream(), site.rig.stream());
        let plot = site.take(home.as_ref(), LONG).expect("there is room");
        site.use_on(home.as_ref(), &plot, USE);
        site.rig.mock.keep_busy();
        let freeing = {
            let (site, home) = (site.clone(), home.clone());
            spawn(move || {
                site.give(home.as_ref(), plot);
                let again = site.take(home.as_ref(), LONG);
                let had = again.is_some();
                again.into_iter().for_each(|plot| {
                    site.use_on(home.as_ref(), &plot, AGAIN);
                    site.give(home.as_ref(), plot);
                });
                had
            })
        };
        let taken = site.take(taking.as_ref(), LONG);
        let took = taken.is_some();
        taken.into_iter().for_each(|plot| {
            site.use_on(taking.as_ref(), &plot, NEXT);
            site.give(taking.as_ref(), plot);
        });
        let had = freeing.join().unwrap();
        SEEN[2 * usize::from(had) + usize::from(took)].note(true);
        drop((home, taking));
        site.end();
    });
    assert_eq!(SEEN[0].times(), 0, "whoever was refused was so because the other one had it");
    assert!(SEEN[1..].iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// Nothing can be recorded on the stream that has freed the block, so nobody can wait for it: the block is that stream's again, and
/// whoever takes it next waits.
#[test]
fn what_could_not_be_waited_for_is_given_back_as_it_was() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    explore_bounded(Some(3), || {
        let site = site(LONG);
        let (home, taking) = (site.rig.stream(), site.rig.stream());
        let plot = site.take(home.as_ref(), LONG).expect("there is room");
        site.use_on(home.as_ref(), &plot, USE);
        site.rig.mock.keep_busy();
        site.give(home.as_ref(), plot);
        site.rig.mock.fail_records(1);
        let take = |stream: &Stream, site: &Site, work| {
            let plot = site.try_to_take(stream.as_ref(), LONG).ok();
            plot.iter().for_each(|plot| site.use_on(stream.as_ref(), plot, work));
            plot
        };
        let other = site.rig.stream();
        let taken_there = {
            let (site, other) = (site.clone(), other.clone());
            spawn(move || take(&other, &site, AGAIN))
        };
        let taken = take(&taking, &site, NEXT);
        let taken_there = taken_there.join().unwrap();
        assert!(taken.is_none() || taken_there.is_none(), "there is one block");
        SEEN[usize::from(taken.is_some() || taken_there.is_some())].note(true);
        taken.into_iter().for_each(|plot| site.give(taking.as_ref(), plot));
        taken_there.into_iter().for_each(|plot| site.give(other.as_ref(), plot));
        drop((home, taking, other));
        site.end();
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}
