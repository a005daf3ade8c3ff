//! `Block`: the core of all containers: memory, a home stream, and its uses by other streams. Not generic.

#![expect(unsafe_code, reason = "submits copies and fills, and gives blocks back")]

use super::access::Access;
use super::capture::refuse_capture_by_others;
use super::settle::proves_stopped;
use super::uses::{Due, Use, Uses};
use crate::compose::leave_to_graph;
use crate::device::Device;
use crate::driver::FillValue;
use crate::error::Error;
use crate::resource::{DevicePtr, Layout, Resource};
use crate::stream::{Frontier, Stamp, Stream, StreamId, StreamRef};
use crate::sync::Mutex;

/// Memory of a device with its home stream. Has no `Drop`: its owner has the resource, and calls [`Block::deallocate_to`].
#[derive(Debug)]
pub(crate) struct Block {
    pub(super) address: DevicePtr,
    /// What was allocated: the capacity.
    pub(super) layout: Layout,
    /// Bytes that belong to the container, at most the capacity.
    pub(super) len: usize,
    pub(super) home: Stream,
    uses: Mutex<Uses>,
}

impl Block {
    /// A block of `resource` whose home is `stream`. A request for zero bytes does not reach the resource.
    pub(super) fn allocate(
        resource: &impl Resource,
        layout: Layout,
        stream: StreamRef<'_>,
    ) -> Result<Self, Error> {
        resource.device().require(stream.device())?;
        // The address would be the graph's, with memory behind it only while the graph runs.
        refuse_capture_by_others(stream)?;
        let address = if layout.is_empty() {
            layout.dangling()
        } else {
            let address = resource.allocate(layout, stream)?;
            // Handlers of the resource's user may have run, and have begun a capture.
            if let Err(error) = refuse_capture_by_others(stream) {
                // SAFETY: the block came from there just now, with this layout, and nothing uses it. If it is the graph's, the free
                // becomes part of the graph, and the graph is as good as without the two.
                unsafe { resource.deallocate(address, layout, stream) };
                return Err(error);
            }
            address
        };
        Ok(Self { address, layout, len: 0, home: stream.to_stream(), uses: Mutex::default() })
    }

    /// A block that came from elsewhere, and all that has to come before anything.
    pub(super) fn adopt(
        address: DevicePtr,
        layout: Layout,
        len: usize,
        home: Stream,
        before: &Frontier,
    ) -> Self {
        let mut uses = Uses::default();
        before.iter().for_each(|stamp| uses.note(stamp, Access::Write));
        Self { address, layout, len, home, uses: Mutex::new(uses) }
    }

    /// The bytes that belong to the container.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Everything that its uses on other streams than the home have to be over before.
    pub(super) fn frontier(&self) -> Frontier {
        let mut frontier = Frontier::quiescent();
        let Some(due) = self.uses.lock_unless_forked().map(|uses| uses.due(Access::Write)) else {
            return frontier;
        };
        due.iter().filter_map(|used| self.point(used)).for_each(|stamp| frontier.extend(stamp));
        frontier
    }

    pub(crate) fn device(&self) -> &Device {
        self.home.device()
    }

    /// Makes `stream` follow what an access has to follow: all that is on the home stream, and the uses in
    /// `Uses::due`, which are returned.
    fn order(&self, stream: StreamRef<'_>, access: Access) -> Result<Due, Error> {
        self.uses.require_same_process()?;
        if !self.is_home(stream) {
            follow(stream, self.home.as_ref().release())?;
        }
        let due = self.uses.lock().due(access);
        for used in &due {
            if let Some(point) = self.point(used) {
                follow(stream, point)?;
            }
        }
        Ok(due)
    }

    /// Enters the use of `stream` up to now. A write has waited for `due`, and whoever follows the write follows those.
    fn note(&self, stream: StreamRef<'_>, access: Access, due: &Due) {
        // Taken without the lock: on a stream that is not ours this records an event.
        let stamp = (!self.is_home(stream)).then(|| stream.release());
        if stamp.is_none() && due.is_empty() {
            return;
        }
        let crowd = {
            let Some(mut uses) = self.uses.lock_unless_forked() else { return };
            if access == Access::Write {
                uses.forget(due);
            }
            if let Some(stamp) = stamp {
                uses.note(stamp, access);
            }
            uses.crowd()
        };
        self.thin_out(crowd);
    }

    /// Forgets what is known to be over, so that many streams that each read once do not add up. No driver call.
    fn thin_out(&self, mut crowd: Due) {
        if !crowd.is_empty() {
            let table = self.device().table();
            crowd.retain(|used| table.is_done(Stamp { stream: used.stream, epoch: used.epoch }));
            self.uses.lock().forget(&crowd);
        }
    }

    /// The home, by the number of the stream itself: the legacy stream, where it stands in for the default stream of
    /// another thread, is entered as a use, so that the thread's own stream waits for it by an event.
    pub(super) fn is_home(&self, stream: StreamRef<'_>) -> bool {
        stream.id() == self.home.own_id()
    }

    /// Up to where a use lasts; `None` if its stream is gone and all of its work is over.
    fn point(&self, used: &Use) -> Option<Stamp> {
        if used.open == 0 {
            return Some(Stamp { stream: used.stream, epoch: used.epoch });
        }
        self.device().table().timeline(used.stream).map(|timeline| timeline.latest())
    }

    /// Runs `submit`, which submits one access to `stream`, in its place.
    pub(super) fn access<X>(
        &self,
        stream: StreamRef<'_>,
        access: Access,
        submit: impl FnOnce() -> Result<X, Error>,
    ) -> Result<X, Error> {
        let due = self.order(stream, access)?;
        let submitted = submit();
        // Noted after a failure as well: a submission of several parts may have failed after the first.
        self.note(stream, access, &due);
        submitted
    }

    /// Begins a use that ends with [`close`](Self::close), or lasts up to whatever the stream has come to. Returns the
    /// stream that it is entered for.
    ///
    /// One on the home is entered as well: its guard may be leaked, and another stream become the home.
    pub(crate) fn open(&self, stream: StreamRef<'_>, access: Access) -> Result<StreamId, Error> {
        let due = self.order(stream, access)?;
        let mut uses = self.uses.lock();
        uses.open(stream.id(), access);
        if access == Access::Write {
            uses.forget(&due);
        }
        Ok(stream.id())
    }

    /// Ends a use that [`open`](Self::open) began, `opened` on the same stream.
    pub(crate) fn close(&self, stream: StreamRef<'_>, opened: StreamId, access: Access) {
        if self.uses.is_forked_child() {
            return;
        }
        let stands_in = stream.id() != opened;
        let end = if stands_in {
            // The thread is ending and has let go of its default stream. What came later is on the stream in its stead.
            self.note(stream, access, &Due::new());
            self.device().table().timeline(opened).map(|timeline| timeline.latest())
        } else {
            Some(stream.release())
        };
        let crowd = {
            let mut uses = self.uses.lock();
            uses.close(opened, end.map(Stamp::epoch), self.home.own_id());
            uses.crowd()
        };
        self.thin_out(crowd);
    }

    /// Enters an unrecorded use: all work that `stream` has been given so far.
    pub(super) fn record_use(&self, stream: StreamRef<'_>) -> Result<(), Error> {
        // A point of another machine could never be waited for.
        self.device().require_machine(stream.device())?;
        self.note(stream, Access::Write, &Due::new());
        Ok(())
    }

    /// Leaks the block in the end: a graph may have its address, for an unknown time.
    pub(super) fn keep_for_ever(&self) {
        self.uses.lock().in_a_graph = true;
    }

    /// Returns `true` if a graph may have the address; in a forked child, too, where nobody knows.
    pub(super) fn is_in_a_graph(&self) -> bool {
        self.uses.lock_unless_forked().is_none_or(|uses| uses.in_a_graph)
    }

    /// Makes another stream the home.
    pub(super) fn set_home(&mut self, stream: StreamRef<'_>) -> Result<(), Error> {
        self.device().require(stream.device())?;
        if !self.is_home(stream) {
            follow(stream, self.home.as_ref().release())?;
            self.home = stream.to_stream();
        }
        Ok(())
    }

    /// Copies the first `bytes` bytes to `fresh`, a block of one device and home with this one.
    pub(super) fn copy_into(&self, fresh: &Self, bytes: usize, stream: StreamRef<'_>) -> Result<(), Error> {
        if bytes == 0 {
            return Ok(());
        }
        let (to, from) = (fresh.address.address(), self.address.address());
        // The old block is given back behind this copy, and a graph would read it later.
        outside_of_graphs(stream, &[self, fresh], || {
            let copied = self.access(stream, Access::Read, || {
                // SAFETY:
                // - both blocks are live, and as long: `bytes` is at most what either holds. They are given back on their
                //   home, which follows the two uses that are entered around this copy.
                // - what conflicts comes before, for the same reason; the fresh block was allocated on the home, before.
                unsafe { copy(stream, to, from, bytes) }
            });
            fresh.note(stream, Access::Write, &Due::new());
            copied
        })
    }

    /// Gives the block back, behind all of its uses. Does not wait on the host unless a wait on the device cannot be
    /// made; if neither can, it is left to the graph that has it by the pool's book, if there is one. If there is none, or a graph may use
    /// it that no book knows, the block is leaked. Where the device is known to have stopped, every use is
    /// over. In a child of the process that made it, it is leaked too: the parent's device goes on.
    ///
    /// # Safety
    ///
    /// The block came from `resource`, or from one with its id, and is not used again.
    pub(super) unsafe fn deallocate_to(&mut self, resource: &impl Resource) {
        if self.uses.is_forked_child() {
            return;
        }
        let uses = self.uses.get_mut();
        if uses.in_a_graph {
            return;
        }
        let due = uses.due(Access::Write);
        let home = self.home.as_ref();
        let mut points = due.iter().filter_map(|used| self.point(used));
        // The first point that cannot be waited for decides: the block is its graph's, or it is leaked.
        let first = points.find(|&point| follow(home, point).is_err() && !self.is_over_on_host(point));
        let ordered = first.is_none_or(|first| {
            let mut behind = Frontier::of(first);
            points.for_each(|point| behind.extend(point));
            leave_to_graph(resource, self.address, home, &behind)
        });
        if ordered && !self.layout.is_empty() {
            // SAFETY:
            // - the block is live and came from there: the caller's promise.
            // - the layout is the one it was allocated with.
            // - every use comes before: the home's own are on it, or on the stream that it was handed on from, which
            //   it waited for; the others were waited for above, or the pool was told of them, and keeps the block until it has
            //   waited for them.
            unsafe { resource.deallocate(self.address, self.layout, home) };
        }
    }

    /// Waits for a use on the host: where the home captures, or an event cannot be had.
    fn is_over_on_host(&self, point: Stamp) -> bool {
        let machine = self.device().machine();
        if point.stream.machine() != machine.number() {
            return false;
        }
        match machine.wait_quiescent(&Frontier::of(point)) {
            Ok(()) => return true,
            // The stream of the use captures by now, and to wait for it would break the capture.
            Err(error) if error.is_capture() => return false,
            Err(_) => {}
        }
        let Some(timeline) = self.device().table().timeline(point.stream) else { return true };
        let Ok(device) = machine.device(timeline.ordinal()) else { return false };
        // For that stream, and not for the device: that would break the capture of any other.
        match timeline.wait_out() {
            Ok(over) => {
                self.device().table().finish_all(&over);
                true
            }
            // An error that sounds final is no proof: see `settle`. The driver may go on, and so may a forked child's parent.
            Err(error) => proves_stopped(&device, &error.into()),
        }
    }
}

/// Makes `stream` wait for a point, unless it follows it already. A stream that captures is refused, because such a
/// wait would break the capture.
pub(super) fn follow(stream: StreamRef<'_>, point: Stamp) -> Result<(), Error> {
    stream.wait_up_to(point).map(drop)
}

/// Submits a copy.
///
/// # Safety
///
/// Those of [`Driver::copy_async`](crate::driver::Driver::copy_async), for memory; the stream is proved by its borrow.
pub(super) unsafe fn copy(stream: StreamRef<'_>, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
    let (driver, ordinal) = (stream.driver(), stream.device().ordinal());
    // SAFETY: the caller's promises; the stream is live and of this device, because it is borrowed.
    Ok(unsafe { driver.copy_async(ordinal, to, from, bytes, stream.raw()) }?)
}

/// Submits a fill.
///
/// # Safety
///
/// Those of [`Driver::fill_async`](crate::driver::Driver::fill_async), for memory; the stream is proved by its borrow.
pub(super) unsafe fn fill(
    stream: StreamRef<'_>,
    to: u64,
    value: FillValue,
    count: usize,
) -> Result<(), Error> {
    let (driver, ordinal) = (stream.driver(), stream.device().ordinal());
    // SAFETY: the caller's promises; the stream is live and of this device, because it is borrowed.
    Ok(unsafe { driver.fill_async(ordinal, to, value, count, stream.raw()) }?)
}

/// Runs `submit`, which submits work on `blocks` to `stream`, where nobody else records it.
pub(super) fn outside_of_graphs<X>(
    stream: StreamRef<'_>,
    blocks: &[&Block],
    submit: impl FnOnce() -> Result<X, Error>,
) -> Result<X, Error> {
    refuse_capture_by_others(stream)?;
    let submitted = submit();
    if let Err(error) = refuse_capture_by_others(stream) {
        // A graph may have the addresses, for an unknown time.
        blocks.iter().for_each(|block| block.keep_for_ever());
        return submitted.and(Err(error));
    }
    submitted
}
