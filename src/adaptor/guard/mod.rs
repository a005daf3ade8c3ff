//! `Guard`: finds writes outside of live blocks.

#![expect(unsafe_code, reason = "forwards the contract of resources, with more around each block")]

mod announcing;
mod book;
mod config;
mod fence;
mod staging;
mod told;
mod trespass;

pub use book::GuardBook;
use book::{Kept, LiveBlock};
pub use config::GuardConfig;
use fence::{Fence, FencePlan};
pub use trespass::{Damage, Trespass, TrespassKind};

use core::fmt;

use crate::error::Error;
use crate::forward_resource;
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{
    AnyResource, DeviceAccessible, DevicePtr, Export, Figures, HostAccessible, Layer, LayerBook, Layout,
    Resource, ResourceId, blocks_of_upstream, no_export,
};
use crate::stream::{Frontier, Stamp, StreamRef};

/// A free tries so many blocks of the quarantine that cannot leave it, as while the streams that they were freed on capture. Each that
/// can makes room for what is freed.
const PATIENCE: usize = 4;

/// Finds kernels, copies and programs that write beside a block, write to a freed block, or free a block that is not
/// live.
///
/// Around each block are *redzones*, written when it is allocated and checked when it is freed. A fresh block is filled
/// with `0xCD`, a freed one with `0xDD`, so reads of unwritten memory show. Freed blocks go to a *quarantine*, and are
/// checked again when they leave it: a later write has changed them.
///
/// No call waits for a check. The checked bytes are copied to pinned memory behind the work of the freeing stream, and
/// compared once the copies are completed: at later calls, in [`GuardBook::check`], and when the guard is dropped. The
/// findings are in its book, [`GuardBook`], and reported to the [handler](GuardConfig::on_violation), or else on the standard error
/// stream.
///
/// | | driver calls | memory |
/// |---|---|---|
/// | allocating | whether the stream captures, 3 fills: the redzones and the block | 512 bytes and up to 255 more |
/// | freeing | whether the stream captures, 2 copies of a redzone, 1 fill of the block | 768 bytes pinned, until it was looked at |
/// | leaving the quarantine | a wait of a stream of its own, up to 2 copies | `verify` bytes pinned, until it was looked at |
/// | both of the first two | a query for each of up to 4 streams with something to look at, in turn | |
///
/// # Captures
///
/// While the stream captures, there are no fills, copies or quarantine, because they would become part of the graph. A
/// block that was allocated or freed then is [not checked](GuardBook::unverified).
///
/// # Stream ordering
///
/// As the upstream's. The fills come before whatever may use the block. A block that is freed on another stream than it was
/// allocated on is freed behind its fills: if the crate does not know of an order, the stream is made to wait.
///
/// A request that finds no memory has the quarantine emptied, and waits for that on the host.
///
/// # Thread safety
///
/// As the upstream's. The book has one lock.
///
/// # Examples
///
/// ```
/// use alluvion::adaptor::{GuardConfig, TrespassKind};
/// use alluvion::tag::with_tag;
/// use alluvion::driver::FillValue;
/// use alluvion::{Layout, Resource, ResourceExt, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let resource = Cuda::new(&sim.device(0)).guard(GuardConfig::default())?;
/// let layout = Layout::from_bytes(1000)?;
/// let block = with_tag("join", || resource.allocate(layout, stream.as_ref()))?;
/// // Four bytes more than there are.
/// let (driver, raw) = (resource.device().driver(), stream.raw());
/// // SAFETY: the redzone is behind the block, so that what is written belongs to nobody.
/// unsafe { driver.fill_async(0, block.address(), FillValue::U8(7), 1004, raw) }?;
/// // SAFETY: the block came from `resource` with this layout, and the stream has all that uses it.
/// unsafe { resource.deallocate(block, layout, stream.as_ref()) };
/// resource.book().check()?;
/// let trespass = resource.book().violations()[0];
/// assert!(matches!(trespass.kind, TrespassKind::Behind(damage) if (damage.offset, damage.wrong_bytes) == (1000, 4)));
/// assert_eq!((trespass.tag.name(), trespass.stream), ("join", Some(stream.id())));
/// assert_eq!(sim.hazards().len(), 1, "a simulated machine sees it, too");
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Guard<U: Resource = AnyResource> {
    upstream: U,
    watch: GuardBook,
    id: ResourceId,
}

static_assertions::assert_impl_all!(Guard<crate::source::Cuda>: Send, Sync, DeviceAccessible);
static_assertions::assert_not_impl_any!(Guard<crate::source::Cuda>: Clone, HostAccessible);
static_assertions::assert_impl_all!(Guard<crate::source::Pinned>: HostAccessible);
static_assertions::assert_not_impl_any!(Guard<crate::source::Null>: Resource);

impl Guard {
    pub(crate) const CARD: Card = Card {
        name: "guard",
        about: "Finds writes beside a block and writes after its free; not over null.",
        parameters: &[
            Parameter::new(
                "redzone",
                ArgumentKind::Size,
                "guard bytes on each side of a block; 256 if left out",
            ),
            Parameter::new(
                "quarantine",
                ArgumentKind::Size,
                "freed bytes held back before they are used again; 16MiB if left out",
            ),
            Parameter::new(
                "verify",
                ArgumentKind::Size,
                "bytes checked of a block that leaves the quarantine; 64KiB if left out",
            ),
        ],
    };
}

impl<U: DeviceAccessible> Guard<U> {
    /// A layer over `upstream`, whose blocks the device may touch: it has the device fill and copy them.
    ///
    /// # Errors
    ///
    /// As the driver says, of a stream and of pinned memory.
    pub fn new(upstream: U, config: GuardConfig) -> Result<Self, Error> {
        let watch = GuardBook::new(upstream.device(), config)?;
        Ok(Self { upstream, watch, id: ResourceId::unique() })
    }
}

impl<U: Resource> Guard<U> {
    /// The upstream.
    #[must_use]
    pub fn upstream(&self) -> &U {
        &self.upstream
    }

    /// Its book.
    #[must_use]
    pub fn book(&self) -> &GuardBook {
        &self.watch
    }

    /// A block of the upstream; if there is none, once more with what the quarantine has.
    fn take(
        &self,
        whole: Layout,
        may_wait: impl Fn() -> bool,
        allocate: impl Fn(Layout) -> Result<DevicePtr, Error>,
    ) -> Result<DevicePtr, Error> {
        match allocate(whole) {
            Err(error) if error.is_out_of_memory() && may_wait() => {
                self.empty_quarantine(0, usize::MAX);
                // Also for what had left it before: the frees are behind the work that is looked at.
                if self.watch.late().synchronize().is_err() {
                    return Err(error);
                }
                allocate(whole)
            }
            other => other,
        }
    }

    /// Lets the oldest blocks go, until at most `keep_bytes` are kept back, or so many could not. Does not wait.
    fn empty_quarantine(&self, keep_bytes: usize, patience: usize) {
        let mut stuck = 0;
        // Each is tried once: those that cannot go are behind the others then.
        for _ in 0..self.watch.kept_blocks() {
            let Some(kept) = self.watch.take_surplus(keep_bytes) else { return };
            if !self.let_go(&kept) {
                self.watch.keep_again(kept);
                stuck += 1;
                if stuck == patience {
                    return;
                }
            }
        }
    }

    /// Gives a block back behind its last use, and has it looked at before. `false` if nobody can say where that is, as while a
    /// stream captures.
    fn let_go(&self, kept: &Kept) -> bool {
        let late = self.watch.late();
        if late.wait_for(&kept.freed).is_err() {
            return false;
        }
        kept.fence.lay_open();
        // SAFETY: the block is the upstream's until it is given back below, on the same stream, which has come after its last use.
        unsafe { self.watch.inspect_kept(kept, late) };
        kept.fence.withdraw(self.upstream.device());
        let Fence { origin, plan } = kept.fence;
        // SAFETY: the block came from the upstream with this layout, is kept nowhere any more, and this point of the stream is
        // behind its last use: the stream waits for that, above.
        unsafe { self.upstream.deallocate(origin, plan.whole, late) };
        true
    }

    /// Gives back what nothing uses any more, at once. Returns how many bytes went.
    fn let_quiet_ones_go(&self) -> Result<usize, Error> {
        let machine = self.upstream.device().machine();
        let mut quiet = Vec::new();
        for _ in 0..self.watch.kept_blocks() {
            let Some(kept) = self.watch.take_surplus(0) else { break };
            let is_over = |point: Stamp| {
                let polled = machine.poll(point.stream(), point.epoch());
                polled.is_ok_and(|polled| polled.done >= point.epoch())
            };
            if kept.freed.iter().all(is_over) {
                quiet.push(kept);
            } else {
                self.watch.keep_again(kept);
            }
        }
        if quiet.is_empty() {
            return Ok(0);
        }
        let looked_at = self.upstream.device().service_stream().and_then(|service| {
            for kept in &mut quiet {
                kept.fence.lay_open();
                // SAFETY: the block is the upstream's until it is given back below, and nothing uses it.
                unsafe { self.watch.inspect_kept(kept, service.as_ref()) };
                // If the wait fails, the copy is what comes last.
                kept.freed.extend(service.as_ref().release());
            }
            service.synchronize()
        });
        if let Err(error) = looked_at {
            for kept in quiet {
                kept.fence.close();
                self.watch.keep_again(kept);
            }
            return Err(error);
        }
        let mut gone = 0;
        for Kept { fence, .. } in quiet {
            fence.withdraw(self.upstream.device());
            let Fence { origin, plan } = fence;
            gone += plan.whole.bytes();
            // SAFETY: the block came from the upstream with this layout, and is kept nowhere any more. Its uses are over, and the
            // copies too: the stream has been waited for.
            unsafe { self.upstream.deallocate_sync(origin, plan.whole) };
        }
        Ok(gone)
    }
}

/// Brings the stream behind the fills of a block. `false` if that cannot be.
fn bring_behind(raised: Option<Stamp>, stream: StreamRef<'_>) -> bool {
    raised.is_none_or(|raised| stream.wait_for(&Frontier::of(raised)).is_ok())
}

// SAFETY: a block is the middle of one of the upstream's, as `FencePlan` lays it out: aligned, because what is before it is a multiple of
// its alignment, and as long as asked for. It stays until the upstream gets it back: when it is freed, or leaves the quarantine.
// Only the value itself has its id.
unsafe impl<U: DeviceAccessible> Resource for Guard<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        if layout.is_empty() {
            return self.upstream.allocate(layout, stream);
        }
        self.watch.require_same_process()?;
        layout.require_align(self.max_align())?;
        let plan = FencePlan::new(layout, self.watch.redzone_bytes())?;
        self.watch.poll_a_few();
        // The legacy stream says that another one captures by an error.
        let may_fill = || matches!(stream.is_capturing(), Ok(false));
        let origin = self.take(plan.whole, may_fill, |whole| self.upstream.allocate(whole, stream))?;
        // Asked behind the upstream, whose handlers may have begun a capture.
        let is_guarded = may_fill();
        let fence = Fence { origin, plan };
        if is_guarded {
            // SAFETY: the block was allocated on this stream just now, the device may touch it (`DeviceAccessible`), and nobody
            // else has it.
            if let Err(error) = unsafe { fence.raise(stream) } {
                // SAFETY: the block came from the upstream with this layout, and only fills on this stream have used it.
                unsafe { self.upstream.deallocate(origin, plan.whole, stream) };
                return Err(error);
            }
            fence.announce(self.device(), Some(stream));
        }
        self.watch.open(fence, is_guarded.then(|| stream.release()), is_guarded);
        Ok(fence.block())
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        if layout.is_empty() {
            return;
        }
        // First: once the upstream has it, another thread may be given the address.
        let Some(live) = self.watch.close(block, layout, Some(stream.id())) else {
            return announcing::refuse(self.device(), block, layout, Some(stream));
        };
        let LiveBlock { fence, raised, is_guarded, .. } = live;
        let Fence { origin, plan } = fence;
        if is_guarded {
            fence.take_in(self.device(), Some(stream));
        }
        // Before it is asked whether the stream captures: to be given memory may run code of the user's.
        let staging = if is_guarded { self.watch.stage(&live) } else { None };
        let is_looked_at =
            is_guarded && matches!(stream.is_capturing(), Ok(false)) && bring_behind(raised, stream);
        if is_looked_at {
            // SAFETY: the block is the upstream's until it is given back behind this point of the stream, and every use of it
            // comes before: the caller's promise, and `bring_behind` for the fills.
            unsafe { self.watch.inspect(&live, staging, stream, Some(stream.id())) };
            // SAFETY: as before.
            let is_poisoned = unsafe { live.fence.poison(stream) }.is_ok();
            if is_poisoned {
                fence.close();
            }
            if is_poisoned && self.watch.keep(&live, stream.release(), Some(stream.id())) {
                self.empty_quarantine(self.watch.quarantine_bytes(), PATIENCE);
                return self.watch.poll_a_few();
            }
        } else {
            self.watch.note_unverified();
            if let Some(raised) = raised.filter(|raised| !stream.may_reuse(&Frontier::of(*raised))) {
                let mut freed = Frontier::of(raised);
                freed.extend(stream.release());
                return self.watch.keep_unordered(&live, freed, Some(stream.id()));
            }
        }
        if is_guarded {
            fence.withdraw(self.device());
        }
        // SAFETY: the block came from the upstream with this layout, and is live there. Every use of it comes before this point of
        // the stream: the caller's promise. So do the copies and fills on this stream; and the fills of its allocation, because the
        // stream was brought behind them, or may reuse what they have written.
        unsafe { self.upstream.deallocate(origin, plan.whole, stream) };
        self.watch.poll_a_few();
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        if layout.is_empty() {
            return self.upstream.allocate_sync(layout);
        }
        self.watch.require_same_process()?;
        layout.require_align(self.max_align())?;
        let plan = FencePlan::new(layout, self.watch.redzone_bytes())?;
        self.watch.poll_a_few();
        let service = self.device().service_stream()?;
        let origin = self.take(plan.whole, || true, |whole| self.upstream.allocate_sync(whole))?;
        let fence = Fence { origin, plan };
        // SAFETY: the block was allocated just now, for any stream, the device may touch it (`DeviceAccessible`), and nobody else
        // has it.
        let raised = unsafe { fence.raise(service.as_ref()) };
        if let Err(error) = raised.and_then(|()| service.synchronize()) {
            // SAFETY: the block came from the upstream with this layout, and only fills on this stream have used it.
            unsafe { self.upstream.deallocate(origin, plan.whole, service.as_ref()) };
            return Err(error);
        }
        fence.announce(self.device(), None);
        self.watch.open(fence, None, true);
        Ok(fence.block())
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        if layout.is_empty() {
            return;
        }
        // First: once the upstream has it, another thread may be given the address.
        let Some(live) = self.watch.close(block, layout, None) else {
            return announcing::refuse(self.device(), block, layout, None);
        };
        let LiveBlock { fence, raised, is_guarded, .. } = live;
        let Fence { origin, plan } = fence;
        if is_guarded {
            fence.take_in(self.device(), None);
        }
        let service = self.device().service_stream().ok().filter(|_| is_guarded);
        let service = service.filter(|service| bring_behind(raised, service.as_ref()));
        if let Some(service) = service {
            let service = service.as_ref();
            // SAFETY: the block is the upstream's until it is given back behind this point of the stream. Every use of it is over:
            // the caller's promise; the stream is behind the fills by `bring_behind`.
            unsafe { self.watch.inspect(&live, self.watch.stage(&live), service, None) };
            // SAFETY: as before.
            let is_poisoned = unsafe { live.fence.poison(service) }.is_ok();
            if is_poisoned {
                fence.close();
            }
            if is_poisoned && self.watch.keep(&live, service.release(), None) {
                self.empty_quarantine(self.watch.quarantine_bytes(), PATIENCE);
                return self.watch.poll_a_few();
            }
            if service.synchronize().is_err() {
                fence.withdraw(self.device());
                // SAFETY: the block came from the upstream with this layout, and is live there. Its uses are over, but for copies
                // and fills on this stream.
                return unsafe { self.upstream.deallocate(origin, plan.whole, service) };
            }
        } else {
            self.watch.note_unverified();
            if let Some(raised) = raised {
                return self.watch.keep_unordered(&live, Frontier::of(raised), None);
            }
        }
        if is_guarded {
            fence.withdraw(self.device());
        }
        // SAFETY: the block came from the upstream with this layout, and is live there. Every use of it is over: the caller's
        // promise; and what was written around it too: the stream has been waited for, or nothing was.
        unsafe { self.upstream.deallocate_sync(origin, plan.whole) };
        self.watch.poll_a_few();
    }

    forward_resource!(upstream, except allocate, deallocate, id, fmt_layer, trim);

    /// The redzones can be seen and written by the other process, and are looked at when the block is freed.
    unsafe fn export(&self, block: DevicePtr, layout: Layout) -> Result<Export, Error> {
        if layout.is_empty() {
            return Ok(Export::of_nothing());
        }
        let plan = FencePlan::new(layout, self.watch.redzone_bytes())?;
        let origin =
            DevicePtr::new(block.address() - plan.front as u64).ok_or_else(|| no_export("it is no block"))?;
        // SAFETY: the block is live and has this layout: the caller's promise. So it lies in one of the upstream, as the plan for this
        // layout says, which `allocate` asked for with the same.
        Ok(unsafe { self.upstream.export(origin, plan.whole) }?.within(plan.front))
    }

    fn host_access(&self) -> bool {
        self.upstream.host_access()
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guard({} found)", self.watch.found())
    }

    /// Of the quarantine goes what nothing uses any more.
    fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
        let gone = if self.watch.quarantined_bytes() > keep_bytes { self.let_quiet_ones_go()? } else { 0 };
        self.watch.poll();
        self.watch.trim_staging()?;
        // What the upstream keeps is on top of what is kept here.
        let under = self.upstream.trim(keep_bytes.saturating_sub(self.watch.quarantined_bytes()))?;
        Ok(gone.max(under))
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(&self.watch))
    }
}

impl<U: Resource> Drop for Guard<U> {
    /// Waits for the work before what was freed, and looks at all of it.
    fn drop(&mut self) {
        if self.watch.require_same_process().is_err() {
            // What is out belongs to the parent of this process.
            return;
        }
        // Twice, because a driver that was short of something may not be any more. What cannot go even then is leaked.
        self.empty_quarantine(0, usize::MAX);
        self.empty_quarantine(0, usize::MAX);
        self.watch.end();
    }
}

impl<U: Resource> Layer for Guard<U> {
    type Book = GuardBook;

    fn figures(watch: &GuardBook, to: &mut Figures<'_>) {
        to.gauge("alluvion_live_blocks", "Blocks that are out.", watch.live_blocks());
        to.gauge(
            "alluvion_guard_quarantined_bytes",
            "Bytes of freed blocks that are kept back.",
            watch.quarantined_bytes(),
        );
        to.counter("alluvion_guard_found_total", "Writes where nobody may write.", watch.found());
        to.counter(
            "alluvion_guard_verified_total",
            "Blocks whose redzones were looked at.",
            watch.verified(),
        );
        to.counter(
            "alluvion_guard_unverified_total",
            "Freed blocks that are never looked at.",
            watch.unverified(),
        );
    }
}

blocks_of_upstream!(Guard, over DeviceAccessible);
