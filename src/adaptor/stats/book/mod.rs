//! `StatsBook`: the book of [`Stats`](super::Stats).

mod by_tag;
mod counts;
mod frame;
mod scope;
mod shard;

use core::fmt;

use hashbrown::HashMap;

pub(super) use counts::SignedSize;
pub use counts::{Counter, Counts, TagCounts};
use frame::{Frame, Frames, Peak, Sums};
pub use scope::Scope;
use shard::{Count, StatsShard, bump};

use crate::error::Error;
use crate::stream::Places;
use crate::sync::{Apart, AtomicU64, Mutex, MutexGuard, Ordering, Seat, Token};
use crate::tag::Tag;

/// By how many bytes a thread's live bytes may change before it publishes them. A common peak needs shared writes. A
/// thread that holds 32 to 64 blocks of 256 B to 1 MiB changes by more than this once in 250 calls; by 1 MiB, once in
/// 17. 4 MiB are about 1/30,000 of the memory of a device.
pub(super) const SLACK_BYTES: usize = 4 << 20;

/// The largest slack: more than any change, and so little that adding it to the live amount does not overflow.
const MOST_SLACK: u64 = 1 << 61;

/// Bytes of slack for one block of slack: 64 blocks beside 4 MiB.
const BYTES_OF_A_BLOCK: usize = 64 << 10;

/// The counts of a [`Stats`](super::Stats) layer.
///
/// Every thread counts in cache lines of its own: an allocation and its free cost loads and stores, and no thread waits
/// for another. A reader gets the sum. The sum is exact for calls that happen before the reading: on the same thread,
/// or on threads that were joined. While other threads count, a block that one thread allocates and another frees may
/// be counted in part.
///
/// # Peaks
///
/// A peak is never too low, and [`peak_error`](Counter::peak_error) says by how much it may be too high.
///
/// The peak of one thread is exact. A thread publishes its counts when they have changed by more than a slack, 4 MiB or
/// 64 blocks unless [`Stats::with_slack`](super::Stats::with_slack) says otherwise, so with `n` threads the error is at
/// most `2 n + 1` times the slack. A peak is also at most the sum of the threads' peaks: for four threads that held 1
/// MiB each it is 4 MiB, whether they held it at once or one after the other. A slack of 0 makes every peak exact, and
/// every call takes a shared lock.
///
/// # Tags
///
/// Allocations are counted by [`Tag`], too. Frees are not: a free does not say under which tag the block was allocated,
/// and the freeing thread may have another tag. [`Tracking`](crate::adaptor::Tracking) knows the live blocks by tag.
///
/// A thread takes memory for the tags that it uses only: about 100 bytes for each, and 3 KiB for the first.
///
/// # Forks
///
/// In a forked child of the process that it was made in, calls are not counted, and all counts are 0.
///
/// # Examples
///
/// ```
/// use alluvion::adaptor::Stats;
/// use alluvion::tag::with_tag;
/// use alluvion::{AnyResource, DeviceVec, Resource, ResourceExt, ResourceRef, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let resource = AnyResource::new(Cuda::new(&sim.device(0)).stats());
/// let stream = sim.device(0).stream()?;
/// let tally = resource.find::<Stats>().expect("there is one in the stack");
/// let (_kept, counts) = tally.measure(|| {
///     let scratch = DeviceVec::<u8, _>::zeroed_in(4096, &stream, &resource);
///     drop(scratch);
///     with_tag("kept", || DeviceVec::<u8, _>::zeroed_in(1024, &stream, &resource))
/// });
/// assert_eq!((counts.bytes.live, counts.bytes.peak, counts.bytes.total), (1024, 4096, 5120));
/// assert_eq!(tally.by_tag().iter().map(|of| (of.tag.name(), of.bytes)).collect::<Vec<_>>(), [("", 4096), ("kept", 1024)]);
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct StatsBook {
    shards: Places<StatsShard>,
    /// The current interval: from the beginning of one scope to that of the next. A shard with another interval has
    /// counted nothing in this one.
    interval: AtomicU64,
    /// Of bytes and of blocks.
    slack: [i64; 2],
    summit: Apart<Token<Summit>>,
    /// For threads without a seat, under a lock.
    seatless: StatsShard,
    turn: Mutex<()>,
    frames: Mutex<Frames>,
}

/// The peak of the interval, as far as it is published.
#[derive(Default)]
struct Summit {
    /// The sum of the last published counts: of bytes, and of blocks.
    published: [i64; 2],
    /// The peak of this sum, with the peak of the publishing thread added.
    peak: [i64; 2],
}

impl StatsBook {
    pub(super) fn new(slack_bytes: usize) -> Self {
        let blocks = slack_bytes / BYTES_OF_A_BLOCK;
        let slack = [slack_bytes, blocks].map(|amount| (amount as u64).min(MOST_SLACK) as i64);
        Self {
            shards: Places::default(),
            interval: AtomicU64::new(0),
            slack,
            summit: Apart::default(),
            seatless: StatsShard::new(0, slack),
            turn: Mutex::default(),
            frames: Mutex::default(),
        }
    }

    /// The counts of the scope that was [pushed](Self::push) last; without one, since the layer was made.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.look().map(|(frames, now)| frames.top().counts(&now)).unwrap_or_default()
    }

    /// The counts since the layer was made, across all scopes.
    #[must_use]
    pub fn whole(&self) -> Counts {
        self.look().map(|(frames, now)| frames.whole.counts(&now)).unwrap_or_default()
    }

    /// The allocations under each tag since the layer was made, in the order in which the tags were first used.
    #[must_use]
    pub fn by_tag(&self) -> Vec<TagCounts> {
        let Some(_frames) = self.frames.lock_unless_forked() else { return Vec::new() };
        let Sums { total, failures, .. } = self.sums();
        let none =
            TagCounts { tag: Tag::NONE, bytes: total[0] as u64, allocations: total[1] as u64, failures };
        let mut tags = HashMap::<Tag, TagCounts>::new();
        for of in self.shards().flat_map(StatsShard::tags) {
            let known = tags.entry(of.tag).or_insert(TagCounts {
                tag: of.tag,
                bytes: 0,
                allocations: 0,
                failures: 0,
            });
            known.bytes = known.bytes.wrapping_add(of.bytes.load(Ordering::Relaxed));
            known.allocations += of.blocks.load(Ordering::Relaxed);
            known.failures += of.failures.load(Ordering::Relaxed);
        }
        // The rest has no tag. Other threads count meanwhile, so it may seem to be negative.
        let rest = tags.values().fold(none, |rest, of| TagCounts {
            bytes: rest.bytes.saturating_sub(of.bytes),
            allocations: rest.allocations.saturating_sub(of.allocations),
            failures: rest.failures.saturating_sub(of.failures),
            ..rest
        });
        let mut by_tag: Vec<_> = tags.into_values().collect();
        if rest.allocations > 0 || rest.failures > 0 {
            by_tag.push(rest);
        }
        by_tag.sort_unstable_by_key(|of| of.tag);
        by_tag
    }

    /// The live amounts now.
    pub(super) fn live_bytes(&self) -> i64 {
        self.frames.lock_unless_forked().map_or(0, |_frames| self.sums().live[0])
    }

    #[inline]
    pub(super) fn allocated(&self, bytes: usize) {
        let tag = Tag::current();
        match self.shards.get(Seat::number()) {
            Some(shard) => self.come(shard, bytes as u64, tag),
            None => self.first(|shard| self.come(shard, bytes as u64, tag)),
        }
    }

    #[inline]
    pub(super) fn freed(&self, bytes: usize) {
        match self.shards.get(Seat::number()) {
            Some(shard) => self.go(shard, bytes as u64),
            None => self.first(|shard| self.go(shard, bytes as u64)),
        }
    }

    /// A block that was counted as freed just now, on this thread, is live all the same.
    #[cold]
    pub(super) fn not_freed(&self, bytes: usize) {
        self.first(|shard| self.stay(shard, bytes as u64));
    }

    #[cold]
    pub(super) fn failed(&self) {
        let tag = Tag::current();
        self.first(|shard| {
            bump(&shard.failures, 1);
            if tag != Tag::NONE {
                bump(&shard.of_tag(tag).failures, 1);
            }
        });
    }

    /// The shard of this thread, made at its first use.
    #[cold]
    fn first(&self, count: impl FnOnce(&StatsShard)) {
        if self.frames.is_forked_child() {
            // Another thread of the parent may have made a shard, or counted in the one for all, and be in the middle of it.
            return;
        }
        match Seat::take() {
            Some(seat) => {
                // While nobody reads: who looks at all shards has the scopes locked.
                let frames = self.frames.lock();
                let interval = self.interval.load(Ordering::Relaxed);
                let shard = self.shards.get_or_make(seat, || StatsShard::new(interval, self.slack));
                drop(frames);
                count(shard);
            }
            None => {
                let _turn = self.turn.lock();
                count(&self.seatless);
            }
        }
    }

    #[inline]
    fn come(&self, shard: &StatsShard, bytes: u64, tag: Tag) {
        // One of them is negative: one sign to look at.
        let is_higher = (shard.bytes.come(bytes) | shard.blocks.come(1)) < 0;
        // Relaxed: who begins a scope and then has others allocate in it has told them so by other means.
        let is_new = shard.interval.load(Ordering::Relaxed) != self.interval.load(Ordering::Relaxed);
        if is_higher | is_new {
            self.rise(shard, bytes as i64);
        }
        if tag != Tag::NONE {
            let of = shard.of_tag(tag);
            bump(&of.bytes, bytes);
            bump(&of.blocks, 1);
        }
    }

    #[inline]
    fn go(&self, shard: &StatsShard, bytes: u64) {
        if (shard.bytes.go(bytes) | shard.blocks.go(1)) < 0 {
            self.fall(shard, bytes as i64);
        }
    }

    /// Takes [`go`](Self::go) back.
    fn stay(&self, shard: &StatsShard, bytes: u64) {
        let is_higher = (shard.bytes.stay(bytes) | shard.blocks.stay(1)) < 0;
        let is_new = shard.interval.load(Ordering::Relaxed) != self.interval.load(Ordering::Relaxed);
        if is_higher | is_new {
            self.rise(shard, bytes as i64);
        }
    }

    /// There is more than ever in this interval, or it is a new one.
    #[inline(never)]
    fn rise(&self, shard: &StatsShard, came: i64) {
        self.enter_interval(shard, came, 1);
        shard.bytes.raise();
        shard.blocks.raise();
        if shard.bytes.drift() > self.slack[0] || shard.blocks.drift() > self.slack[1] {
            self.publish(shard);
        }
    }

    /// There is so much less that others must know.
    #[cold]
    fn fall(&self, shard: &StatsShard, went: i64) {
        self.enter_interval(shard, went.wrapping_neg(), -1);
        self.publish(shard);
    }

    /// The highest point of an interval that is over is no point of this one, which began with what was there before the call.
    fn enter_interval(&self, shard: &StatsShard, came: i64, blocks: i64) {
        let interval = self.interval.load(Ordering::Relaxed);
        if shard.interval.load(Ordering::Relaxed) != interval {
            shard.bytes.begin_interval(came);
            shard.blocks.begin_interval(blocks);
            // Release: pairs with the acquire in `peak`. Who sees the interval sees where its highest point began.
            shard.interval.store(interval, Ordering::Release);
        }
    }

    /// Tells the others what this thread has. Between two such calls of a thread, what it has moves by at most the slack, so
    /// the sum of what was told is right to one slack for each thread.
    #[cold]
    fn publish(&self, shard: &StatsShard) {
        let Some(mut summit) = self.summit.lock_unless_forked() else { return };
        for (at, count) in shard.counts().into_iter().enumerate() {
            summit.peak[at] = summit.peak[at].max(summit.published[at].wrapping_add(count.rise()));
            summit.published[at] = summit.published[at].wrapping_add(count.drift());
            count.note_published(self.slack[at]);
        }
    }

    /// All of them. The caller has the scopes locked, so that none is being made.
    fn shards(&self) -> impl Iterator<Item = &StatsShard> {
        self.shards.iter().chain([&self.seatless])
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for shard in self.shards() {
            for (at, count) in shard.counts().into_iter().enumerate() {
                sums.live[at] = sums.live[at].wrapping_add(count.live());
                sums.total[at] = sums.total[at].wrapping_add(count.total());
            }
            sums.failures += shard.failures.load(Ordering::Relaxed);
        }
        // Of all threads together, less comes to be only where a block is freed twice and nobody below has noticed.
        sums.live = sums.live.map(|live| live.max(0));
        sums
    }

    /// The scopes, which know the highest point until now, and what has been counted.
    /// `None` in a child of the process that it was made in.
    fn look(&self) -> Option<(MutexGuard<'_, Frames>, Sums)> {
        let mut frames = self.frames.lock_unless_forked()?;
        let now = self.sums();
        let (published, told) = {
            let summit = self.summit.lock();
            (summit.published, summit.peak)
        };
        let interval = self.interval.load(Ordering::Relaxed);
        frames.reach(Peak::exactly(now.live));
        let peak = self.peak(&frames, published, told, interval);
        frames.reach(peak);
        Some((frames, now))
    }

    /// What is known of the highest point of the interval that runs. `published` is the sum of what threads have told, and `told`
    /// the most that they have told of.
    ///
    /// If one shard has moved in the interval, the highest point is that shard's, above what the others have: exactly. Else there are
    /// two bounds above it. One is the sum of the highest points. The other is `told`, to which a shard that has moved
    /// adds a slack at most, because it tells before it is further from what it told last; and one that has not moved what it has
    /// not told. It is at least `told` less a slack for each that has moved, and one more, because the thread that told may
    /// have had its own highest point when the others had told of less.
    fn peak(&self, frames: &Frames, published: [i64; 2], told: [i64; 2], interval: u64) -> Peak {
        let mut lives = frames.lives.iter().peekable();
        let (mut sum, mut untold, mut moved) = ([0_i64; 2], [0_i64; 2], [0_i64; 2]);
        let mut told = [0, 1].map(|at| told[at].max(published[at]));
        for shard in self.shards() {
            let began = lives.next_if(|(id, _)| *id == shard.id()).map_or([0; 2], |(_, live)| *live);
            // One that has counted nothing at all, as that of threads without a seat, is in the interval that it was made in.
            let is_in_interval =
                shard.interval.load(Ordering::Acquire) == interval && !shard.bytes.is_untouched();
            for (at, count) in shard.counts().into_iter().enumerate() {
                let live = count.live();
                // One that only gave back need not have entered the interval, and had more before.
                let highest = if is_in_interval { count.highest() } else { live };
                sum[at] = sum[at].wrapping_add(highest.max(began[at]));
                if is_in_interval {
                    told[at] = told[at].max(published[at].wrapping_add(count.rise()));
                }
                if is_in_interval || live != began[at] {
                    moved[at] += 1;
                } else {
                    untold[at] = untold[at].wrapping_add(count.drift());
                }
            }
        }
        let mut peak = Peak::exactly(sum);
        for at in (0..2).filter(|at| moved[*at] > 1) {
            let around = told[at].wrapping_add(untold[at]);
            peak.most[at] = sum[at].min(around.saturating_add(self.slack[at].saturating_mul(moved[at])));
            peak.least[at] = around.saturating_sub(self.slack[at].saturating_mul(moved[at] + 1));
        }
        peak
    }

    /// Begins a scope: from now on the highest point is a new one. `enter` gets the scopes, and the frame that begins.
    /// `None` in a child of the process that it was made in.
    fn begin<T>(&self, enter: impl FnOnce(&mut Frames, Frame, &Sums) -> T) -> Option<T> {
        let mut frames = self.frames.lock_unless_forked()?;
        let now = self.sums();
        let (published, told, interval) = {
            let mut summit = self.summit.lock();
            let published = summit.published;
            let told = core::mem::replace(&mut summit.peak, published);
            // Relaxed, and no read-modify-write: the scopes are locked.
            let interval = self.interval.load(Ordering::Relaxed);
            self.interval.store(interval.wrapping_add(1), Ordering::Relaxed);
            (summit.published, told, interval)
        };
        frames.reach(Peak::exactly(now.live));
        let peak = self.peak(&frames, published, told, interval);
        frames.reach(peak);
        frames.lives.clear();
        frames.lives.extend(self.shards().map(|shard| (shard.id(), shard.counts().map(Count::live))));
        Some(enter(&mut frames, Frame::begin(now), &now))
    }

    /// Begins a scope, in which the calls of all threads are counted from 0. Returns the counts of the scope that was
    /// the last until now.
    ///
    /// This is RMM's stack of counters: there is one, so threads that push and pop at the same time mix up their
    /// scopes. A [`scope`](Self::scope) belongs to its owner.
    ///
    /// ```
    /// use alluvion::{DeviceVec, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let stats = Cuda::new(&sim.device(0)).stats();
    /// let stream = sim.device(0).stream()?;
    /// let before = DeviceVec::<u8, _>::zeroed_in(1000, &stream, &stats)?;
    /// assert_eq!(stats.book().push().bytes.peak, 1000);
    /// drop(before);
    /// let inside = stats.book().pop()?;
    /// assert_eq!((inside.bytes.live, inside.bytes.peak), (-1000, 0));
    /// assert_eq!(stats.counts().bytes.live, 0);
    /// assert!(stats.book().pop().is_err());
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn push(&self) -> Counts {
        let pushed = self.begin(|frames, frame, now| {
            let outer = frames.top().counts(now);
            frames.pushed.push(frame);
            outer
        });
        pushed.unwrap_or_default()
    }

    /// Ends the scope that was pushed last, and returns its counts, which are added to the scope around it. The peak of
    /// that scope is the higher one of its own, and of its live amount when the ended scope began plus the peak of the
    /// ended scope.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if no scope is pushed.
    pub fn pop(&self) -> Result<Counts, Error> {
        let popped = self.look().and_then(|(mut frames, now)| Some((frames.pushed.pop()?, now)));
        popped
            .map(|(frame, now)| frame.counts(&now))
            .ok_or_else(|| Error::invalid_argument("the scope to pop", "none is pushed", "push one before"))
    }

    /// Begins a scope of the caller's own: it counts the calls of all threads until it is ended, whatever scopes others
    /// push and pop.
    ///
    /// ```
    /// use alluvion::{DeviceVec, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let stats = Cuda::new(&sim.device(0)).stats();
    /// let stream = sim.device(0).stream()?;
    /// let scope = stats.book().scope();
    /// drop(DeviceVec::<u8, _>::zeroed_in(1000, &stream, &stats)?);
    /// let counts = scope.end();
    /// assert_eq!((counts.bytes.peak, counts.allocations.total), (1000, 1));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn scope(&self) -> Scope<'_> {
        Scope::new(self, self.begin(|frames, frame, _| frames.hold(frame)).unwrap_or(Frames::NOBODYS))
    }

    /// Runs `body`, and returns the counts of all threads meanwhile.
    ///
    /// ```
    /// use alluvion::{DeviceVec, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let stats = Cuda::new(&sim.device(0)).stats();
    /// let stream = sim.device(0).stream()?;
    /// let (numbers, counts) = stats.book().measure(|| DeviceVec::<u8, _>::zeroed_in(64, &stream, &stats));
    /// assert_eq!((numbers?.len(), counts.bytes.live), (64, 64));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn measure<T>(&self, body: impl FnOnce() -> T) -> (T, Counts) {
        let scope = self.scope();
        let result = body();
        (result, scope.end())
    }

    fn counts_of(&self, scope: u64) -> Counts {
        let counts = self.look().and_then(|(frames, now)| Some(frames.held(scope)?.counts(&now)));
        counts.unwrap_or_default()
    }

    fn end(&self, scope: u64) {
        if let Some(mut frames) = self.frames.lock_unless_forked() {
            frames.let_go(scope);
        }
    }
}

/// The counts since the layer was made, on one line; then a line for each tag, if there are any.
impl fmt::Display for StatsBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.whole())?;
        let by_tag = self.by_tag();
        if by_tag.iter().all(|of| of.tag == Tag::NONE) {
            return Ok(());
        }
        let names: Vec<_> = by_tag
            .iter()
            .map(|of| if of.tag == Tag::NONE { "(no tag)".to_owned() } else { of.tag.to_string() })
            .collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        for (of, name) in by_tag.iter().zip(&names) {
            let bytes = SignedSize(of.bytes as i64).to_string();
            write!(f, "\n  {name:width$}  {bytes:>10} in {:>8} allocations", of.allocations)?;
            if of.failures > 0 {
                write!(f, ", {} failed", of.failures)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for StatsBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StatsBook({})", self.whole())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
