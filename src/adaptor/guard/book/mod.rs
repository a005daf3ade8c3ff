//! `GuardBook`: the book of `Guard`.

#![expect(unsafe_code, reason = "queues copies of blocks, and reads them when they are over")]

mod pending;

use core::fmt;
use core::mem;
use std::collections::VecDeque;

use pending::Pending;
use smallvec::SmallVec;

use super::fence::{Fence, Part, Zone};
use super::staging::{Staging, StagingPool};
use super::told::Told;
use super::{GuardConfig, Trespass, TrespassKind};
use crate::blocks::BlockTable;
use crate::device::Device;
use crate::driver::DriverResult;
use crate::error::{Error, Misuse, MisuseKind};
use crate::resource::{DevicePtr, Layout};
use crate::stream::{Frontier, Stamp, Stream, StreamId, StreamRef};
use crate::suballoc::{Growth, PoolConfig};
use crate::sync::{Arc, Mutex};
use crate::tag::Tag;

/// Pinned memory to copy redzones to: taken a MiB at a time, and at most so much, which is 20,000 blocks whose checks are not over.
const STAGING_STEP: usize = 1 << 20;
const STAGING_BYTES: usize = 16 << 20;

/// So many trespasses are kept to be read. A kernel that is wrong is wrong for every block; the rest is counted.
const MOST: usize = 1024;

/// A call asks the driver about so many streams that have something to be looked at, in turn. Each call adds at most two checks, so that
/// they do not pile up behind one that is not asked about.
const STREAMS_ASKED: usize = 4;

/// The live blocks and the findings of a [`Guard`](super::Guard).
///
/// ```
/// use alluvion::adaptor::{Guard, GuardConfig};
/// use alluvion::{AnyResource, DeviceVec, Resource, ResourceExt, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let resource = AnyResource::new(Cuda::new(&sim.device(0)).guard(GuardConfig::default())?);
/// drop(DeviceVec::<f32, _>::zeroed_in(1000, &stream, resource.clone())?);
/// let watch = resource.find::<Guard>().expect("there is a `Guard` in it");
/// watch.check()?;
/// assert_eq!((watch.verified(), watch.violations().len()), (1, 0));
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct GuardBook {
    device: Device,
    config: GuardConfig,
    /// What leaves the quarantine is looked at on this stream. Nobody waits for it but to get memory.
    late: Stream,
    staging: Arc<StagingPool>,
    live: BlockTable<LiveBlock>,
    book: Mutex<Book>,
    told: Told,
}

#[derive(Default)]
struct Book {
    /// Copies that are queued.
    pending: Pending<Check>,
    quarantine: VecDeque<Kept>,
    quarantined_bytes: usize,
    found: Vec<Trespass>,
    counts: GuardCounts,
}

#[derive(Clone, Copy, Debug, Default)]
struct GuardCounts {
    found: u64,
    verified: u64,
    unverified: u64,
}

/// A live block.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveBlock {
    pub(super) fence: Fence,
    /// The point at which its redzones are written. `None` if that is completed.
    pub(super) raised: Option<Stamp>,
    /// `false` if they are not: it was allocated in a capture.
    pub(super) is_guarded: bool,
    tag: Tag,
}

/// A freed block in quarantine.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) fence: Fence,
    /// A point after its last use and its last fill.
    pub(super) freed: Frontier,
    is_poisoned: bool,
    about: About,
}

/// The data of a block in a report.
#[derive(Clone, Copy, Debug)]
struct About {
    block: DevicePtr,
    bytes: usize,
    tag: Tag,
    stream: Option<StreamId>,
}

/// Queued copies, and their expected bytes.
struct Check {
    staging: Staging,
    parts: SmallVec<[Part; 2]>,
    about: About,
    /// The redzones of a block, not what is in it.
    is_of_redzones: bool,
}

impl GuardBook {
    pub(super) fn new(device: &Device, mut config: GuardConfig) -> Result<Self, Error> {
        let maximum = STAGING_BYTES.max(config.verify_bytes.saturating_mul(2));
        let step = PoolConfig::default().growth(Growth::Step(STAGING_STEP)).maximum(maximum);
        let staging = Arc::new(StagingPool::new(device, step)?);
        let (live, book) = (BlockTable::default(), Mutex::default());
        let told = Told::new(config.handler.take());
        Ok(Self { device: device.clone(), config, late: device.stream()?, staging, live, book, told })
    }

    /// Adds a handler, beside that of the [configuration](GuardConfig::on_violation): it is called with each finding from now on, on the
    /// thread that finds it and with no lock held. A panic of it is caught. It is for a guard that a [recipe](crate::Recipe) has made.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// use alluvion::adaptor::Guard;
    /// use alluvion::{Layout, Recipe, Resource, ResourceExt, Sim};
    ///
    /// static FOUND: AtomicUsize = AtomicUsize::new(0);
    /// let sim = Sim::new();
    /// let stack = "guard | cuda".parse::<Recipe>()?.build(&sim.device(0))?;
    /// stack.find::<Guard>().expect("there is one").on_violation(|trespass| {
    ///     println!("{trespass}");
    ///     FOUND.fetch_add(1, Ordering::Relaxed);
    /// });
    /// let layout = Layout::from_bytes(1000)?;
    /// let block = stack.allocate_sync(layout)?;
    /// // SAFETY: nothing uses the block, and what is no block any more the guard leaves alone.
    /// (0..2).for_each(|_| unsafe { stack.deallocate_sync(block, layout) });
    /// assert_eq!(FOUND.load(Ordering::Relaxed), 1, "it was freed twice");
    /// # sim.take_hazards();
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn on_violation(&self, handler: impl Fn(&Trespass) + Send + Sync + 'static) {
        self.told.push(Arc::new(handler));
    }

    /// The first 1024 findings.
    #[must_use]
    pub fn violations(&self) -> Vec<Trespass> {
        self.book.lock_unless_forked().map(|book| book.found.clone()).unwrap_or_default()
    }

    /// The number of findings.
    #[must_use]
    pub fn found(&self) -> u64 {
        self.counts().found
    }

    /// The number of blocks whose redzones have been checked.
    #[must_use]
    pub fn verified(&self) -> u64 {
        self.counts().verified
    }

    /// Of how many blocks that were freed they have not been and will not be: because a stream was capturing when they were
    /// allocated or freed, because there was no pinned memory left to copy them to, or because the driver refused or was lost.
    #[must_use]
    pub fn unverified(&self) -> u64 {
        self.counts().unverified
    }

    /// The number of live blocks.
    #[must_use]
    pub fn live_blocks(&self) -> usize {
        self.live.len()
    }

    /// The bytes of freed blocks in quarantine, redzones included.
    #[must_use]
    pub fn quarantined_bytes(&self) -> usize {
        self.book.lock_unless_forked().map_or(0, |book| book.quarantined_bytes)
    }

    /// Waits, on the host, for the work before every block that was freed, and looks at them. What is in quarantine is looked at
    /// when it leaves.
    ///
    /// # Errors
    ///
    /// Those of the work itself; a capture error while a stream captures that blocks were freed on before. The others have been
    /// looked at.
    pub fn check(&self) -> Result<(), Error> {
        self.require_same_process()?;
        let machine = self.device.machine();
        let mut outcome = Ok(());
        let points = self.book.lock().pending.last_points();
        for point in &points {
            outcome = outcome.and(machine.wait_quiescent(&Frontier::of(*point)));
        }
        let done = |point: &Stamp| Stamp { epoch: machine.done_up_to(point.stream()), ..*point };
        self.look_at(&points.iter().map(done).collect::<SmallVec<[Stamp; 4]>>());
        outcome
    }

    /// Looks at what is over by now, without waiting. It costs a query of the driver for each stream that has something to be looked at.
    /// Every allocation and every free does the same for some of the streams, in turn.
    pub fn poll(&self) {
        self.poll_some(usize::MAX);
    }

    /// The bounded check in every allocation and free.
    pub(super) fn poll_a_few(&self) {
        self.poll_some(STREAMS_ASKED);
    }

    fn poll_some(&self, streams: usize) {
        let Some(points) = self.book.lock_unless_forked().map(|mut book| book.pending.next_points(streams))
        else {
            return;
        };
        let machine = self.device.machine();
        let (mut done, mut is_lost) = (SmallVec::<[Stamp; 4]>::new(), false);
        for point in points {
            match machine.poll(point.stream(), point.epoch()) {
                Ok(polled) => done.push(Stamp { epoch: polled.done, ..point }),
                Err(error) if error.is_final() => {
                    is_lost = true;
                }
                // It may say more next time.
                Err(_) => {}
            }
        }
        self.look_at(&done);
        if is_lost {
            self.give_up();
        }
    }

    /// Looks at the copies that are over: those before these points.
    fn look_at(&self, done: &[Stamp]) {
        let (mut over, mut found) = (Vec::new(), Vec::new());
        {
            // Under one lock: who has waited for a check also finds what it has found.
            let Some(mut guard) = self.book.lock_unless_forked() else { return };
            let book = &mut *guard;
            done.iter().for_each(|point| book.pending.take_up_to(*point, &mut over));
            for check in &over {
                // SAFETY: the copies are over: the driver has said so of a later point.
                unsafe { check.tell(&mut found) };
                book.counts.verified += u64::from(check.is_of_redzones);
            }
            book.note(&found);
        }
        // Their staging goes back with no lock held.
        drop(over);
        self.told.tell(&found);
    }

    /// The device is lost: nobody will say whether a copy is over, so that what it writes to is not used again.
    fn give_up(&self) {
        let pending: Vec<Check> = {
            let Some(mut book) = self.book.lock_unless_forked() else { return };
            let pending: Vec<Check> = book.pending.take_all().collect();
            book.counts.unverified += pending.iter().filter(|check| check.is_of_redzones).count() as u64;
            pending
        };
        pending.into_iter().for_each(|check| mem::forget(check.staging));
    }

    /// At the end: looks at what it can. What it cannot is leaked, because copies may still be on their way there.
    pub(super) fn end(&self) {
        // Twice, because a driver that was short of something may not be any more. In a child of the process that it was made in
        // the staging stays with the parent: its pool takes nothing back there.
        if self.check().is_err() {
            let _ = self.check();
        }
        self.give_up();
    }

    fn report(&self, about: About, kind: TrespassKind) {
        let trespass = about.trespass(kind);
        if let Some(mut book) = self.book.lock_unless_forked() {
            book.note(&[trespass]);
        }
        self.told.tell(&[trespass]);
    }

    fn counts(&self) -> GuardCounts {
        self.book.lock_unless_forked().map(|book| book.counts).unwrap_or_default()
    }

    pub(super) fn require_same_process(&self) -> DriverResult<()> {
        self.book.require_same_process()
    }

    pub(super) fn redzone_bytes(&self) -> usize {
        self.config.redzone_bytes
    }

    pub(super) fn late(&self) -> StreamRef<'_> {
        self.late.as_ref()
    }

    /// Trims the pinned memory that is not in use.
    pub(super) fn trim_staging(&self) -> Result<(), Error> {
        self.staging.trim()
    }

    /// Adds a block.
    pub(super) fn open(&self, fence: Fence, raised: Option<Stamp>, is_guarded: bool) {
        self.live.insert(fence.block(), LiveBlock { fence, raised, is_guarded, tag: Tag::current() });
    }

    /// Closes it. `None` if the block is not live, which is reported, as is a wrong layout.
    pub(super) fn close(
        &self,
        block: DevicePtr,
        layout: Layout,
        stream: Option<StreamId>,
    ) -> Option<LiveBlock> {
        if self.live.is_forked_child() {
            // The block is leaked.
            return None;
        }
        let Some(live) = self.live.take(block) else {
            let about = About { block, bytes: layout.bytes(), tag: Tag::NONE, stream };
            self.report(about, TrespassKind::NotLive);
            let misuse = Misuse { block, bytes: about.bytes, what: MisuseKind::NotOut };
            Error::of_misuse(misuse).tell_of_refusal();
            return None;
        };
        if live.fence.plan.layout != layout {
            let freed_bytes = layout.bytes();
            self.report(live.about(stream), TrespassKind::WrongLayout { freed_bytes });
        }
        Some(live)
    }

    pub(super) fn note_unverified(&self) {
        if let Some(mut book) = self.book.lock_unless_forked() {
            book.counts.unverified += 1;
        }
    }

    /// Queues looking at the redzones of a block that is being freed.
    ///
    /// # Safety
    ///
    /// The upstream's block is live until this has run, and no unordered work touches it. The staging came from
    /// [`stage`](Self::stage), for this block.
    pub(super) unsafe fn inspect(
        &self,
        live: &LiveBlock,
        staging: Option<Staging>,
        stream: StreamRef<'_>,
        freed_on: Option<StreamId>,
    ) {
        let (zones, about) = (live.fence.redzones(), live.about(freed_on));
        // SAFETY: the caller's promise.
        if !unsafe { self.look_later(&live.fence, &zones, staging, about, true, stream) } {
            self.note_unverified();
        }
    }

    /// The staging for the redzones of a block, if there is room.
    pub(super) fn stage(&self, live: &LiveBlock) -> Option<Staging> {
        self.room_for(&live.fence.redzones())
    }

    fn room_for(&self, zones: &[Zone]) -> Option<Staging> {
        Staging::new(&self.staging, zones.iter().map(Zone::bytes).sum())
    }

    /// Queues looking at what is in a block that leaves the quarantine.
    ///
    /// # Safety
    ///
    /// As [`inspect`](Self::inspect).
    pub(super) unsafe fn inspect_kept(&self, kept: &Kept, stream: StreamRef<'_>) {
        if !kept.is_poisoned {
            return;
        }
        let zones = kept.fence.poisoned(self.config.verify_bytes);
        // SAFETY: the caller's promise. What cannot be looked at goes: its redzones have been.
        let _ =
            unsafe { self.look_later(&kept.fence, &zones, self.room_for(&zones), kept.about, false, stream) };
    }

    /// # Safety
    ///
    /// As [`inspect`](Self::inspect), with staging from [`room_for`](Self::room_for) for these zones.
    unsafe fn look_later(
        &self,
        fence: &Fence,
        zones: &[Zone],
        staging: Option<Staging>,
        about: About,
        is_of_redzones: bool,
        stream: StreamRef<'_>,
    ) -> bool {
        let Some(staging) = staging else { return false };
        // SAFETY: the block is the caller's promise. The staging has room for the zones, and goes into a check, which is dropped when
        // its point is over; or, if no copy was queued, at once; or, if nobody can say, never.
        let (parts, in_doubt) = unsafe { fence.copy_out(zones, &staging, stream) };
        let is_whole = parts.len() == zones.len();
        if !parts.is_empty() {
            let is_of_redzones = is_of_redzones && is_whole;
            let (point, check) = (stream.release(), Check { staging, parts, about, is_of_redzones });
            match self.book.lock_unless_forked() {
                Some(mut book) => book.pending.push(point, check),
                None => mem::forget(check.staging),
            }
        } else if in_doubt {
            mem::forget(staging);
        }
        is_whole
    }

    /// Puts a poisoned block into the quarantine. `false` if it is too large for it.
    pub(super) fn keep(&self, live: &LiveBlock, freed: Stamp, freed_on: Option<StreamId>) -> bool {
        let bytes = live.fence.plan.whole.bytes();
        if bytes > self.config.quarantine_bytes {
            return false;
        }
        let (freed, about) = (Frontier::of(freed), live.about(freed_on));
        self.keep_again(Kept { fence: live.fence, freed, is_poisoned: true, about });
        true
    }

    /// Keeps a block back that nobody can say of when its redzones are written: until somebody can.
    pub(super) fn keep_unordered(&self, live: &LiveBlock, freed: Frontier, freed_on: Option<StreamId>) {
        let about = live.about(freed_on);
        self.keep_again(Kept { fence: live.fence, freed, is_poisoned: false, about });
    }

    /// Keeps a block back that could not leave.
    pub(super) fn keep_again(&self, kept: Kept) {
        let Some(mut book) = self.book.lock_unless_forked() else { return };
        book.quarantined_bytes += kept.fence.plan.whole.bytes();
        book.quarantine.push_back(kept);
    }

    /// The one that has been there for longest, if there is more than `keep_bytes`.
    pub(super) fn take_surplus(&self, keep_bytes: usize) -> Option<Kept> {
        let mut book = self.book.lock_unless_forked()?;
        if book.quarantined_bytes <= keep_bytes {
            return None;
        }
        let kept = book.quarantine.pop_front()?;
        book.quarantined_bytes -= kept.fence.plan.whole.bytes();
        Some(kept)
    }

    pub(super) fn quarantine_bytes(&self) -> usize {
        self.config.quarantine_bytes
    }

    pub(super) fn kept_blocks(&self) -> usize {
        self.book.lock_unless_forked().map_or(0, |book| book.quarantine.len())
    }
}

impl Book {
    fn note(&mut self, found: &[Trespass]) {
        self.counts.found += found.len() as u64;
        let room = MOST.saturating_sub(self.found.len());
        self.found.extend(found.iter().take(room));
    }
}

impl LiveBlock {
    fn about(&self, stream: Option<StreamId>) -> About {
        About { block: self.fence.block(), bytes: self.fence.plan.layout.bytes(), tag: self.tag, stream }
    }
}

impl About {
    fn trespass(self, kind: TrespassKind) -> Trespass {
        let Self { block, bytes, tag, stream } = self;
        Trespass { block, bytes, kind, tag, stream }
    }
}

impl Check {
    /// # Safety
    ///
    /// The copies are over.
    unsafe fn tell(&self, found: &mut Vec<Trespass>) {
        for (zone, offset) in &self.parts {
            // SAFETY: a copy that is over has written as many bytes there, and nothing else writes to this staging.
            let copy = unsafe { self.staging.bytes(*offset, zone.bytes()) };
            found.extend(zone.trespass(copy).map(|kind| self.about.trespass(kind)));
        }
    }
}

impl fmt::Debug for GuardBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = |book: &Book| (book.quarantine.len(), book.pending.len(), book.counts);
        let (kept, pending, counts) =
            self.book.lock_unless_forked().map(|book| figures(&book)).unwrap_or_default();
        f.debug_struct("GuardBook")
            .field("config", &self.config)
            .field("live", &self.live.len())
            .field("quarantined", &kept)
            .field("pending", &pending)
            .field("counts", &counts)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "testing", not(loom)))]
mod tests {
    use super::*;
    use crate::Sim;
    use crate::compose::ResourceExt;
    use crate::resource::Resource;
    use crate::source::Cuda;

    /// Behind streams that do not move, what a pair of calls looks at and asks does not depend on how many checks wait.
    #[test]
    fn a_pair_costs_what_it_costs_however_many_checks_are_pending() {
        const PAIRS: usize = 50;
        for (streams, most) in [(1, 16_000), (40, 4_000)] {
            let sim = Sim::new();
            let device = sim.device(0);
            let pool =
                Cuda::new(&device).pool(PoolConfig::default().initial(64 << 20)).expect("there is memory");
            let guard = pool.guard(GuardConfig::default().quarantine(0)).expect("there is pinned memory");
            let streams: Vec<_> = (0..streams).map(|_| device.stream().expect("a stream")).collect();
            let gates: Vec<_> = streams
                .iter()
                .map(|stream| {
                    let (gate, closed) = std::sync::mpsc::channel::<()>();
                    let wait = Box::new(move || closed.recv().unwrap_or_default());
                    // SAFETY: the stream is live and of this device.
                    let queued = unsafe { device.driver().stream_host_call(0, stream.as_ref().raw(), wait) };
                    queued.map(|()| gate).expect("it is queued")
                })
                .collect();
            let layout = Layout::from_bytes(256).expect("it is small");
            let mut turn = streams.iter().cycle();
            let mut pairs_until = |pending: usize| {
                while guard.book().book.lock().pending.len() < pending {
                    let stream = turn.next().expect("they go round").as_ref();
                    let block = guard.allocate(layout, stream).expect("there is room");
                    // SAFETY: the block came from there with this layout, and nothing uses it but the guard.
                    unsafe { guard.deallocate(block, layout, stream) };
                }
                (guard.book().book.lock().pending.looks, sim.calls().total())
            };
            let mut costs = [10, most].map(|pending| {
                let before = pairs_until(pending);
                let after = pairs_until(pending + PAIRS);
                (after.0 - before.0, after.1 - before.1)
            });
            let [few, many] = &mut costs;
            // By streams whose turn it is with one, two or no check, and by an event that a pool had to make.
            assert!(many.0 <= 2 * few.0 && many.1 <= 2 * few.1, "{few:?} with 10, {many:?} with {most}");
            assert!(many.0 <= PAIRS * 2 * STREAMS_ASKED, "{many:?}");
            drop(gates);
            guard.book().check().expect("nothing is wrong");
            assert_eq!(guard.book().found(), 0);
        }
    }
}
