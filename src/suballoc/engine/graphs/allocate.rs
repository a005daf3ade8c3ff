//! Allocating within a capture, and ordering its streams.

#![expect(unsafe_code, reason = "frees a block of its own that came too late")]

use super::super::book::{Request, SuballocBook};
use super::super::requester::Requester;
use super::super::taking::segment_layout;
use super::super::{Engine, EngineConfig, MAX_ALIGN};
use super::{Graphs, LiveBlock, ReservationId, not_of_the_capture, over};
use crate::driver::CaptureId;
use crate::error::Error;
use crate::resource::{DevicePtr, Layout, Resource};
use crate::stream::{StreamKind, StreamRef};
use crate::suballoc::debugger::{Kind, Text};

/// Memory for a graph is taken in whole pages of the device, 2 MiB, where there is room for that.
const PAGE_UNITS: u64 = (2 << 20) / Layout::MIN_ALIGN as u64;

/// How often a request takes memory for its reservation, while other threads of the capture take it away.
const TURNS: usize = 8;

impl<U: Resource> Engine<U> {
    /// Serves a request of a stream that takes part in a capture with a session. `None` for any other stream.
    #[cold]
    #[inline(never)]
    pub(in crate::suballoc::engine) fn allocate_beside_sessions(
        &self,
        layout: Layout,
        stream: StreamRef<'_>,
    ) -> Option<Result<DevicePtr, Error>> {
        // The numbers of captures are of one machine.
        if self.book.require_same_process().is_err() || self.book.device.require(stream.device()).is_err() {
            return None;
        }
        if !self.book.graphs.has_open_session() {
            return None;
        }
        // What the driver has against the question it will say to the request, too.
        let capture = stream.capture_id().ok().flatten()?;
        let id = self.book.graphs.reservation_of(capture)?;
        Some(self.allocate_of_graph(id, capture, layout, stream))
    }

    /// Serves a request from a reservation, for a stream of that capture.
    pub(in crate::suballoc) fn allocate_of_session(
        &self,
        id: ReservationId,
        capture: CaptureId,
        layout: Layout,
        stream: StreamRef<'_>,
    ) -> Result<DevicePtr, Error> {
        self.book.require_same_process()?;
        layout.require_align(MAX_ALIGN)?;
        self.book.device.require(stream.device())?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        require_part_of(stream, capture)?;
        self.allocate_of_graph(id, capture, layout, stream)
    }

    fn allocate_of_graph(
        &self,
        id: ReservationId,
        capture: CaptureId,
        layout: Layout,
        stream: StreamRef<'_>,
    ) -> Result<DevicePtr, Error> {
        layout.require_align(MAX_ALIGN)?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        let (book, branch) = self.book.graphs.enter(id, capture, stream)?;
        // Where no block is long enough, the suballocator has the words for it.
        let Some(want) = book.want(layout) else { return self.allocate(layout, Requester::Host) };
        let branch = branch.as_ref();
        let align_units = (layout.block_align() / Layout::MIN_ALIGN) as u32;
        let request = Request { requester: Requester::Stream(branch), layout, want, align_units };
        let cached = if align_units == 1 { book.take(want, Some(branch.id())) } else { None };
        let block = match cached.or_else(|| book.serve_branch(&request)) {
            Some(block) => block,
            None => self.grow_reservation(id, &book, &request)?,
        };
        let live = LiveBlock { reservation: id, capture, units: want.units(), is_left: false };
        if self.book.graphs.note_live(block, live) { Ok(block) } else { Err(over()) }
    }

    /// Takes memory of the suballocator that no work uses, and serves the request from it.
    fn grow_reservation(
        &self,
        id: ReservationId,
        book: &SuballocBook,
        request: &Request<'_>,
    ) -> Result<DevicePtr, Error> {
        let need = request.need();
        let mut size = need.next_multiple_of(PAGE_UNITS);
        for _ in 0..TURNS {
            let units = u32::try_from(size).unwrap_or(u32::MAX);
            let layout = segment_layout(units)?;
            let segment = match self.allocate(layout, Requester::Host) {
                Ok(segment) => segment,
                Err(error) if error.is_out_of_memory() && size > need => {
                    size = need;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if !self.book.graphs.note_segment(id, segment, layout) {
                // SAFETY: the block came from this suballocator with this layout just now, and nobody has seen it.
                unsafe { self.deallocate(segment, layout, None) };
                return Err(over());
            }
            let served = book.serve_with(request, &[], |inner| {
                inner.core.add_segment(segment.address(), units);
                book.note_reserved(inner);
            });
            if let Some(block) = served {
                return Ok(block);
            }
        }
        Err(Error::out_of_memory(request.layout.bytes()))
    }
}

fn require_part_of(stream: StreamRef<'_>, capture: CaptureId) -> Result<(), Error> {
    let part = stream.capture_id()?;
    if part.is_some_and(|part| part.number == capture.number) { Ok(()) } else { Err(not_of_the_capture()) }
}

impl SuballocBook {
    /// Opens a session for the capture of a stream, in a reservation of its own or in one that is shared.
    pub(crate) fn open_session(
        &self,
        stream: StreamRef<'_>,
        shared: Option<ReservationId>,
    ) -> Result<(ReservationId, CaptureId), Error> {
        self.require_same_process()?;
        self.device.require(stream.device())?;
        let capture = stream.capture_id()?.ok_or_else(|| {
            Error::invalid_argument(
                "memory for a stream that does not capture",
                "it belongs to the graph that comes of a capture",
                "begin the capture first",
            )
        })?;
        let id = self.graphs.open(capture, shared, || {
            let maximum_bytes = u32::MAX as usize * Layout::MIN_ALIGN;
            let config = EngineConfig { maximum_bytes, checked: Some(false), ..EngineConfig::default() };
            let text = Text::plain("memory of graphs");
            SuballocBook::new(&self.device, config, 0, false, Kind::Graphs, text)
        })?;
        Ok((id, capture))
    }

    /// Orders `later` behind what is on `earlier`, within a capture.
    pub(crate) fn follow_in_session(
        &self,
        id: ReservationId,
        capture: CaptureId,
        later: StreamRef<'_>,
        earlier: StreamRef<'_>,
    ) -> Result<(), Error> {
        self.require_same_process()?;
        // The other one may be of another device: a capture may have streams of several.
        self.device.require_machine(later.device())?;
        self.device.require_machine(earlier.device())?;
        require_part_of(earlier, capture)?;
        if later.kind() == StreamKind::Legacy
            || later.capture_id()?.is_some_and(|of| of.number != capture.number)
        {
            return Err(not_of_the_capture());
        }
        if later.id() == earlier.id() {
            return Ok(());
        }
        let graphs = &self.graphs;
        let earlier = graphs.enter(id, capture, earlier)?.1;
        let later = graphs.enter(id, capture, later)?.1;
        let event = later.as_ref().follow_branch(earlier.as_ref())?;
        if let Some(mut reservations) = graphs.reservations.lock_unless_forked()
            && let Some(session) = reservations.get(id).and_then(|it| it.open_session(capture))
        {
            session.events.push(event);
        }
        Ok(())
    }

    /// Serves a branch of a capture: no driver call, and no wait.
    fn serve_branch(&self, request: &Request<'_>) -> Option<DevicePtr> {
        if let Some(block) = self.serve(request, &[]).or_else(|| self.serve_within_reach(request)) {
            return Some(block);
        }
        if self.spill() == 0 { None } else { self.serve_within_reach(request) }
    }
}

impl Graphs {
    /// The reservation with an open session of that capture.
    pub(super) fn reservation_of(&self, capture: CaptureId) -> Option<ReservationId> {
        Some(self.reservations.lock().of_capture(capture)?.id)
    }

    fn has_open_session(&self) -> bool {
        self.reservations.lock().all.iter().flat_map(|it| &it.sessions).any(|session| session.is_open)
    }

    /// Notes a block that goes out. Returns `false` if the reservation has gone meanwhile.
    fn note_live(&self, block: DevicePtr, live: LiveBlock) -> bool {
        let mut guard = self.reservations.lock();
        let reservations = &mut *guard;
        let Some(reservation) = reservations.get(live.reservation) else { return false };
        reservation.live_blocks += 1;
        let is_first = reservation.live_blocks == 1;
        reservations.live.insert(block.address(), live);
        if is_first {
            self.set_filter(reservations);
        }
        true
    }

    /// Notes a block of the suballocator that belongs to a reservation from now on. Returns `false` if the reservation has gone.
    fn note_segment(&self, id: ReservationId, segment: DevicePtr, layout: Layout) -> bool {
        let mut guard = self.reservations.lock();
        let reservations = &mut *guard;
        let Some(reservation) = reservations.get(id) else { return false };
        reservation.segments.push((segment, layout));
        // Before a block of it goes out.
        self.set_filter(reservations);
        true
    }
}
