//! The end of a session, and of a reservation.

#![expect(unsafe_code, reason = "gives the memory of graphs that are gone back to its suballocator")]

use super::super::SuballocBook;
use super::{Graphs, ParkedBlock, Reservation, ReservationId, over, released};
use crate::driver::CaptureId;
use crate::error::Error;
use crate::resource::{DevicePtr, Layout};
use crate::stream::{Epoch, Frontier};

impl SuballocBook {
    /// Ends a session: its capture allocates no more here. What it has freed may serve the next capture that shares the
    /// reservation, from its beginning.
    pub(crate) fn end_session(&self, id: ReservationId, capture: CaptureId) -> Result<(), Error> {
        self.require_same_process()?;
        let graphs = &self.graphs;
        let (book, branches, events) = {
            let mut guard = graphs.reservations.lock();
            let reservations = &mut *guard;
            let reservation = reservations.get(id).ok_or_else(over)?;
            let book = reservation.book.clone();
            let session = reservation.open_session(capture).ok_or_else(over)?;
            session.is_open = false;
            let ended = (book, core::mem::take(&mut session.branches), core::mem::take(&mut session.events));
            graphs.set_filter(reservations);
            ended
        };
        {
            let mut inner = book.lock();
            book.spill_locked(&mut inner);
            for (_, branch) in &branches {
                if let Some(owner) = inner.core.owner_of(branch.id()) {
                    inner.core.disown(owner, Epoch::ALL);
                }
            }
        }
        drop((branches, events));
        Ok(())
    }

    /// Releases the part of one handle, whose session has ended. With the last one the memory goes back, by `free`, which frees a block of
    /// the suballocator that no work uses any more; the call waits, on the host, for the work behind which blocks were freed outside of
    /// their captures. Returns the bytes that went back.
    ///
    /// # Safety
    ///
    /// The graph of this handle is gone, with all that can be launched of it, and no launch of it is running or queued.
    pub(crate) unsafe fn release_reservation(
        &self,
        id: ReservationId,
        free: impl Fn(DevicePtr, Layout),
    ) -> Result<usize, Error> {
        self.require_same_process()?;
        let graphs = &self.graphs;
        let mut waited = Frontier::quiescent();
        let gone = loop {
            match graphs.give_up(id, &waited)? {
                GivenUp::Last(reservation) => break reservation,
                GivenUp::Behind(behind) => {
                    self.device.machine().wait_quiescent(&behind)?;
                    waited = behind;
                }
                GivenUp::Shared => return Ok(0),
            }
        };
        let mut bytes = 0;
        for &ParkedBlock { block, layout, .. } in &gone.parked {
            bytes += layout.rounded_bytes();
            self.withdraw(block, layout, None);
            // It has left the ledger when it was freed, and all that ran before that is over.
            if let Some(want) = self.want(layout)
                && !self.put(want, block, None)
            {
                self.take_back(want, block, None);
            }
        }
        for &(block, layout) in &gone.segments {
            bytes += layout.rounded_bytes();
            // It came from this suballocator, with this layout, and has not been freed: it was in the reservation. Every use of it is over:
            // no block in it is out; the graphs that used it are gone and their launches over, as each handle's owner has promised; and the
            // work behind which a block was freed elsewhere has been waited for.
            free(block, layout);
        }
        Ok(bytes)
    }
}

/// What becomes of a reservation when a handle is given up.
enum GivenUp {
    /// Other handles keep it.
    Shared,
    /// This work has to be over first.
    Behind(Frontier),
    /// It is gone.
    Last(Reservation),
}

impl Graphs {
    /// Gives up one handle. `waited` is what the caller has waited for.
    fn give_up(&self, id: ReservationId, waited: &Frontier) -> Result<GivenUp, Error> {
        let mut guard = self.reservations.lock();
        let reservations = &mut *guard;
        let Some(at) = reservations.all.iter().position(|reservation| reservation.id == id) else {
            return Err(released());
        };
        let reservation = &mut reservations.all[at];
        if reservation.handles > 1 {
            reservation.handles -= 1;
            return Ok(GivenUp::Shared);
        }
        if reservation.live_blocks > 0 {
            return Err(Error::in_use(reservation.live_blocks));
        }
        if reservation.behind != *waited {
            return Ok(GivenUp::Behind(reservation.behind.clone()));
        }
        let mut gone = reservations.all.swap_remove(at);
        // Behind the wait for all that runs, so that the next one has not to wait for it again.
        for mut parked in core::mem::take(&mut gone.parked) {
            parked.next.retain(|next| reservations.get(*next).is_some());
            if parked.next.is_empty() {
                gone.parked.push(parked);
            } else if let Some(next) = reservations.get(parked.next.remove(0)) {
                next.park(parked, None);
            }
        }
        // Blocks that were left to it alone and are not free yet are freed like any other, and the filter needs not look for them.
        reservations.left.retain(|_, left| {
            left.users.retain(|user| *user != id);
            !left.users.is_empty()
        });
        self.set_filter(reservations);
        Ok(GivenUp::Last(gone))
    }
}
