//! `Table`: what is in the file of a lease.

use crate::joint::{KinMark, Life};
use crate::sync::{AtomicU64, Ordering};

/// One page of 4 KiB.
pub(super) const WORDS: usize = 512;

/// The byte that the exporter locks.
pub(super) const EXPORTER: usize = 0;
/// The byte of the first importer.
pub(super) const FIRST_SEAT: usize = 1;
/// The most processes that import one thing: what is left of the page.
pub(super) const SEATS: usize = (WORDS - AT_SEATS) / STRIDE;

/// The longest message.
pub(crate) const MESSAGE_BYTES: usize = (AT_SEATS - AT_MESSAGE) * size_of::<u64>();

/// `allulend`, as a number of the machine's own order: a file is shared within one machine.
const MAGIC: u64 = u64::from_be_bytes(*b"allulend");
/// Of the layout of the file. Two versions share nothing.
const VERSION: u64 = 2;

const AT_MAGIC: usize = 0;
const AT_VERSION: usize = 1;
const AT_STATE: usize = 2;
const AT_LENGTH: usize = 3;
const AT_MESSAGE: usize = 4;
const AT_SEATS: usize = 64;
/// The process and when it started, and its mark.
const STRIDE: usize = 2;
/// Linux has no number of a process that is longer; the rest is when it started, in hundredths of a second: thousand years.
const PROCESS_BITS: u32 = 22;

/// How far a lease has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Live,
    Ended,
    /// Not made to its end, or no lease of this version.
    Other,
}

const LIVE: u64 = 1;
const ENDED: u64 = 2;

/// The words of a lease.
#[derive(Debug)]
pub(super) struct Table<P> {
    words: P,
}

impl<P: AsRef<[AtomicU64]>> Table<P> {
    pub(super) fn new(words: P) -> Self {
        Self { words }
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

    /// Makes a lease of what the message describes.
    pub(super) fn make(&self, message: &[u8]) {
        assert!(message.len() <= MESSAGE_BYTES, "a message has its place in the file");
        for (at, part) in message.chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            // Relaxed: the state says when it counts.
            self.word(AT_MESSAGE + at).store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        self.word(AT_LENGTH).store(message.len() as u64, Ordering::Relaxed);
        self.word(AT_VERSION).store(VERSION, Ordering::Relaxed);
        self.word(AT_MAGIC).store(MAGIC, Ordering::Relaxed);
        self.set_state(State::Live);
    }

    pub(super) fn set_state(&self, state: State) {
        let word = match state {
            State::Live => LIVE,
            State::Ended => ENDED,
            State::Other => 0,
        };
        // Release: pairs with the load in `state`, which brings the message with it.
        self.word(AT_STATE).store(word, Ordering::Release);
    }

    pub(super) fn state(&self) -> State {
        // Acquire: pairs with the store in `set_state`.
        let state = self.word(AT_STATE).load(Ordering::Acquire);
        let known = self.word(AT_MAGIC).load(Ordering::Relaxed) == MAGIC
            && self.word(AT_VERSION).load(Ordering::Relaxed) == VERSION;
        match state {
            LIVE if known => State::Live,
            ENDED => State::Ended,
            _ => State::Other,
        }
    }

    /// Whether it is the lease of what that message describes.
    pub(super) fn is_of(&self, message: &[u8]) -> bool {
        let of_words = (0..MESSAGE_BYTES / 8)
            .flat_map(|at| self.word(AT_MESSAGE + at).load(Ordering::Relaxed).to_ne_bytes());
        self.word(AT_LENGTH).load(Ordering::Relaxed) == message.len() as u64
            && of_words.take(message.len()).eq(message.iter().copied())
    }

    /// Notes which process has a seat. Only who has its lock does so.
    pub(super) fn enter(&self, seat: usize, life: Life) {
        // Relaxed, here and below: the lock of the seat orders the words of one process before those of the next.
        self.word(AT_SEATS + STRIDE * seat + 1).store(life.kin.0, Ordering::Relaxed);
        let word = life.started << PROCESS_BITS | u64::from(life.process);
        self.word(AT_SEATS + STRIDE * seat).store(word, Ordering::Relaxed);
    }

    /// Notes that a seat is free.
    pub(super) fn leave(&self, seat: usize) {
        self.word(AT_SEATS + STRIDE * seat).store(0, Ordering::Relaxed);
    }

    /// The process that has a seat, or did not give it up.
    pub(super) fn sitter(&self, seat: usize) -> Option<Life> {
        let word = self.word(AT_SEATS + STRIDE * seat).load(Ordering::Relaxed);
        let kin = KinMark(self.word(AT_SEATS + STRIDE * seat + 1).load(Ordering::Relaxed));
        let process = (word & ((1 << PROCESS_BITS) - 1)) as u32;
        (word != 0).then_some(Life { process, started: word >> PROCESS_BITS, kin })
    }

    /// Whether anybody has made a lease here.
    pub(super) fn is_any(&self) -> bool {
        self.word(AT_MAGIC).load(Ordering::Relaxed) == MAGIC
    }
}
