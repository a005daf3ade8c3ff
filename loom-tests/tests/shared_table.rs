//! The table of a limit that processes share: what is out is never above the limit, who fits is served, and who dies has done all of
//! what it was about, or nothing.
//!
//! A process is a thread. It dies by stopping for good before one access to the shared words, and what it had is cleared away by
//! others, who see then that nobody has the lock of its place, as the kernel says. The table is a type of the crate's own, so its file is
//! included here, with the facade that it is written against.

#[expect(dead_code, reason = "the rest of the room is not here, which reads the names and makes the table")]
#[path = "../../src/adaptor/allowance/shared/table.rs"]
mod table;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::joint::{KinMark, Life};
use crate::sync::AtomicU64;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom_tests::{Seen, explore_bounded, spawn};
use table::{Found, MEMBERS, SharedRefusal, Table, WORDS};

/// Mistakes need one or two: a thread that stops between its reading and its exchange, and one that stops in the other's.
const PREEMPTIONS: usize = 2;

/// Whoever a process is to others: the model's kernel has the locks.
const LIFE: Life = Life { process: 7, started: 0, kin: KinMark::NONE };

/// What the death of a process unwinds with.
struct Death;

/// The shared words, as one process has them mapped.
struct Mapping {
    words: Arc<Vec<AtomicU64>>,
    /// How many more accesses the process makes before it dies.
    left: Cell<usize>,
    /// Counts the accesses of all, so that each one depends on each other one. Of a word loom knows the last access alone: that a
    /// thread has read it is forgotten when another one reads it, which then writes it, as all do here. Relaxed: it orders nothing.
    steps: Arc<AtomicU64>,
}

impl AsRef<[AtomicU64]> for Mapping {
    /// Called before each access to a word.
    fn as_ref(&self) -> &[AtomicU64] {
        if self.left.get() == 0 {
            resume_unwind(Box::new(Death));
        }
        self.left.set(self.left.get() - 1);
        self.steps.fetch_add(1, Ordering::Relaxed);
        &self.words
    }
}

/// What the kernel has: the words, and the locks of the places.
#[derive(Clone)]
struct Kernel {
    words: Arc<Vec<AtomicU64>>,
    steps: Arc<AtomicU64>,
    /// Who has the lock of each place: one more than its number as a member, or 0.
    places: Arc<[AtomicUsize; MEMBERS]>,
    limit: u64,
}

/// A process that has joined.
struct Process {
    kernel: Kernel,
    table: Table<Mapping>,
    at: usize,
    owner: u64,
    _place: Held,
}

/// The lock of a place.
struct Held {
    kernel: Kernel,
    place: usize,
    by: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        // Who dies does nothing any more: the kernel lets go of its locks.
        if !std::thread::panicking() {
            self.kernel.let_go(self.place, self.by);
        }
    }
}

impl Kernel {
    fn new(limit: u64) -> Self {
        let kernel = Self {
            words: Arc::new((0..WORDS).map(|_| AtomicU64::new(0)).collect()),
            steps: Arc::new(AtomicU64::new(0)),
            places: Arc::new(std::array::from_fn(|_| AtomicUsize::new(0))),
            limit,
        };
        let table = kernel.map();
        table.make();
        assert_eq!(table.found(), Found::Limit(limit));
        kernel
    }

    fn map(&self) -> Table<Mapping> {
        let (words, steps) = (Arc::clone(&self.words), Arc::clone(&self.steps));
        Table::new(Mapping { words, left: Cell::new(usize::MAX), steps }, self.limit)
    }

    /// Gives member `by` the lock of a place, if nobody has it.
    fn lock(&self, place: usize, by: usize) -> Option<Held> {
        let has = self.places[place].compare_exchange(0, by + 1, Ordering::Acquire, Ordering::Relaxed);
        has.ok().map(|_| Held { kernel: self.clone(), place, by })
    }

    fn let_go(&self, place: usize, by: usize) {
        // Not of what another one has.
        let _ = self.places[place].compare_exchange(by + 1, 0, Ordering::Release, Ordering::Relaxed);
    }

    /// A process that joins as that member, before any thread runs: who joins has the lock of the door, so no two do at one time.
    fn join(&self, at: usize) -> Process {
        let place = self.lock(at, at).expect("nobody else has it");
        let table = self.map();
        let owner = table.enter(at, LIFE, "");
        Process { kernel: self.clone(), table, at, owner, _place: place }
    }

    fn used(&self) -> u64 {
        self.map().picture().used()
    }
}

impl Process {
    /// As `Membership::take_at_once`.
    fn take_at_once(&self, bytes: u64) -> Result<(), SharedRefusal> {
        self.table.take(self.at, self.owner, bytes)
    }

    /// As `Membership::take`.
    fn take(&self, bytes: u64) -> Result<(), SharedRefusal> {
        self.take_at_once(bytes).or_else(|_| {
            self.clear_dead();
            self.take_at_once(bytes)
        })
    }

    fn give(&self, bytes: u64) {
        self.table.give(self.at, self.owner, bytes);
    }

    fn clear_dead(&self) -> bool {
        // Acquire: who has let go of it did so behind all that it has done.
        self.table.clear_dead(self.at, |at| self.kernel.places[at].load(Ordering::Acquire) != 0)
    }

    /// Runs `life`, and dies before its access number `accesses`, if it makes as many. Returns whether it died.
    fn live_for(&self, accesses: usize, life: impl FnOnce(&Self)) -> bool {
        self.table.words().left.set(accesses);
        let end = catch_unwind(AssertUnwindSafe(|| life(self)));
        self.table.words().left.set(usize::MAX);
        match end {
            Ok(()) => false,
            Err(why) if why.is::<Death>() => {
                (0..MEMBERS).for_each(|place| self.kernel.let_go(place, self.at));
                true
            }
            Err(failed) => resume_unwind(failed),
        }
    }
}

/// Two want two of three each: what is out is never above the limit, and a refusal says what the other had at that moment.
#[test]
fn the_limit_holds_between_processes() {
    static SEEN: [Seen; 3] = [const { Seen::never() }; 3];
    explore_bounded(Some(PREEMPTIONS), || {
        let (kernel, out) = (Kernel::new(3), Arc::new(AtomicUsize::new(0)));
        let use_once = |process: &Process, out: &AtomicUsize| match process.take_at_once(2) {
            Ok(()) => {
                let before = out.fetch_add(2, Ordering::Relaxed);
                assert_eq!(before, 0, "more is out than the limit");
                out.fetch_sub(2, Ordering::Relaxed);
                process.give(2);
                1
            }
            Err(refusal) => {
                assert_eq!(refusal, SharedRefusal::NoRoom { used: 2, has_file: true });
                0
            }
        };
        let [mine, theirs] = [0, 1].map(|at| kernel.join(at));
        let other = {
            let out = Arc::clone(&out);
            spawn(move || use_once(&theirs, &out))
        };
        let had = use_once(&mine, &out) + other.join().expect("it does not panic");
        SEEN[had].note(true);
        assert_eq!(kernel.used(), 0);
    });
    assert_eq!(SEEN[0].times(), 0, "whoever is refused is so because the other has some");
    assert!(SEEN[1..].iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// One takes two, one by one, after which its bit is what it was: the other one, which had read it before, notices.
#[test]
fn switches_that_come_back_are_noticed() {
    static SEEN: [Seen; 3] = [const { Seen::never() }; 3];
    explore_bounded(Some(PREEMPTIONS), || {
        let kernel = Kernel::new(2);
        let [mine, theirs] = [0, 1].map(|at| kernel.join(at));
        let other = spawn(move || {
            let had = [(); 2].map(|()| theirs.take_at_once(1).is_ok());
            // It lives on.
            std::mem::forget(theirs);
            usize::from(had[0]) + usize::from(had[1])
        });
        let had = usize::from(mine.take_at_once(1).is_ok());
        let others = other.join().expect("it does not panic");
        assert_eq!((had + others, kernel.used()), (2, 2), "both that there are, and no more");
        SEEN[others].note(true);
    });
    assert!(SEEN[1..].iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// Room for both, and one wants more than there is besides: nobody is refused for the sake of what is refused itself, or of a moment
/// that has passed.
#[test]
fn who_fits_is_served() {
    explore_bounded(Some(PREEMPTIONS), || {
        let kernel = Kernel::new(3);
        let [mine, theirs] = [0, 1].map(|at| kernel.join(at));
        let other = spawn(move || {
            theirs.take_at_once(2).expect("one is elsewhere at most");
            theirs.give(2);
            let refusal = theirs.take_at_once(4).expect_err("there are three");
            assert!(matches!(refusal, SharedRefusal::NoRoom { used: 0 | 1, has_file: true }), "{refusal:?}");
        });
        mine.take_at_once(1).expect("two are elsewhere at most");
        other.join().expect("it says what is wrong itself");
        mine.take_at_once(2).expect("nothing is elsewhere");
        assert_eq!(kernel.used(), 3);
    });
}

/// All that there is goes from one to another, which takes it piece by piece, and with the second piece writes the record that counted
/// at first: whoever looks sees what was there at one moment.
#[test]
fn a_picture_is_of_one_moment() {
    static SEEN: [Seen; 4] = [const { Seen::never() }; 4];
    explore_bounded(Some(PREEMPTIONS), || {
        let kernel = Kernel::new(2);
        let processes = [0, 1].map(|at| kernel.join(at));
        processes[1].take_at_once(2).expect("there are two");
        let mover = spawn(move || {
            processes[1].give(2);
            for _ in 0..2 {
                processes[0].take_at_once(1).expect("they are back");
            }
        });
        let picture = kernel.map().picture();
        let seen = [0, 1].map(|at| picture.parts[at].taken);
        let moment = [[0, 2], [0, 0], [1, 0], [2, 0]].iter().position(|parts| *parts == seen);
        SEEN[moment.unwrap_or_else(|| panic!("{seen:?} was never"))].note(true);
        mover.join().expect("it says what is wrong itself");
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// What is done with memory before it is given comes before what is done after it is taken.
#[test]
fn who_takes_what_another_gave_comes_after_it() {
    static SEEN: [Seen; 2] = [const { Seen::never() }; 2];
    explore_bounded(Some(PREEMPTIONS), || {
        let (kernel, block) = (Kernel::new(2), Arc::new(AtomicUsize::new(0)));
        let [mine, theirs] = [0, 1].map(|at| kernel.join(at));
        theirs.take_at_once(2).expect("there are two");
        let other = {
            let block = Arc::clone(&block);
            spawn(move || {
                block.store(1, Ordering::Relaxed);
                theirs.give(2);
            })
        };
        let had = mine.take_at_once(2).is_ok();
        SEEN[usize::from(had)].note(true);
        assert!(!had || block.load(Ordering::Relaxed) == 1, "what was done before comes later");
        other.join().expect("it does not panic");
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// Explores `model` with a process that makes one access and dies, that makes two, and so on, until it is through with its life under
/// every schedule. The model says whether it died.
fn explore_deaths(model: impl Fn(usize) -> bool + Send + Sync + 'static) {
    let model = Arc::new(model);
    for accesses in 1.. {
        let deaths = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (counted, model) = (Arc::clone(&deaths), Arc::clone(&model));
        explore_bounded(Some(PREEMPTIONS), move || {
            counted.fetch_add(usize::from(model(accesses)), Ordering::Relaxed);
        });
        if deaths.load(Ordering::Relaxed) == 0 {
            println!("{accesses} accesses at most");
            assert!(accesses > 5, "it had a life");
            return;
        }
    }
}

/// One dies while it takes and gives, and another one works: no picture shows a half of anything, nothing is above the limit, and all
/// comes back once the first is known to be dead.
#[test]
fn who_dies_has_done_all_or_nothing() {
    static CLEARED: [Seen; 2] = [const { Seen::never() }; 2];
    explore_deaths(|accesses| {
        let kernel = Kernel::new(3);
        let [mine, theirs] = [0, 1].map(|at| kernel.join(at));
        let mortal = spawn(move || {
            theirs.live_for(accesses, |process| {
                process.take_at_once(2).expect("one is elsewhere at most");
                process.give(1);
            })
        });
        mine.take(1).expect("two are elsewhere at most");
        let picture = mine.table.picture();
        let taken = picture.parts[1].taken;
        assert!(picture.is_sound(3) && taken <= 2, "{taken} was never");
        let died = mortal.join().expect("it says what is wrong itself");
        CLEARED[usize::from(mine.clear_dead())].note(true);
        mine.take_at_once(2).expect("who is gone has nothing");
        assert_eq!(kernel.used(), 3);
        died
    });
    assert!(CLEARED.iter().all(|seen| seen.times() > 0), "{CLEARED:?}");
}

/// One that clears a dead member away dies over it, or only takes its time: another one has what the dead one had at any moment.
#[test]
fn who_clears_keeps_nothing_from_another() {
    static CLEARED: [Seen; 2] = [const { Seen::never() }; 2];
    explore_deaths(|accesses| {
        let kernel = Kernel::new(2);
        let [mine, dead, theirs] = [0, 1, 2].map(|at| kernel.join(at));
        dead.take_at_once(2).expect("there are two");
        drop(dead);
        let mortal = spawn(move || {
            theirs.live_for(accesses, |process| CLEARED[usize::from(process.clear_dead())].note(true))
        });
        mine.take(2).expect("the dead have nothing");
        let died = mortal.join().expect("it says what is wrong itself");
        assert_eq!(kernel.used(), 2);
        died
    });
    assert!(CLEARED.iter().all(|seen| seen.times() > 0), "{CLEARED:?}");
}

/// Two find a dead member at once, and want half of what it had each: whoever is first, both have it.
#[test]
fn two_who_find_the_dead_at_once_are_both_served() {
    explore_bounded(Some(PREEMPTIONS), || {
        let kernel = Kernel::new(2);
        let [mine, dead, theirs] = [0, 1, 2].map(|at| kernel.join(at));
        dead.take_at_once(2).expect("there are two");
        drop(dead);
        let other = spawn(move || {
            theirs.take(1).expect("the dead have nothing");
            // It lives on.
            std::mem::forget(theirs);
        });
        mine.take(1).expect("the dead have nothing");
        other.join().expect("it says what is wrong itself");
        assert_eq!(kernel.used(), 2);
    });
}

/// A newcomer gets the place of a dead member while another one clears it away: what the newcomer takes is not cleared.
#[test]
fn a_newcomer_keeps_what_it_takes() {
    static CAME: [Seen; 2] = [const { Seen::never() }; 2];
    explore_bounded(Some(PREEMPTIONS), || {
        let kernel = Kernel::new(3);
        let [mine, dead] = [0, 1].map(|at| kernel.join(at));
        dead.take_at_once(3).expect("there are three");
        drop(dead);
        let newcomer = {
            let kernel = kernel.clone();
            spawn(move || {
                let table = kernel.map();
                // As those who join: with the lock of a place that is nobody's, or not at all.
                if table.owner(1) != 0 {
                    return 0;
                }
                let place = kernel.lock(1, 1).expect("nobody else joins");
                let owner = table.enter(1, LIFE, "");
                table.take(1, owner, 1).expect("two are elsewhere at most");
                assert_eq!(table.picture().parts[1].taken, 1);
                // It lives on.
                std::mem::forget(place);
                1
            })
        };
        mine.take(2).expect("the dead have nothing, and one is elsewhere at most");
        let theirs = newcomer.join().expect("it says what is wrong itself");
        CAME[theirs as usize].note(true);
        assert_eq!(kernel.used(), 2 + theirs);
    });
    assert!(CAME.iter().all(|seen| seen.times() > 0), "{CAME:?}");
}
