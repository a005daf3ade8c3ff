//! `Allowance`: a limit of live bytes, alone or in a tree.

mod crossing;
mod limit_refusal;
mod limit_watch;
mod node;
mod reservation;
mod shared;

use core::fmt;

pub use crossing::Crossing;
pub(super) use limit_refusal::LimitRefusal;
pub(super) use limit_watch::LimitWatch;
use node::{Above, AllowanceNode};
pub use reservation::Reservation;
pub(super) use reservation::TakenRoom;
use shared::Membership;
pub use shared::SharedConfig;

use crate::contain::contain;
use crate::driver::MemoryInfo;
use crate::error::{Error, Member};
use crate::resource::{Figures, Layer, Layout};
use crate::size::Size;
use crate::sync::Arc;

/// A limit of the live bytes, with a name, alone or under other limits.
///
/// It is the book of [`Limiting`](super::Limiting), which has one for itself, and of [`Budget`](super::Budget), which
/// shares one. Allowances are the nodes of a tree: bytes that are taken from one are taken from all above it, too. A
/// clone is another handle of the same allowance.
///
/// Bytes are counted in whole units of 256, and the limit may be reached exactly. Zero bytes are free.
///
/// # What is promised
///
/// - The live bytes never exceed the limit of any allowance of a tree, with any number of threads.
/// - A request takes from all of its allowances, or from none. So it is refused only if at some moment of the call the
///   live bytes of others left no room for it, never because of a request that fails itself.
///
/// # The soft limit
///
/// An allowance may have a second, lower limit, which refuses no request. Each time the live bytes exceed it, its
/// observers are called once, on the thread of the request, before the bytes are used and with no lock held. Requests
/// that an observer itself makes call no observers, and a panic of an observer is caught.
///
/// # Thread safety
///
/// Any thread may use it, and all figures are exact. One that stands alone is one atomic exchange for what is taken and one for
/// what goes back; under another, a lock of one word is held meanwhile, for a few nanoseconds a node. So threads meet at it: sixteen
/// of them make some 15 million calls a second through one that stands alone, and two million through two levels. A limit under a
/// [`Pool`](crate::Pool) is asked for segments alone, however many threads the pool serves.
///
/// # Examples
///
/// ```
/// use alluvion::adaptor::Allowance;
///
/// let gpu = Allowance::new("gpu", 8 << 20).soft(6 << 20).on_soft(|crossing| println!("{crossing}"));
/// let (queries, cache) = (gpu.child("queries", 6 << 20), gpu.child("cache", 4 << 20));
/// let cached = cache.reserve(4 << 20)?;
/// let error = queries.reserve(5 << 20).unwrap_err();
/// assert_eq!((error.limit_name(), error.limit()), (Some("gpu"), Some(8 << 20)), "it is within its own limit");
/// drop(cached);
/// let reserved = queries.reserve(5 << 20)?;
/// assert_eq!((queries.used_bytes(), gpu.used_bytes(), gpu.peak_bytes()), (5 << 20, 5 << 20, 5 << 20));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone)]
pub struct Allowance {
    node: Arc<AllowanceNode>,
}

static_assertions::assert_impl_all!(Allowance: Send, Sync);

/// Any limit: of a [`Limiting`](super::Limiting) or a [`Budget`](super::Budget).
impl Layer for Allowance {
    type Book = Self;

    /// Those above it, too: a request is refused because of any of them.
    fn figures(book: &Self, to: &mut Figures<'_>) {
        for allowance in book.upwards() {
            to.labelled(&[("allowance", &allowance.path())], |to| {
                to.gauge(
                    "alluvion_allowance_limit_bytes",
                    "The most bytes that may be out.",
                    allowance.limit_bytes(),
                );
                to.gauge("alluvion_allowance_used_bytes", "Bytes that are out.", allowance.used_bytes());
                let peak = "The most bytes that were ever out.";
                to.gauge("alluvion_allowance_peak_bytes", peak, allowance.peak_bytes());
                if let Some(bytes) = allowance.soft_bytes() {
                    let soft = "So many bytes may be out before observers are told.";
                    to.gauge("alluvion_allowance_soft_bytes", soft, bytes);
                }
                let refusals = "Requests refused because of it.";
                to.counter("alluvion_allowance_refusals_total", refusals, allowance.refusals());
                let excesses = "Frees of more than was out.";
                to.counter("alluvion_allowance_excesses_total", excesses, allowance.excesses());
                let crossings = "Times that the soft limit was crossed.";
                to.counter("alluvion_allowance_crossings_total", crossings, allowance.crossings());
            });
            if allowance.node.shared_as().is_some() {
                allowance.members_figures(to);
            }
        }
    }
}

impl Allowance {
    /// Those of all processes that share its limit.
    fn members_figures(&self, to: &mut Figures<'_>) {
        let mut members = self.members();
        members.sort_by(|one, other| (&one.name, one.process).cmp(&(&other.name, other.process)));
        // A process may have two parts under one name: two samples with the same labels would be none.
        members.dedup_by(|next, sum| {
            let is_same = (&next.name, next.process) == (&sum.name, sum.process);
            if is_same {
                // They are what anybody of this user may have written.
                sum.used_bytes = sum.used_bytes.saturating_add(next.used_bytes);
                sum.guaranteed_bytes = sum.guaranteed_bytes.saturating_add(next.guaranteed_bytes);
            }
            is_same
        });
        for member in members {
            let process = member.process.map(|process| process.to_string()).unwrap_or_default();
            let labels = [("allowance", self.name()), ("member", &member.name), ("process", &process)];
            to.labelled(&labels, |to| {
                let used = "Bytes that a process has taken from a limit that processes share.";
                to.gauge("alluvion_member_used_bytes", used, member.used_bytes);
                let guaranteed = "Bytes that are kept for a process, whether or not it has taken them.";
                to.gauge("alluvion_member_guaranteed_bytes", guaranteed, member.guaranteed_bytes);
            });
        }
    }

    /// The name and the limit, as descriptions of layers show them.
    pub(super) fn describe(&self) -> String {
        let (name, limit) = (self.name(), Size(self.limit_bytes()));
        match self.node.shared_as() {
            None => format!("{name}, {limit}"),
            Some("") => format!("{name}, {limit}, shared"),
            Some(member) => format!("{name}, {limit}, shared as {member}"),
        }
    }

    /// Its path, such as `gpu/queries`: the names above it, then its own.
    fn path(&self) -> String {
        let mut names: Vec<&str> = self.upwards().map(Self::name).collect();
        names.reverse();
        names.join("/")
    }

    /// An allowance of at most `hard_bytes`. Errors and descriptions show its name.
    #[must_use]
    pub fn new(name: &str, hard_bytes: usize) -> Self {
        Self { node: Arc::new(AllowanceNode::new(name, hard_bytes as u64, Above::Nothing)) }
    }

    /// An allowance whose limit this process shares with others, by its name: what they have taken together is never above it.
    ///
    /// All that allowances do it does, too: [`Budget`](super::Budget) layers and children share it within the process. Its figures
    /// are this process's; [`members`](Self::members) tells those of all.
    ///
    /// - What a process has taken comes back when it ends, however it ends: to whoever finds no room next. The driver frees the
    ///   memory of a process that was killed on its own, perhaps a little later. While a child lives that a killed process had forked,
    ///   and that has begun no other program, the driver keeps that memory, and the limit counts it.
    /// - A [guarantee](SharedConfig::guarantee) is kept for a member, whether it runs or not, so that others cannot starve it. What is
    ///   guaranteed to nobody is lent to whoever asks first.
    /// - A process that is stopped, or dies at any instruction, keeps no other one waiting, with one exception: while a process is
    ///   stopped in the middle of joining, nobody else joins.
    /// - A child of a fork has no part: it is refused, and joins by itself.
    ///
    /// The limit, and what is guaranteed, are in a file of 8 KiB, `alluvion-USER/NAME`, which only the user that made it may use, and
    /// which stays. While processes share it all of them say the same limit; when there is none, the next one may say another.
    /// Whoever removes the file under them has two limits.
    ///
    /// What is taken and given costs a look at the records of all: put the layer under a pool. There are 32 members at most, among them those that have a guarantee and do not run.
    ///
    /// ```no_run
    /// // It writes a file below `/dev/shm`, which stays.
    /// use alluvion::adaptor::{Allowance, SharedConfig};
    /// use alluvion::source::Cuda;
    /// use alluvion::{PoolConfig, ResourceExt, Sim};
    ///
    /// let device = Sim::new().device(0);
    /// let card = SharedConfig::new("gpu0", 20 << 30).guarantee("server", 8 << 30);
    /// let pool = Cuda::new(&device).budget(Allowance::shared(&card.member("server"))?).pool(PoolConfig::default())?;
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - `InvalidArgument`: a name, a limit or guarantees that cannot be; another limit than the processes that share it have; a
    ///   guarantee that a member which runs has otherwise; guarantees of more than the limit.
    /// - `OutOfMemory`: so much is taken that a guarantee, new in the file, has no room. Those before it hold.
    /// - `InUse`: another process has the name with the guarantee, and does not end within two seconds, or had it, and a child of it has
    ///   not ended; or there are 32 members.
    /// - `Unwritable`: the file cannot be opened, belongs to another user, or others may write it.
    /// - `Malformed`: the file is none of these, or another version of the library has made it.
    /// - `Unsupported`: this is not Linux.
    pub fn shared(config: &SharedConfig) -> Result<Self, Error> {
        let membership = Box::new(Membership::join(config)?);
        let (name, limit) = (config.name(), config.limit_bytes() as u64);
        Ok(Self { node: Arc::new(AllowanceNode::new(name, limit, Above::Shared(membership))) })
    }

    /// The processes that share the limit, and those that have a guarantee and do not run; none if it is not
    /// [shared](Self::shared). Of a child, those that share the limit of the allowance above all.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        self.upwards().last().map(|root| root.node.members()).unwrap_or_default()
    }

    /// An allowance under this one: at most `hard_bytes`, which may be more than is left here, or than there is.
    ///
    /// ```
    /// use alluvion::adaptor::Allowance;
    ///
    /// let all = Allowance::new("all", 1 << 20);
    /// let jobs = [all.child("first job", 1 << 20), all.child("second job", 1 << 20)];
    /// let most = jobs[0].reserve(900 << 10)?;
    /// assert_eq!(jobs[1].free_bytes(), 124 << 10);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    #[must_use]
    pub fn child(&self, name: &str, hard_bytes: usize) -> Self {
        Self { node: Arc::new(AllowanceNode::new(name, hard_bytes as u64, Above::Parent(self.clone()))) }
    }

    /// Sets the soft limit, for all handles: observers are called when the live bytes exceed `bytes`.
    #[must_use = "it is the same allowance, to go on with"]
    pub fn soft(self, bytes: usize) -> Self {
        self.node.soft.set_bytes(bytes as u64);
        self
    }

    /// Adds an observer of the soft limit. Observers are called in the order in which they were added.
    ///
    /// An observer gets the allowance from the event. An observer that owns a handle keeps the allowance alive.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use alluvion::adaptor::Allowance;
    ///
    /// static TOLD: AtomicUsize = AtomicUsize::new(0);
    /// let allowance = Allowance::new("jobs", 8 << 10).soft(4 << 10).on_soft(|crossing| {
    ///     assert_eq!((crossing.allowance.name(), crossing.used_bytes), ("jobs", 5 << 10));
    ///     TOLD.fetch_add(1, Ordering::Relaxed);
    /// });
    /// let first = allowance.reserve(4 << 10)?;
    /// let second = allowance.reserve(1 << 10)?; // Above it.
    /// let third = allowance.reserve(1 << 10)?; // Still above it.
    /// assert_eq!((TOLD.load(Ordering::Relaxed), allowance.crossings()), (1, 1));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    #[must_use = "it is the same allowance, to go on with"]
    pub fn on_soft(self, observer: impl Fn(&Crossing<'_>) + Send + Sync + 'static) -> Self {
        self.node.soft.push(Arc::new(observer));
        self
    }

    /// Sets `bytes` aside, until the reservation is dropped.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, with the name and the limit of the allowance that has not as much left: of the lowest whose limit is less than
    /// `bytes`, or else of this one, or else of the highest. Nothing has been taken then.
    pub fn reserve(&self, bytes: usize) -> Result<Reservation, Error> {
        Reservation::new(self, bytes)
    }

    /// Its path.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// The limit.
    #[must_use]
    pub fn limit_bytes(&self) -> usize {
        self.node.hard as usize
    }

    /// The soft limit, if there is one.
    #[must_use]
    pub fn soft_bytes(&self) -> Option<usize> {
        self.node.soft.bytes().map(|bytes| bytes as usize)
    }

    /// The live bytes: blocks and reservations, of this allowance and of those under it.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.node.used() as usize
    }

    /// The peak of the live bytes.
    #[must_use]
    pub fn peak_bytes(&self) -> usize {
        self.node.peak() as usize
    }

    /// The bytes that may be taken now: the least that is left here and in each allowance above.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        let left = self.upwards().map(|allowance| allowance.node.left());
        left.min().unwrap_or(0) as usize
    }

    /// The number of requests that were refused because of this allowance.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.node.refusals()
    }

    /// How often more bytes came back than were out: blocks were freed twice, and nothing under the limit has refused them. The live
    /// bytes never go below zero. What comes back through a child is counted there.
    #[must_use]
    pub fn excesses(&self) -> u64 {
        self.node.excesses()
    }

    /// How often the live bytes exceeded the soft limit.
    #[must_use]
    pub fn crossings(&self) -> u64 {
        self.node.soft.crossings()
    }

    /// The allowance that it is under.
    #[must_use]
    pub fn parent(&self) -> Option<&Self> {
        self.node.parent()
    }

    /// Returns `true` for two handles of one allowance.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.node, &other.node)
    }

    /// This one, and all above it.
    fn upwards(&self) -> impl Iterator<Item = &Self> {
        core::iter::successors(Some(self), |allowance| allowance.parent())
    }

    /// Takes room for a block.
    // Always: out of line its answer goes through memory, which costs as much as one of the two exchanges of a pair.
    #[inline(always)]
    pub(super) fn take_for(&self, layout: Layout) -> Result<TakenRoom<'_>, LimitRefusal> {
        self.take(layout.rounded_bytes())
    }

    /// Takes room for `whole_bytes`, in whole units.
    // Always: as above.
    #[inline(always)]
    fn take(&self, whole_bytes: usize) -> Result<TakenRoom<'_>, LimitRefusal> {
        if !self.node.stands_alone() {
            return self.take_in_a_tree(whole_bytes);
        }
        let outcome = self.node.take_at_root(whole_bytes as u64)?;
        // Before an observer is told: the room goes back, whatever the observer does.
        let taken = TakenRoom::new(self, whole_bytes);
        if let Some(used) = outcome.crossing() {
            self.tell(&[(0, used)]);
        }
        Ok(taken)
    }

    /// Takes room for a block, if there is some and no observer is to be told. Nothing is counted as refused.
    #[inline]
    pub(super) fn take_at_once(&self, layout: Layout) -> Option<TakenRoom<'_>> {
        let whole_bytes = layout.rounded_bytes();
        self.node.take_at_once(whole_bytes as u64).then(|| TakenRoom::new(self, whole_bytes))
    }

    fn take_in_a_tree(&self, whole_bytes: usize) -> Result<TakenRoom<'_>, LimitRefusal> {
        let crossings = self.node.take_in_turn(whole_bytes as u64)?;
        // As above.
        let taken = TakenRoom::new(self, whole_bytes);
        if !crossings.is_empty() {
            self.tell(&crossings);
        }
        Ok(taken)
    }

    /// Refuses a request above the limit of any allowance.
    #[cold]
    fn refuse(&self) -> LimitRefusal {
        self.node.refuse(0, self.node.used())
    }

    /// Gives room back that was taken.
    #[inline]
    pub(super) fn give(&self, whole_bytes: usize) {
        self.node.give(whole_bytes as u64);
    }

    /// Tells the observers of each allowance that was crossed: how far above this one, and what was out then.
    #[cold]
    fn tell(&self, crossings: &[(usize, u64)]) {
        let Some(_telling) = crossing::telling() else { return };
        for &(height, used) in crossings {
            let Some(allowance) = self.upwards().nth(height) else { continue };
            let soft_bytes = allowance.soft_bytes().unwrap_or(usize::MAX);
            let crossing = Crossing { allowance, used_bytes: used as usize, soft_bytes };
            for observer in allowance.node.soft.observers() {
                contain(|| observer(&crossing));
            }
        }
    }

    /// The memory figures of the upstream, within this limit.
    pub(super) fn cap(&self, under: MemoryInfo) -> MemoryInfo {
        let limit = self.upwards().map(|allowance| allowance.node.hard as usize).min();
        let total_bytes = under.total_bytes.min(limit.unwrap_or(usize::MAX));
        MemoryInfo { free_bytes: under.free_bytes.min(self.free_bytes()).min(total_bytes), total_bytes }
    }
}

impl fmt::Debug for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, limit) = (Size(self.used_bytes()), Size(self.limit_bytes()));
        write!(f, "Allowance({}: {used} of {limit})", self.name())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
