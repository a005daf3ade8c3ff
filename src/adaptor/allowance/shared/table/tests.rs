use std::thread;

use super::*;

const KIB: u64 = 1024;

struct Words(Vec<AtomicU64>);

impl AsRef<[AtomicU64]> for Words {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.0
    }
}

fn table(limit: u64) -> Table<Words> {
    let table = Table::new(Words((0..WORDS).map(|_| AtomicU64::new(0)).collect()), limit);
    assert_eq!(table.found(), Found::Nothing);
    table.make();
    assert_eq!(table.found(), Found::Limit(limit));
    table
}

const LIFE: Life = Life { process: 7, started: 0, kin: KinMark::NONE };

fn none_is_held(_: usize) -> bool {
    false
}

fn taken(table: &Table<Words>) -> Vec<u64> {
    table.picture().parts.iter().map(|part| part.taken).filter(|&taken| taken > 0).collect()
}

#[test]
fn members_take_up_to_the_limit_and_no_further() {
    let table = table(8 * KIB);
    let owners = [0, 1, MEMBERS - 1].map(|at| (at, table.enter(at, LIFE, "")));
    for (at, owner) in owners {
        table.take(at, owner, 2 * KIB).unwrap();
    }
    let (last, owner) = owners[2];
    assert_eq!(
        table.take(last, owner, 2 * KIB + 1),
        Err(SharedRefusal::NoRoom { used: 6 * KIB, has_file: true })
    );
    assert_eq!(
        table.take(last, owner, u64::MAX),
        Err(SharedRefusal::NoRoom { used: 6 * KIB, has_file: true })
    );
    table.take(last, owner, 2 * KIB).unwrap();
    assert_eq!((taken(&table), table.picture().left(0, 8 * KIB)), (vec![2 * KIB, 2 * KIB, 4 * KIB], 0));
    table.give(last, owner, 3 * KIB);
    assert_eq!((taken(&table), table.picture().left(0, 8 * KIB)), (vec![2 * KIB, 2 * KIB, KIB], 3 * KIB));
}

#[test]
fn what_is_guaranteed_is_lent_to_nobody() {
    let table = table(8 * KIB);
    let [first, second] = [0, 1].map(|at| table.enter(at, LIFE, ""));
    table.guarantee(1, second, 3 * KIB).unwrap();
    let left = |at| table.picture().left(at, 8 * KIB);
    assert_eq!([left(0), left(1)], [5 * KIB, 8 * KIB]);
    table.take(0, first, 5 * KIB).unwrap();
    assert_eq!(table.take(0, first, 1), Err(SharedRefusal::NoRoom { used: 5 * KIB, has_file: true }));
    assert_eq!([left(0), left(1)], [0, 3 * KIB]);
    table.take(1, second, KIB).unwrap();
    table.take(1, second, 2 * KIB).unwrap();
    assert_eq!(table.take(1, second, 1), Err(SharedRefusal::NoRoom { used: 8 * KIB, has_file: true }));
    table.give(0, first, KIB);
    table.take(1, second, KIB).unwrap();
    // What is given back goes to the guarantee first.
    table.give(1, second, 2 * KIB);
    assert_eq!([left(0), left(1)], [KIB, 2 * KIB]);
    assert_eq!(
        table.guarantee(0, first, 6 * KIB),
        Err(SharedRefusal::NoRoom { used: 6 * KIB, has_file: true })
    );
    table.guarantee(0, first, 5 * KIB).unwrap();
    assert_eq!((left(0), left(1), table.guaranteed_beside(0)), (KIB, KIB, u128::from(3 * KIB)));
}

#[test]
fn what_the_dead_had_comes_back_and_guarantees_stay() {
    let table = table(8 * KIB);
    let [mine, theirs, guaranteed] =
        [0, 1, 2].map(|at| table.enter(at, LIFE, ["mine", "theirs", "guaranteed"][at]));
    table.guarantee(2, guaranteed, 2 * KIB).unwrap();
    table.take(0, mine, KIB).unwrap();
    table.take(1, theirs, KIB).unwrap();
    table.take(2, guaranteed, 3 * KIB).unwrap();
    assert!(!table.clear_dead(0, |_| true), "all live");
    assert_eq!(taken(&table), [KIB, KIB, 3 * KIB]);
    assert!(table.clear_dead(0, none_is_held));
    assert_eq!((taken(&table), table.picture().left(0, 8 * KIB)), (vec![KIB], 5 * KIB));
    assert_eq!((table.name(2), table.owner(2)), ("guaranteed".to_owned(), 0));
    assert!(!table.clear_dead(0, none_is_held), "all has come back");
    // Who was taken for dead takes and gives nothing more.
    assert_eq!(table.take(1, theirs, 1), Err(SharedRefusal::Lost));
    table.give(1, theirs, KIB);
    let next = table.enter(1, LIFE, "next");
    table.take(1, next, KIB).unwrap();
    table.give(1, theirs, KIB);
    assert_eq!(taken(&table), [KIB, KIB]);
}

/// Whatever a member has written that does not count yet, when it dies, changes nothing.
#[test]
fn a_change_that_is_not_finished_has_not_happened() {
    let table = table(8 * KIB);
    for (at, garbage) in [(0, 1), (1, u64::MAX), (MEMBERS - 1, 5 * KIB)] {
        let owner = table.enter(at, LIFE, "dies");
        table.take(at, owner, KIB).unwrap();
        let before = table.picture();
        let spare = 2 - table.record(before.switches, at);
        for word in [spare, spare + 1] {
            table.word_of(at, word).store(garbage, Ordering::Relaxed);
            let now = table.picture();
            assert!(now.switches == before.switches && now.parts == before.parts);
        }
        // Alive again, or cleared away.
        table.take(at, owner, KIB).unwrap();
        table.give(at, owner, KIB);
    }
    assert!(table.clear_dead(MEMBERS, none_is_held));
    assert_eq!((taken(&table), table.picture().left(3, 8 * KIB)), (vec![], 8 * KIB));
}

#[test]
fn a_table_that_is_half_made_is_none() {
    let table = table(KIB);
    table.enter(3, LIFE, "before");
    table.word(AT_MAGIC).store(0, Ordering::Relaxed);
    assert_eq!(table.found(), Found::Nothing);
    table.make();
    assert_eq!((table.found(), table.owner(3), table.name(3)), (Found::Limit(KIB), 0, String::new()));
    table.word(AT_VERSION).store(9, Ordering::Relaxed);
    assert_eq!(table.found(), Found::Version(9));
    table.word(AT_MAGIC).store(9, Ordering::Relaxed);
    assert_eq!(table.found(), Found::Other);
}

#[test]
fn names_are_cut_and_are_parts_of_one_line() {
    let table = table(KIB);
    let long = "é".repeat(LONGEST_NAME);
    for (name, read) in
        [("trainer", "trainer"), ("", ""), ("two\nlines", "two_lines"), (&long, &long[..LONGEST_NAME])]
    {
        table.enter(0, LIFE, name);
        assert_eq!(table.name(0), read);
    }
    for at in 0..NAME_WORDS {
        table.word_of(0, NAME + at).store(u64::MAX, Ordering::Relaxed);
    }
    assert_eq!(table.name(0).chars().count(), LONGEST_NAME, "no text: a sign for each byte");
}

/// Whatever is written there by others, nothing is taken above the limit, and nothing panics.
#[test]
fn values_that_nobody_wrote_refuse_all() {
    let table = table(8 * KIB);
    let mine = table.enter(0, LIFE, "mine");
    table.enter(5, LIFE, "theirs");
    let counting = table.record(table.switches(), 5);
    for garbage in [u64::MAX, 9 * KIB, 1 << 63] {
        for record in 0..4 {
            let word = table.word_of(5, record);
            word.store(garbage, Ordering::Relaxed);
            if (counting..counting + 2).contains(&record) {
                assert_eq!(table.take(0, mine, 1), Err(SharedRefusal::Corrupt), "record {record}");
                assert!(!table.picture().is_sound(8 * KIB));
                assert_eq!(table.picture().left(0, 8 * KIB), 0);
                let _ = (table.picture().used(), table.guaranteed_beside(0), table.guarantee(0, mine, 1));
            }
            word.store(0, Ordering::Relaxed);
        }
    }
    table.word(AT_SWITCHES).store(u64::MAX, Ordering::Relaxed);
    table.take(0, mine, 8 * KIB).unwrap();
    table.give(0, mine, u64::MAX);
    assert_eq!(table.picture().used(), 0);
    table.word_of(0, OWNER).store(77, Ordering::Relaxed);
    assert_eq!(table.take(0, mine, 1), Err(SharedRefusal::Lost));
}

const ROUNDS: u64 = 20_000;

/// Four threads in the place of processes, for whom there is room together, and one that wants more than all: nobody is refused
/// because of what is refused itself.
#[test]
fn who_fits_is_not_refused_for_the_sake_of_those_who_do_not() {
    let table = table(5 * KIB);
    thread::scope(|scope| {
        for (at, bytes) in [KIB, KIB, KIB, 2 * KIB, 6 * KIB].into_iter().enumerate() {
            let table = &table;
            scope.spawn(move || {
                let owner = table.enter(at, LIFE, "");
                for _ in 0..ROUNDS {
                    match table.take(at, owner, bytes) {
                        Ok(()) => table.give(at, owner, bytes),
                        Err(SharedRefusal::NoRoom { .. }) if bytes > 5 * KIB => {}
                        Err(refusal) => panic!("{refusal:?} of {bytes}"),
                    }
                }
            });
        }
    });
    assert_eq!(table.picture().used(), 0);
}

/// Three threads in the place of processes, of whom one and a half fit: what is out together is never above the limit.
#[test]
fn the_limit_holds_between_many() {
    let table = table(3 * KIB);
    let out = AtomicU64::new(0);
    thread::scope(|scope| {
        for at in 0..3 {
            let (table, out) = (&table, &out);
            scope.spawn(move || {
                let owner = table.enter(at, LIFE, "");
                for _ in 0..ROUNDS {
                    match table.take(at, owner, 2 * KIB) {
                        Ok(()) => {}
                        Err(refusal) => {
                            assert_eq!(refusal, SharedRefusal::NoRoom { used: 2 * KIB, has_file: true });
                            continue;
                        }
                    }
                    let before = out.fetch_add(2 * KIB, Ordering::SeqCst);
                    assert_eq!(before, 0);
                    out.fetch_sub(2 * KIB, Ordering::SeqCst);
                    table.give(at, owner, 2 * KIB);
                }
            });
        }
    });
    assert_eq!(table.picture().used(), 0);
}
