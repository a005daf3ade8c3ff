//! `Node`: the counts of one allowance, and how they change together.

use core::mem;

use smallvec::SmallVec;

use super::Allowance;
use super::crossing::Soft;
use crate::error::Error;
use crate::sync::{Arc, AtomicU64, Ordering, Token};

/// One node of a tree of limits.
///
/// Those who take from nodes under a root do so one after the other: they hold the `turn` of the tree, look whether all nodes
/// below the root have room, take from the root, and then write all down. Nothing is taken that would have to go back, so
/// nobody is refused for the sake of a request that fails itself. The root's count is the one that may change meanwhile, by those
/// who take from the root alone, without the turn; so it is asked last, and one exchange both asks and takes.
pub(super) struct Node {
    pub(super) name: Box<str>,
    pub(super) hard: u64,
    pub(super) parent: Option<Allowance>,
    pub(super) soft: Soft,
    /// Never above `hard`. Changed by exchanges in a root, and below by who has the turn.
    used: AtomicU64,
    /// As `used`.
    peak: AtomicU64,
    refusals: AtomicU64,
    /// One for the whole tree.
    turn: Arc<Token<()>>,
}

/// What is out of one node, after something was taken.
#[derive(Clone, Copy)]
pub(super) struct Taking {
    used: u64,
    crosses: bool,
}

/// The nodes whose soft limit was crossed: how far above the one that was taken from, and what was out then.
pub(super) type Crossings = SmallVec<[(usize, u64); 2]>;

/// The node that had not enough left: how far above the one that was to be taken from, and what was out then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    height: usize,
    used: u64,
}

impl Node {
    pub(super) fn new(name: &str, hard: u64, parent: Option<Allowance>) -> Self {
        let turn = parent.as_ref().map_or_else(Arc::default, |parent| Arc::clone(&parent.node.turn));
        Self {
            // A name is a part of one line.
            name: name.replace(char::is_control, "_").into(),
            hard,
            parent,
            soft: Soft::default(),
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            turn,
        }
    }

    // Relaxed, as all that only tell: figures of about one moment.

    #[inline]
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    pub(super) fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn left(&self) -> u64 {
        self.hard.saturating_sub(self.used())
    }

    /// This node and all above it.
    fn upwards(&self) -> impl Iterator<Item = &Self> {
        core::iter::successors(Some(self), |node| node.above())
    }

    fn above(&self) -> Option<&Self> {
        self.parent.as_ref().map(|parent| &*parent.node)
    }

    /// Takes `bytes` from here, where nothing is above.
    #[inline]
    pub(super) fn take_at_root(&self, bytes: u64) -> Result<Taking, Refusal> {
        match self.exchange(bytes) {
            Ok(before) => Ok(self.note(before, bytes)),
            Err(used) => Err(self.refuse(0, used)),
        }
    }

    /// Takes `bytes` from here and from all above, or from none.
    pub(super) fn take_below_a_root(&self, bytes: u64) -> Result<Crossings, Refusal> {
        let mut crossings = Crossings::new();
        let mut note =
            |height, taking: Taking| crossings.extend(taking.crossing().map(|used| (height, used)));
        let turn = self.turn.lock();
        for (height, node) in self.upwards().enumerate() {
            if node.parent.is_none() {
                let before = node.exchange(bytes).map_err(|used| node.refuse(height, used))?;
                note(height, node.note(before, bytes));
            } else if bytes > node.left() {
                return Err(node.refuse(height, node.used()));
            }
        }
        for (height, node) in self.upwards().enumerate().filter(|(_, node)| node.parent.is_some()) {
            let before = node.used();
            // Relaxed: all who write have the turn; others read figures. The sum is at most `hard`, which was looked at above.
            node.used.store(before + bytes, Ordering::Relaxed);
            note(height, node.note(before, bytes));
        }
        drop(turn);
        Ok(crossings)
    }

    /// Takes from a root alone: what was out before, or what was in the way.
    #[inline]
    fn exchange(&self, bytes: u64) -> Result<u64, u64> {
        let mut used = self.used();
        loop {
            if bytes > self.hard.saturating_sub(used) {
                return Err(used);
            }
            // Acquire: pairs with the release in `give`. Who takes what another gave comes after what the other did before:
            // when a block is asked for, the one that made room for it is back with the upstream.
            match self.used.compare_exchange_weak(used, used + bytes, Ordering::Acquire, Ordering::Relaxed) {
                Ok(before) => return Ok(before),
                Err(now) => used = now,
            }
        }
    }

    /// Writes down what follows from `bytes` more than `before`.
    #[inline]
    fn note(&self, before: u64, bytes: u64) -> Taking {
        let used = before + bytes;
        // Most of the time it is no peak, and then nothing is written.
        if used > self.peak() {
            // Relaxed: a figure.
            self.peak.fetch_max(used, Ordering::Relaxed);
        }
        // Of all who take, the one that crosses sees it, because each has a `before` of its own.
        let crosses = self.soft.is_crossed(before, used);
        if crosses {
            self.soft.count();
        }
        Taking { used, crosses }
    }

    #[cold]
    pub(super) fn refuse(&self, height: usize, used: u64) -> Refusal {
        // Relaxed: a figure.
        self.refusals.fetch_add(1, Ordering::Relaxed);
        Refusal { height, used }
    }

    /// Gives `bytes` back that were taken from here.
    #[inline]
    pub(super) fn give(&self, bytes: u64) {
        if self.parent.is_none() {
            return self.give_to_root(bytes);
        }
        let _turn = self.turn.lock();
        for node in self.upwards() {
            if node.parent.is_none() {
                node.give_to_root(bytes);
                continue;
            }
            let before = node.used();
            debug_assert!(before >= bytes, "{bytes} bytes were given back, of {before} that were out");
            // Relaxed: as where it is taken.
            node.used.store(before.saturating_sub(bytes), Ordering::Relaxed);
        }
    }

    #[inline]
    fn give_to_root(&self, bytes: u64) {
        // Release: pairs with the acquire in `exchange`.
        let before = self.used.fetch_sub(bytes, Ordering::Release);
        debug_assert!(before >= bytes, "{bytes} bytes were given back, of {before} that were out");
    }
}

impl Taking {
    /// What was out then, if it is more than the soft limit and was not before.
    #[inline]
    pub(super) fn crossing(self) -> Option<u64> {
        self.crosses.then_some(self.used)
    }
}

impl Refusal {
    #[cold]
    pub(super) fn into_error(self, asked: &Allowance, bytes: usize) -> Error {
        let refusing = asked.upwards().nth(self.height).unwrap_or(asked);
        Error::over_limit_of(refusing.name(), bytes, refusing.limit_bytes(), self.used as usize)
    }
}

impl Drop for Node {
    /// One after the other: a tree may be deeper than the stack.
    fn drop(&mut self) {
        let mut parent = mem::take(&mut self.parent);
        while let Some(above) = parent {
            parent = Arc::into_inner(above.node).and_then(|mut node| mem::take(&mut node.parent));
        }
    }
}
