//! `Table`: how much each member of a shared limit has, in memory that processes share.
//!
//! # Why a process may die at any instruction
//!
//! Each member has two records, and a bit of one word, the *switches*, says which of them counts. A member that takes or gives
//! writes the record that does not count, and turns its bit by one compare-exchange. Before that exchange nothing has happened,
//! and after it everything has. Nothing is stored twice: the sum is that of the records, so there is no sum to repair.
//!
//! # Why the sum is never above the limit
//!
//! The upper half of the switches counts the changes. Who changes something has read the switches and then all records that count;
//! its exchange succeeds only if nobody has changed anything meanwhile. So what it decided on was the whole truth at the moment of
//! the exchange. A refusal has no exchange: it holds if the switches are, after all records were read, what they were before.
//! An exchange that fails has met one that succeeded, so some process always gets on, and none waits for another.
//!
//! The count has 32 bits. A process that is stopped between its reading and its exchange is deceived if exactly a multiple of 4
//! thousand million changes come meanwhile, which leave all bits as they were.
//!
//! # Who writes what
//!
//! The records of a member are written by whoever has its lock in the [file](crate::joint): the process itself, one thread at a
//! time, or who joins in its place after its death. The words are read as what anybody may have written: each value is checked.
//!
//! # How what the dead had comes back
//!
//! What a member has taken counts while the member belongs to somebody. Whoever finds a member dead takes its owner away, by one
//! compare-exchange on the number of that owner, and has no lock for it: so any number of processes may do so at once, be killed or
//! stopped over it, and keep nothing from the others. Who joins in that place writes the record anew before it is an owner.

use crate::joint::{KinMark, Life};
use crate::sync::{AtomicU64, Ordering};

/// The most members: one bit each in the lower half of the switches. Three in the models: who changes something reads the records of
/// all, and each reading is a place where a model may go another way.
pub(super) const MEMBERS: usize = if cfg!(loom) { 3 } else { 32 };

/// Two pages of 4 KiB; in the models no more than there is, because each word is an object of loom.
pub(super) const WORDS: usize = if cfg!(loom) { AT_MEMBERS + MEMBERS * STRIDE } else { 1024 };

/// The longest name of a member, in bytes.
pub(super) const LONGEST_NAME: usize = 8 * NAME_WORDS;

/// `alluvion`, as a number of the machine's own order: a file is shared within one machine.
const MAGIC: u64 = u64::from_be_bytes(*b"alluvion");

/// Of the layout of the file. Two versions share nothing.
const VERSION: u64 = 2;

// The places of the words. The switches and each member have two lines of memory to themselves, because processors fetch them in pairs.
const AT_MAGIC: usize = 0;
const AT_VERSION: usize = 1;
const AT_LIMIT: usize = 2;
const AT_OWNERS: usize = 3;
const AT_SWITCHES: usize = 16;
const AT_MEMBERS: usize = 64;
const STRIDE: usize = 16;
// Within a member: two records of two words, then who it is.
const OWNER: usize = 4;
const PROCESS: usize = 5;
const NAME: usize = 6;
const NAME_WORDS: usize = 8;
const STARTED: usize = 14;
const KIN: usize = 15;

const _: () = assert!(AT_MEMBERS + MEMBERS * STRIDE <= WORDS && NAME + NAME_WORDS <= STARTED && KIN < STRIDE);

/// The words of a table: shared memory, or plain memory in tests and models.
#[derive(Debug)]
pub(super) struct Table<P> {
    words: P,
    /// As in the file, which is not asked again.
    limit: u64,
}

/// What is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Zeros: who made it has not come to anything else.
    Nothing,
    /// A table with this limit.
    Limit(u64),
    /// A table of this version.
    Version(u64),
    /// Something else.
    Other,
}

/// A record of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) taken: u64,
    /// Kept for it, whether or not it has taken as much.
    pub(super) guaranteed: u64,
}

impl Part {
    /// What nobody else may have.
    fn held(self) -> u64 {
        self.taken.max(self.guaranteed)
    }
}

/// Why nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedRefusal {
    /// All members together have `used` bytes, and what is left is too little, or guaranteed to others. Without its file, those who join
    /// later have a limit of their own.
    NoRoom { used: u64, has_file: bool },
    /// The file says that another process has the place of this one.
    Lost,
    /// The file has values that no member has written.
    Corrupt,
}

/// All records that counted at one moment.
pub(super) struct Picture {
    switches: u64,
    pub(super) parts: [Part; MEMBERS],
}

impl Picture {
    fn sum(&self, of: impl Fn(Part) -> u64) -> u128 {
        self.parts.iter().map(|&part| u128::from(of(part))).sum()
    }

    pub(super) fn used(&self) -> u64 {
        u64::try_from(self.sum(|part| part.taken)).unwrap_or(u64::MAX)
    }

    /// Returns `false` for values that no member writes.
    pub(super) fn is_sound(&self, limit: u64) -> bool {
        self.sum(Part::held) <= u128::from(limit)
    }

    /// The refusal of `part` in the place of what member `at` has, if there is no room for it.
    fn refuse(&self, at: usize, part: Part, limit: u64) -> Option<SharedRefusal> {
        let others = self.sum(Part::held) - u128::from(self.parts[at].held());
        (others + u128::from(part.held()) > u128::from(limit))
            .then(|| SharedRefusal::NoRoom { used: self.used(), has_file: true })
    }

    /// The bytes that member `at` may take.
    pub(super) fn left(&self, at: usize, limit: u64) -> u64 {
        let mine = self.parts[at];
        let beyond = u128::from(limit).saturating_sub(self.sum(Part::held));
        u64::try_from(u128::from(mine.held() - mine.taken) + beyond).unwrap_or(u64::MAX).min(limit)
    }
}

impl<P: AsRef<[AtomicU64]>> Table<P> {
    /// The words, of which there are [`WORDS`], with a limit that the words have, or that will be written into them.
    pub(super) fn new(words: P, limit: u64) -> Self {
        Self { words, limit }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn words(&self) -> &P {
        &self.words
    }

    pub(super) fn words_mut(&mut self) -> &mut P {
        &mut self.words
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.words.as_ref()[at]
    }

    fn word_of(&self, member: usize, word: usize) -> &AtomicU64 {
        self.word(AT_MEMBERS + member * STRIDE + word)
    }

    // What is read and written at the ends of a member's life is written by one process at a time, which has the lock of the door.

    pub(super) fn found(&self) -> Found {
        let magic = self.word(AT_MAGIC).load(Ordering::Acquire);
        let version = self.word(AT_VERSION).load(Ordering::Relaxed);
        match (magic, version) {
            (MAGIC, VERSION) => Found::Limit(self.word(AT_LIMIT).load(Ordering::Relaxed)),
            (MAGIC, version) => Found::Version(version),
            (0, _) => Found::Nothing,
            _ => Found::Other,
        }
    }

    /// Writes an empty table. The lock of the door is held, and those of all members.
    pub(super) fn make(&self) {
        // The magic number first away and last back: a table that is half made is none. Release, all: in this order.
        self.word(AT_MAGIC).store(0, Ordering::Release);
        for member in 0..MEMBERS {
            self.clear(member);
            self.put(member, |_| Part::default());
            self.set_name(member, "");
        }
        self.word(AT_LIMIT).store(self.limit, Ordering::Release);
        self.word(AT_VERSION).store(VERSION, Ordering::Release);
        self.word(AT_MAGIC).store(MAGIC, Ordering::Release);
    }

    fn record(&self, switches: u64, member: usize) -> usize {
        2 * usize::from(switches >> member & 1 != 0)
    }

    fn part(&self, switches: u64, member: usize) -> Part {
        let record = self.record(switches, member);
        // Acquire: pairs with the release in `exchange`. Who reads a record that is being written anew sees the switches
        // changed behind it, as `is_still` and the exchange ask.
        let taken = self.word_of(member, record).load(Ordering::Acquire);
        let guaranteed = self.word_of(member, record + 1).load(Ordering::Acquire);
        // Behind the record: an owner enters behind the exchange that has emptied its record.
        Part { taken: if taken > 0 && self.owner(member) == 0 { 0 } else { taken }, guaranteed }
    }

    fn switches(&self) -> u64 {
        // Acquire: pairs with the release of the exchange. The records that these switches choose have been written.
        self.word(AT_SWITCHES).load(Ordering::Acquire)
    }

    fn is_still(&self, switches: u64) -> bool {
        // Relaxed: the loads of the records before it are acquire, so it is not earlier.
        self.word(AT_SWITCHES).load(Ordering::Relaxed) == switches
    }

    /// Makes `part` count for `member`, if nobody has changed anything since the switches were read.
    fn exchange(&self, switches: u64, member: usize, part: Part) -> bool {
        let record = 2 - self.record(switches, member);
        // Release: pairs with the acquire in `part`. Whoever reads this sees that the other record of this member counts already.
        self.word_of(member, record).store(part.taken, Ordering::Release);
        self.word_of(member, record + 1).store(part.guaranteed, Ordering::Release);
        let changes = (switches >> 32).wrapping_add(1) << 32;
        let next = changes | (switches ^ 1 << member) & 0xFFFF_FFFF;
        // Release: pairs with the acquire in `switches`. Acquire: who takes what another gave comes after what that did before.
        self.word(AT_SWITCHES).compare_exchange(switches, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// All records that count, at one moment.
    pub(super) fn picture(&self) -> Picture {
        loop {
            let picture = self.look();
            if self.is_still(picture.switches) {
                return picture;
            }
        }
    }

    /// All records, if nobody changes anything meanwhile, which is to be asked.
    fn look(&self) -> Picture {
        let switches = self.switches();
        Picture { switches, parts: core::array::from_fn(|member| self.part(switches, member)) }
    }

    /// Takes `bytes` for `member`, which belongs to `owner`.
    pub(super) fn take(&self, member: usize, owner: u64, bytes: u64) -> Result<(), SharedRefusal> {
        self.change(member, owner, |part| Part { taken: part.taken.saturating_add(bytes), ..part })
    }

    /// Guarantees `bytes` to `member`, which belongs to `owner`.
    pub(super) fn guarantee(&self, member: usize, owner: u64, bytes: u64) -> Result<(), SharedRefusal> {
        self.change(member, owner, |part| Part { guaranteed: bytes, ..part })
    }

    /// Changes a record, if there is room for it.
    fn change(&self, member: usize, owner: u64, to: impl Fn(Part) -> Part) -> Result<(), SharedRefusal> {
        loop {
            let picture = self.look();
            let part = to(picture.parts[member]);
            let refusal = if self.owner(member) != owner {
                Some(SharedRefusal::Lost)
            } else if !picture.is_sound(self.limit) {
                Some(SharedRefusal::Corrupt)
            } else {
                picture.refuse(member, part, self.limit)
            };
            match refusal {
                None if self.exchange(picture.switches, member, part) => return Ok(()),
                Some(refusal) if self.is_still(picture.switches) => return Err(refusal),
                _ => {}
            }
        }
    }

    /// Gives `bytes` back that `member` took. Nothing changes if it belongs to another owner now.
    pub(super) fn give(&self, member: usize, owner: u64, bytes: u64) {
        if self.owner(member) == owner {
            // Less than 0 only where somebody else has written.
            self.put(member, |part| Part { taken: part.taken.saturating_sub(bytes), ..part });
        }
    }

    /// Changes a record whether or not there is room.
    fn put(&self, member: usize, to: impl Fn(Part) -> Part) {
        loop {
            let switches = self.switches();
            if self.exchange(switches, member, to(self.part(switches, member))) {
                return;
            }
        }
    }

    /// Gives back what dead members had, all but `mine`: those whom `is_held` does not say to live, or to have left anything in use.
    /// Returns whether that was anything.
    pub(super) fn clear_dead(&self, mine: usize, is_held: impl Fn(usize) -> bool) -> bool {
        let mut has_come_back = false;
        for member in (0..MEMBERS).filter(|&member| member != mine) {
            // Before the question: who has joined in its place meanwhile has another number.
            let owner = self.owner(member);
            if owner != 0 && !is_held(member) {
                let taken = self.part(self.switches(), member).taken;
                has_come_back |= self.disown(member, owner) && taken > 0;
            }
        }
        has_come_back
    }

    /// Takes a member away from an owner that is dead, if it still belongs to that one.
    fn disown(&self, member: usize, owner: u64) -> bool {
        // AcqRel: who takes what comes back by this comes after what the dead did before; a failure changes nothing.
        let owners = self.word_of(member, OWNER);
        owners.compare_exchange(owner, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Gives back all that `member` had. Its guarantee stays, and with that its name. The caller has its lock.
    pub(super) fn clear(&self, member: usize) {
        self.word_of(member, OWNER).store(0, Ordering::Release);
        self.word_of(member, PROCESS).store(0, Ordering::Relaxed);
        self.put(member, |part| Part { taken: 0, ..part });
    }

    /// Takes what is guaranteed away from a member that nobody is. The caller has its lock.
    pub(super) fn forget(&self, member: usize) {
        self.clear(member);
        self.put(member, |_| Part::default());
        self.set_name(member, "");
    }

    /// Enters a process, in the place of one that has gone. Returns its number as an owner. The caller has the lock of the member, and
    /// that of the door.
    pub(super) fn enter(&self, member: usize, life: Life, name: &str) -> u64 {
        self.clear(member);
        self.set_name(member, name);
        // Relaxed: the store of the owner comes behind them.
        self.word_of(member, PROCESS).store(u64::from(life.process), Ordering::Relaxed);
        self.word_of(member, STARTED).store(life.started, Ordering::Relaxed);
        self.word_of(member, KIN).store(life.kin.0, Ordering::Relaxed);
        let owner = self.word(AT_OWNERS).fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        self.word_of(member, OWNER).store(owner, Ordering::Release);
        owner
    }

    pub(super) fn owner(&self, member: usize) -> u64 {
        self.word_of(member, OWNER).load(Ordering::Acquire)
    }

    /// The process that has a member, or had it.
    pub(super) fn life(&self, member: usize) -> Life {
        let word = |word| self.word_of(member, word).load(Ordering::Relaxed);
        Life { process: word(PROCESS) as u32, started: word(STARTED), kin: KinMark(word(KIN)) }
    }

    /// What is guaranteed to all but `member`.
    pub(super) fn guaranteed_beside(&self, member: usize) -> u128 {
        let picture = self.picture();
        picture.sum(|part| part.guaranteed) - u128::from(picture.parts[member].guaranteed)
    }

    /// Names a member. The caller has its lock, and that of the door.
    pub(super) fn set_name(&self, member: usize, name: &str) {
        let mut bytes = [0_u8; LONGEST_NAME];
        let length = name.len().min(LONGEST_NAME);
        bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
        for (at, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            self.word_of(member, NAME + at).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
    }

    /// The name, as a part of one line, whatever the words are.
    pub(super) fn name(&self, member: usize) -> String {
        let words = (0..NAME_WORDS).map(|at| self.word_of(member, NAME + at).load(Ordering::Relaxed));
        let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).take_while(|&byte| byte != 0).collect();
        String::from_utf8_lossy(&bytes).replace(char::is_control, "_")
    }
}

// By its path, because the models include this file from elsewhere.
#[cfg(all(test, not(loom)))]
#[path = "table/tests.rs"]
mod tests;
