//! Freeing blocks of graphs, and blocks that graphs use.

use smallvec::SmallVec;

use super::super::book::Inner;
use super::super::{Engine, SuballocBook, misuse};
use super::{Graphs, Left, LiveBlock, ParkedBlock, ReservationId, Users};
use crate::driver::CaptureId;
use crate::error::{Error, MisuseKind};
use crate::resource::{DevicePtr, Layout, Resource};
use crate::stream::{Frontier, Stamp, StreamRef};
use crate::suballoc::core::{Inspected, Want};

impl<U: Resource> Engine<U> {
    /// Frees a block of a graph, or one that a graph will use: any block that is freed on a stream of a capture with a session.
    /// `None` for any other block, which is freed in the ordinary way.
    ///
    /// `stream` is `None` in a synchronous call.
    #[cold]
    #[inline(never)]
    pub(in crate::suballoc::engine) fn free_beside_graphs(
        &self,
        block: DevicePtr,
        layout: Layout,
        stream: Option<StreamRef<'_>>,
    ) -> Option<Result<(), Error>> {
        let graphs = &self.book.graphs;
        let want = self.book.want(layout)?;
        let (may_be_of_graph, may_sleep) =
            (graphs.is_worth_a_look(block), graphs.asleep.may_hold(block.address()));
        if !(may_be_of_graph || may_sleep)
            || self.book.is_forked_child()
            || stream.is_some_and(|stream| self.book.device.require(stream.device()).is_err())
        {
            return None;
        }
        if may_be_of_graph && let Some(live) = graphs.live(block) {
            return Some(self.free_of_graph(live, graphs.capture_of(stream), block, layout, stream));
        }
        if may_sleep && let Some(freed) = self.free_asleep(want, block, layout, stream) {
            return Some(freed);
        }
        let (captured, is_left) = (graphs.captured_by(stream), graphs.is_left(block));
        if !is_left && matches!(captured, Captured::Nothing) {
            return None;
        }
        if self.book.ledger.is_some()
            && let Err(error) = self.remove_from_ledger(block, layout)
        {
            return Some(Err(error));
        }
        // Behind the ledger: a free that is refused leaves the mark to the one that comes.
        let behind = stream.map(StreamRef::release);
        match graphs.park(captured, is_left, block, layout, behind) {
            Parked::Kept => {}
            Parked::Before => return Some(Err(misuse(block, layout, MisuseKind::DoubleFree))),
            Parked::Gone => {
                // The graph has gone meanwhile, as whoever released it has promised.
                self.book.withdraw(block, layout, stream);
                self.book.take_back(want, block, behind);
            }
        }
        Some(Ok(()))
    }

    /// Frees a block of a reservation, if it is one. `stream` is `None` in a synchronous call.
    pub(in crate::suballoc) fn free_of_reservation(
        &self,
        id: ReservationId,
        block: DevicePtr,
        layout: Layout,
        stream: Option<StreamRef<'_>>,
    ) {
        if layout.is_empty()
            || self.book.is_forked_child()
            || stream.is_some_and(|stream| self.book.device.require(stream.device()).is_err())
        {
            return;
        }
        let capture = self.book.graphs.capture_of(stream);
        // What is no live block is left alone.
        let freed = match self.book.graphs.live(block).filter(|live| live.reservation == id) {
            Some(live) => self.free_of_graph(live, capture, block, layout, stream),
            None => Err(misuse(block, layout, MisuseKind::NotOut)),
        };
        if let Err(error) = freed {
            self.refuse(error, stream);
        }
    }

    fn free_of_graph(
        &self,
        live: LiveBlock,
        capture: Option<CaptureId>,
        block: DevicePtr,
        layout: Layout,
        stream: Option<StreamRef<'_>>,
    ) -> Result<(), Error> {
        let graphs = &self.book.graphs;
        let id = live.reservation;
        // In the session that it was allocated in, the order of the capture says when it is free.
        let of_it = capture.is_some_and(|capture| capture.number == live.capture.number);
        let inside = stream.filter(|_| of_it && !live.is_left);
        let session = inside.and_then(|stream| graphs.enter(id, live.capture, stream).ok());
        if let Some((book, branch)) = session {
            let want = book.want(layout).filter(|want| want.units() == live.units);
            let want = want.ok_or_else(|| wrong_size(live, block, layout))?;
            if !graphs.forget_live(block, live, None) {
                return Err(misuse(block, layout, MisuseKind::DoubleFree));
            }
            let freed_at = Some(branch.as_ref().release());
            if !book.put(want, block, freed_at) {
                book.take_back(want, block, freed_at);
            }
            return Ok(());
        }
        if Want::of(layout).is_none_or(|want| want.units() != live.units) {
            return Err(wrong_size(live, block, layout));
        }
        // Else work that runs may still use it, and the graph does: it stays out until the reservation is released.
        let behind = stream.map(StreamRef::release);
        if graphs.forget_live(block, live, behind) {
            Ok(())
        } else {
            Err(misuse(block, layout, MisuseKind::DoubleFree))
        }
    }
}

impl SuballocBook {
    /// Has the next free of a block leave it to the graph that may use it: the block serves neither the capture again nor anybody else
    /// until the memory of the graph is released, which waits for `uses`; or of the last one, where several captures use it. For a block whose
    /// free on `stream` cannot come behind them, because a stream captures. Until that free it does not sleep, as any block that a graph
    /// holds. Returns `false` if no memory of a graph has to do with the block, or no block that is awake begins there: then nothing has
    /// changed.
    pub(crate) fn leave_to_graph(&self, block: DevicePtr, stream: StreamRef<'_>, uses: &Frontier) -> bool {
        if self.is_forked_child() || self.device.require(stream.device()).is_err() {
            return false;
        }
        if !self.graphs.is_worth_a_look(block) {
            return false;
        }
        // Without a lock, because the driver is asked.
        let captures = self.captures_of(stream, uses);
        // Until the mark is there: what falls asleep is looked at under the lock, too.
        let Some(inner) = self.lock_unless_forked() else { return false };
        let Some(bytes) = self.bytes_awake(&inner, block) else { return false };
        self.graphs.leave(block, bytes, &captures, uses)
    }

    /// The captures that a stream and those of the uses may take part in.
    fn captures_of(&self, stream: StreamRef<'_>, uses: &Frontier) -> SmallVec<[CaptureId; 2]> {
        let mut captures: SmallVec<_> = self.graphs.capture_of(Some(stream)).into_iter().collect();
        // The numbers of captures are of one machine.
        let machine = self.device.machine();
        let of_machine = uses.iter().filter(|used| used.stream.machine() == machine.number());
        if self.graphs.have_a_session() {
            for timeline in of_machine.filter_map(|used| machine.table().timeline(used.stream)) {
                if timeline.is_mine() {
                    captures.extend(timeline.capture_id().ok().flatten());
                } else {
                    // Only the other thread can ask what its default stream captures.
                    captures.extend(self.graphs.open_captures());
                }
            }
        }
        captures
    }

    /// The bytes of a block of a graph, or of one of the suballocator that is out and awake, that begins there. A layer above may hand out
    /// other addresses, as a guard does: then the free that comes is one of another block, which a mark at this address would not keep. The
    /// free of a block that sleeps looks for no mark.
    fn bytes_awake(&self, inner: &Inner, block: DevicePtr) -> Option<u64> {
        let address = block.address();
        let units = match self.graphs.live(block) {
            Some(live) => live.units,
            None => match inner.core.inspect(address) {
                Inspected::Out { units } if !inner.sleepers.have(address) => units,
                _ => return None,
            },
        };
        Some(u64::from(units) * Layout::MIN_ALIGN as u64)
    }
}

/// The capture that the stream of a free takes part in.
#[derive(Clone, Copy)]
enum Captured {
    /// Nothing that has to do with the suballocator.
    Nothing,
    /// A graph with memory here.
    Graph(ReservationId),
    /// A graph of which no handle says when it is gone, where captures are watched.
    Unknown,
}

/// What has become of a block that a graph uses.
enum Parked {
    /// It stays out until the memory of its graph is released.
    Kept,
    /// It was kept before: another thread has freed it.
    Before,
    /// The memory of its graph was released meanwhile.
    Gone,
}

#[cold]
fn wrong_size(live: LiveBlock, block: DevicePtr, layout: Layout) -> Error {
    let allocated_bytes = live.units as usize * Layout::MIN_ALIGN;
    misuse(block, layout, MisuseKind::WrongSize { allocated_bytes })
}

impl Graphs {
    /// The capture that a stream takes part in, if one may have a session. Where the driver refuses the question, the stream takes
    /// part in none that goes on.
    fn capture_of(&self, stream: Option<StreamRef<'_>>) -> Option<CaptureId> {
        stream.filter(|_| self.have_a_session()).and_then(|stream| stream.capture_id().ok().flatten())
    }

    /// All captures with an open session.
    fn open_captures(&self) -> SmallVec<[CaptureId; 2]> {
        let reservations = self.reservations.lock();
        let sessions = reservations.all.iter().flat_map(|reservation| &reservation.sessions);
        sessions.filter(|session| session.is_open).map(|session| session.capture).collect()
    }

    fn live(&self, block: DevicePtr) -> Option<LiveBlock> {
        self.reservations.lock().live.get(&block.address()).copied()
    }

    /// Notes that a block is out no more. Returns `false` if it was not, any more.
    fn forget_live(&self, block: DevicePtr, live: LiveBlock, behind: Option<Stamp>) -> bool {
        let mut guard = self.reservations.lock();
        let reservations = &mut *guard;
        if reservations.live.remove(&block.address()).is_none() {
            return false;
        }
        if let Some(reservation) = reservations.get(live.reservation) {
            reservation.live_blocks -= 1;
            behind.iter().for_each(|stamp| reservation.behind.extend(*stamp));
            if reservation.live_blocks == 0 {
                self.set_filter(reservations);
            }
        }
        true
    }

    /// The graph that the stream of a free captures.
    fn captured_by(&self, stream: Option<StreamRef<'_>>) -> Captured {
        let Some(capture) = self.capture_of(stream) else { return Captured::Nothing };
        match self.reservation_of(capture) {
            Some(id) => Captured::Graph(id),
            None if self.watch_captures => Captured::Unknown,
            None => Captured::Nothing,
        }
    }

    /// Keeps a block of the suballocator that graphs use: those that it was left to, and the one that the stream of the free captures. All in one
    /// step, so that of two threads that free a block which was left the second one finds it kept.
    fn park(
        &self,
        captured: Captured,
        is_left: bool,
        block: DevicePtr,
        layout: Layout,
        behind: Option<Stamp>,
    ) -> Parked {
        let mut guard = self.reservations.lock();
        let reservations = &mut *guard;
        let mut users = match reservations.left.remove(&block.address()) {
            Some(left) => left.users,
            None if is_left && reservations.blocks().any(|(of, _)| of == block) => return Parked::Before,
            None => Users::new(),
        };
        if is_left {
            self.set_filter(reservations);
        }
        match captured {
            Captured::Graph(id) if !users.contains(&id) => users.push(id),
            Captured::Graph(_) | Captured::Nothing => {}
            Captured::Unknown => {
                reservations.quarantined.push((block, layout));
                return Parked::Kept;
            }
        }
        while !users.is_empty() {
            if let Some(keeper) = reservations.get(users.remove(0)) {
                keeper.park(ParkedBlock { block, layout, next: users }, behind);
                return Parked::Kept;
            }
        }
        Parked::Gone
    }

    /// Notes that a block belongs to a graph from its free on, and what its release has to wait for beside: the graph that the block
    /// is of, or those of captures, of which the first that is not released yet keeps it. Returns `false` if there is none.
    fn leave(&self, block: DevicePtr, bytes: u64, captures: &[CaptureId], uses: &Frontier) -> bool {
        let mut guard = self.reservations.lock();
        let reservations = &mut *guard;
        let keeper = match reservations.live.get_mut(&block.address()) {
            Some(live) => {
                live.is_left = true;
                live.reservation
            }
            None => {
                let found: Users = captures
                    .iter()
                    .filter_map(|capture| reservations.of_capture(*capture).map(|reservation| reservation.id))
                    .collect();
                let Some(&first) = found.first() else { return false };
                let left =
                    reservations.left.entry(block.address()).or_insert(Left { users: Users::new(), bytes });
                for id in found {
                    if !left.users.contains(&id) {
                        left.users.push(id);
                    }
                }
                left.users.first().copied().unwrap_or(first)
            }
        };
        // The reservation that keeps the block waits for the uses before it hands the block on.
        if let Some(reservation) = reservations.get(keeper) {
            reservation.behind.join(uses);
        }
        self.set_filter(reservations);
        true
    }

    fn is_left(&self, block: DevicePtr) -> bool {
        self.reservations.lock().left.contains_key(&block.address())
    }
}
