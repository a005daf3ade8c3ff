//! Memory that belongs to captured graphs.
//!
//! A [`Reservation`] is memory of the suballocator that graphs use: segments, which are blocks of the suballocator, carved by a
//! book of their own. A *session* is one capture that allocates there. The reservation lies in the book of its suballocator, so
//! that a block of a graph is known wherever it is freed, and so that memory which nobody releases stays where it is, although
//! its handle is gone.
//!
//! # The order within a capture
//!
//! Captured work runs when its graph is launched. So neither the epochs of a stream nor what the driver says about its progress
//! mean anything for memory of a graph, and the other way round. In a session each stream has a [branch](StreamRef::branch), a
//! stream with epochs of its own, and the book of the reservation knows branches only. A branch reuses what it has freed itself,
//! and what another branch had freed before it followed that branch. Nothing there is asked of the driver, and nobody waits.
//!
//! A block returns to its session only if it was allocated in it and is freed on a stream of the same capture. Any other free
//! may lie behind work that runs, which no launch of the graph follows: such a block is kept until the reservation is released.
//! So is one that a stream which captures has used, when the stream of the free cannot wait for that use: its owner
//! [leaves](SuballocBook::leave_to_graph) it before the free. Where several captures use it, one reservation after the other keeps it.
//!
//! # The filter
//!
//! Each allocation and each free of the suballocator loads one word, [`Graphs::lowest`]: without graphs it is the largest
//! address, and nothing else is looked at; while a session is open, or a block is left to a graph, and where captures are watched, it is 0. The load is relaxed. A thread that frees a block of a
//! graph has it from the thread that allocated it, and so comes after the store; a thread that uses a stream while another thread
//! opens a session on it is ordered with that thread by chance anyway.
//!
//! While anything [sleeps](super::sleeping), the word is [`ASLEEP`]: each free then looks at the addresses of graphs, and at the
//! filter of what sleeps, and the driver is asked for neither.

mod allocate;
mod free;
mod release;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::book::SuballocBook;
use super::sleeping::AsleepFilter;
use crate::driver::CaptureId;
use crate::error::Error;
use crate::order::Cover;
use crate::resource::{DevicePtr, Layout};
use crate::stream::{Frontier, Stamp, Stream, StreamId, StreamRef};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};

/// The number of a reservation, never used twice by a suballocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReservationId(u64);

/// One capture that allocates in a reservation.
#[derive(Debug)]
struct Session {
    capture: CaptureId,
    is_open: bool,
    /// Each stream of the capture that has allocated, freed or been ordered: its number, and its branch.
    branches: Vec<(StreamId, Stream)>,
    /// The events that order the branches.
    events: Vec<Cover>,
}

/// Memory that belongs to graphs.
#[derive(Debug)]
struct Reservation {
    id: ReservationId,
    book: Arc<SuballocBook>,
    /// Blocks of the suballocator, with their layouts, which the book of the reservation carves.
    segments: Vec<(DevicePtr, Layout)>,
    /// Blocks of the suballocator that were freed in a capture, or were left to it: the graph uses them.
    parked: Vec<ParkedBlock>,
    sessions: Vec<Session>,
    /// The work that runs before which memory of the reservation was freed.
    behind: Frontier,
    /// Blocks that are out.
    live_blocks: usize,
    /// Handles that have not released it.
    handles: usize,
}

impl Reservation {
    fn session(&mut self, capture: CaptureId) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|session| session.capture.number == capture.number)
    }

    fn open_session(&mut self, capture: CaptureId) -> Option<&mut Session> {
        self.session(capture).filter(|session| session.is_open)
    }

    /// Keeps a block of the suballocator that the graph uses, and perhaps others, which was freed behind that point.
    fn park(&mut self, parked: ParkedBlock, behind: Option<Stamp>) {
        self.parked.push(parked);
        behind.iter().for_each(|stamp| self.behind.extend(*stamp));
    }

    /// All that it holds of the suballocator.
    fn blocks(&self) -> impl Iterator<Item = (DevicePtr, Layout)> + '_ {
        let parked = self.parked.iter().map(|parked| (parked.block, parked.layout));
        self.segments.iter().copied().chain(parked)
    }
}

/// A block of a reservation that is out.
#[derive(Clone, Copy, Debug)]
struct LiveBlock {
    reservation: ReservationId,
    /// The capture that it was allocated in.
    capture: CaptureId,
    units: u32,
    /// Work of other streams uses it that the free cannot come behind: the free does not return it to its session.
    is_left: bool,
}

/// Reservations whose graphs use a block: one, for most blocks.
type Users = SmallVec<[ReservationId; 1]>;

/// A block of the suballocator that a reservation keeps until it is released.
#[derive(Debug)]
struct ParkedBlock {
    block: DevicePtr,
    layout: Layout,
    /// Others whose graphs use it: the first of them that is not released keeps it next.
    next: Users,
}

/// A block of the suballocator that is a reservation's from its free on.
#[derive(Debug)]
struct Left {
    /// Not empty. The first will keep it.
    users: Users,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Reservations {
    all: Vec<Reservation>,
    live: HashMap<u64, LiveBlock>,
    /// Blocks of the suballocator that were freed in captures without a session: no handle says when their graphs are gone.
    quarantined: Vec<(DevicePtr, Layout)>,
    /// Blocks of the suballocator that are a reservation's as soon as they are freed, on whatever stream, unless it has been released
    /// before.
    left: HashMap<u64, Left>,
    made: u64,
    /// Something sleeps.
    has_asleep: bool,
}

impl Reservations {
    fn get(&mut self, id: ReservationId) -> Option<&mut Reservation> {
        self.all.iter_mut().find(|reservation| reservation.id == id)
    }

    /// All that graphs hold of the suballocator.
    fn blocks(&self) -> impl Iterator<Item = (DevicePtr, Layout)> + '_ {
        self.all.iter().flat_map(Reservation::blocks).chain(self.quarantined.iter().copied())
    }

    /// The reservation with an open session of that capture.
    fn of_capture(&mut self, capture: CaptureId) -> Option<&mut Reservation> {
        self.all
            .iter_mut()
            .find_map(|reservation| reservation.open_session(capture).is_some().then_some(reservation))
    }
}

/// The lowest address that a block may have: what it is compared with while something sleeps.
const ASLEEP: u64 = 1;

/// The memory that graphs have of one suballocator.
#[derive(Debug)]
pub(super) struct Graphs {
    /// No block of a graph that is out has a lower address; [`ASLEEP`] while something sleeps; 0 while a session is open, a block is
    /// left to a graph, or captures are watched. See the top of the file.
    lowest: AtomicU64,
    /// The blocks of graphs that are out lie between these addresses.
    first: AtomicU64,
    highest: AtomicU64,
    /// The blocks that sleep.
    pub(super) asleep: AsleepFilter,
    /// Each free asks whether its stream captures.
    watch_captures: bool,
    reservations: Mutex<Reservations>,
}

impl SuballocBook {
    /// The bytes of a reservation; none if it has been released.
    pub(crate) fn reservation_bytes(&self, id: ReservationId) -> usize {
        let Some(mut reservations) = self.graphs.reservations.lock_unless_forked() else { return 0 };
        let reservation = reservations.get(id);
        reservation.map_or(0, |it| it.blocks().map(|(_, layout)| layout.rounded_bytes()).sum())
    }
}

impl Graphs {
    pub(super) fn new(watch_captures: bool) -> Self {
        Self {
            lowest: AtomicU64::new(if watch_captures { 0 } else { u64::MAX }),
            first: AtomicU64::new(u64::MAX),
            highest: AtomicU64::new(0),
            asleep: AsleepFilter::default(),
            watch_captures,
            reservations: Mutex::default(),
        }
    }

    /// Returns `true` while a session is open: any stream may be one of its capture. Also where captures are watched.
    #[inline]
    pub(super) fn have_a_session(&self) -> bool {
        // Relaxed: see the top of the file.
        self.lowest.load(Ordering::Relaxed) == 0
    }

    /// Returns `true` if the free of a block may concern a graph, or anything sleeps.
    #[inline]
    pub(super) fn may_concern(&self, block: DevicePtr) -> bool {
        // Relaxed: see the top of the file.
        self.lowest.load(Ordering::Relaxed) <= block.address()
    }

    /// As [`may_concern`](Self::may_concern), after that: returns `true` if the free may concern a graph, or the block may sleep.
    #[cold]
    #[inline(never)]
    pub(super) fn do_concern(&self, block: DevicePtr) -> bool {
        self.is_worth_a_look(block) || self.asleep.may_hold(block.address())
    }

    /// Returns `true` if a block of that address may be a graph's, or a session is open.
    fn is_worth_a_look(&self, block: DevicePtr) -> bool {
        // Relaxed: as above.
        let ends = (self.first.load(Ordering::Relaxed), self.highest.load(Ordering::Relaxed));
        self.have_a_session() || (ends.0..ends.1).contains(&block.address())
    }

    /// Sets the filter. Under the lock, so that two threads set it in the order of their changes.
    fn set_filter(&self, reservations: &Reservations) {
        let is_open = |reservation: &Reservation| reservation.sessions.iter().any(|session| session.is_open);
        let with_live = reservations.all.iter().filter(|reservation| reservation.live_blocks > 0);
        let ends = |&(block, layout): &(DevicePtr, Layout)| {
            (block.address(), block.address() + layout.rounded_bytes() as u64)
        };
        let (mut lowest, mut highest) = (u64::MAX, 0);
        for (from, to) in with_live.flat_map(|reservation| reservation.segments.iter().map(ends)) {
            (lowest, highest) = (lowest.min(from), highest.max(to));
        }
        // Relaxed: see the top of the file.
        self.first.store(lowest, Ordering::Relaxed);
        self.highest.store(highest, Ordering::Relaxed);
        if reservations.has_asleep {
            lowest = ASLEEP;
        }
        if self.watch_captures || !reservations.left.is_empty() || reservations.all.iter().any(is_open) {
            lowest = 0;
        }
        // Relaxed: as above.
        self.lowest.store(lowest, Ordering::Relaxed);
    }

    /// Has each free look whether its block sleeps, from now on or no more.
    pub(super) fn set_asleep(&self, has_asleep: bool) {
        let mut reservations = self.reservations.lock();
        if reservations.has_asleep != has_asleep {
            reservations.has_asleep = has_asleep;
            self.set_filter(&reservations);
        }
    }

    /// Returns `true` if a graph holds a block of the suballocator, or has it from its free on.
    pub(super) fn hold(&self, block: DevicePtr) -> bool {
        let reservations = self.reservations.lock();
        reservations.left.contains_key(&block.address()) || reservations.blocks().any(|(of, _)| of == block)
    }

    /// The bytes of the suballocator that graphs hold.
    pub(super) fn bytes(&self) -> usize {
        let Some(reservations) = self.reservations.lock_unless_forked() else { return 0 };
        reservations.blocks().map(|(_, layout)| layout.rounded_bytes()).sum()
    }

    /// All blocks of the suballocator that graphs hold, or have from their free on, with their bytes. They never go back: nobody has
    /// said that the graphs are gone.
    pub(super) fn held(&self) -> Vec<(u64, u64)> {
        let reservations = self.reservations.lock();
        let blocks =
            reservations.blocks().map(|(block, layout)| (block.address(), layout.rounded_bytes() as u64));
        blocks.chain(reservations.left.iter().map(|(block, left)| (*block, left.bytes))).collect()
    }

    /// Opens a session of a capture: in a reservation that graphs share, or in a new one, with this book.
    pub(super) fn open(
        &self,
        capture: CaptureId,
        shared: Option<ReservationId>,
        book: impl FnOnce() -> SuballocBook,
    ) -> Result<ReservationId, Error> {
        let mut guard = self.reservations.lock();
        let reservations = &mut *guard;
        if reservations.of_capture(capture).is_some() {
            return Err(Error::invalid_argument(
                "a second memory for a capture",
                "the capture allocates from another memory of this pool",
                "use that memory, or end it first",
            ));
        }
        let session = Session { capture, is_open: true, branches: Vec::new(), events: Vec::new() };
        let id = match shared {
            Some(id) => {
                let reservation = reservations.get(id).ok_or_else(released)?;
                if reservation.session(capture).is_some() {
                    return Err(Error::invalid_argument(
                        "a memory for one capture twice",
                        "a graph runs at once with itself, so that it cannot share",
                        "call `Pool::capture`",
                    ));
                }
                reservation.sessions.push(session);
                reservation.handles += 1;
                id
            }
            None => {
                reservations.made += 1;
                let id = ReservationId(reservations.made);
                reservations.all.push(Reservation {
                    id,
                    book: Arc::new(book()),
                    segments: Vec::new(),
                    parked: Vec::new(),
                    sessions: vec![session],
                    behind: Frontier::quiescent(),
                    live_blocks: 0,
                    handles: 1,
                });
                id
            }
        };
        self.set_filter(reservations);
        Ok(id)
    }

    /// The book of a reservation, and the branch of a stream in an open session of it. The stream takes part in that capture.
    fn enter(
        &self,
        id: ReservationId,
        capture: CaptureId,
        stream: StreamRef<'_>,
    ) -> Result<(Arc<SuballocBook>, Stream), Error> {
        let mut made = None;
        loop {
            {
                let mut reservations = self.reservations.lock();
                let reservation = reservations.get(id).ok_or_else(released)?;
                let book = Arc::clone(&reservation.book);
                let session = reservation.open_session(capture).ok_or_else(over)?;
                if let Some((_, branch)) = session.branches.iter().find(|(of, _)| *of == stream.id()) {
                    return Ok((book, branch.clone()));
                }
                if let Some(branch) = made.take() {
                    session.branches.push((stream.id(), branch));
                    continue;
                }
            }
            // Without the lock, because the table of streams lets go of streams that have ended.
            made = Some(stream.branch()?);
        }
    }
}

/// The session is over.
#[cold]
fn over() -> Error {
    Error::invalid_argument(
        "memory of a capture that has ended",
        "only work of that capture may use it",
        "allocate from the pool, or open a memory for the capture that goes on",
    )
}

/// The stream takes part in no capture, or in another one.
#[cold]
fn not_of_the_capture() -> Error {
    Error::invalid_argument(
        "a stream that takes no part in the capture",
        "the memory serves work of its own capture",
        "let the stream join by `GraphMemory::follow`, or allocate from the pool",
    )
}

#[cold]
fn released() -> Error {
    Error::invalid_argument(
        "memory of a graph that has been released",
        "it has gone back to its pool",
        "open another one by `Pool::capture`",
    )
}
