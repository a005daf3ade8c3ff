//! `Reservation`: bytes that are set aside.

use core::mem;

use super::{Allowance, LimitRefusal};
use crate::error::Error;
use crate::error::{LimitName, OutOfMemory};
use crate::resource::Layout;

/// Bytes that were taken from an [`Allowance`], which go back when this is dropped.
///
/// A reservation is no memory, but the right to allocate some.
/// [`Budget::allocate_within`](super::super::Budget::allocate_within) turns it into blocks.
///
/// ```
/// use alluvion::adaptor::Allowance;
///
/// let allowance = Allowance::new("jobs", 1 << 20);
/// let reservation = allowance.reserve(1000)?;
/// assert_eq!((reservation.bytes(), allowance.used_bytes()), (1024, 1024), "in whole units of 256");
/// drop(reservation);
/// assert_eq!(allowance.used_bytes(), 0);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "what is dropped goes back"]
pub struct Reservation {
    allowance: Allowance,
    bytes: usize,
}

static_assertions::assert_impl_all!(Reservation: Send, Sync);
static_assertions::assert_not_impl_any!(Reservation: Clone);

impl Reservation {
    pub(super) fn new(allowance: &Allowance, bytes: usize) -> Result<Self, Error> {
        let refused = |refusal: LimitRefusal| {
            refusal.into_error("Allowance", allowance, bytes, Layout::MIN_ALIGN, None)
        };
        // A size that cannot be rounded up is above any limit.
        let whole_bytes = bytes.checked_next_multiple_of(Layout::MIN_ALIGN);
        let whole_bytes = whole_bytes.ok_or_else(|| refused(allowance.refuse()))?;
        allowance.take(whole_bytes).map_err(refused)?.keep();
        Ok(Self { allowance: allowance.clone(), bytes: whole_bytes })
    }

    /// The bytes that are still reserved, in whole units of 256.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its allowance.
    #[must_use]
    pub fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// Takes room for a block out of the reservation.
    pub(in super::super) fn spend(&mut self, layout: Layout) -> Result<(), Error> {
        match self.bytes.checked_sub(layout.rounded_bytes()) {
            Some(left) => {
                self.bytes = left;
                Ok(())
            }
            None => {
                let mut report = OutOfMemory::new("Reservation", layout.bytes());
                report.align = layout.align();
                report.name = Some(LimitName::clone(&self.allowance.node.name));
                report.maximum_bytes = Some(self.bytes);
                Err(report.explained().into())
            }
        }
    }

    /// Puts back what was spent and not used.
    pub(in super::super) fn put_back(&mut self, layout: Layout) {
        self.bytes += layout.rounded_bytes();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.allowance.give(self.bytes);
    }
}

/// Room for one block, which goes back unless it is kept.
#[must_use = "what is dropped goes back"]
pub(in super::super) struct TakenRoom<'a> {
    allowance: &'a Allowance,
    bytes: usize,
}

impl<'a> TakenRoom<'a> {
    pub(super) fn new(allowance: &'a Allowance, bytes: usize) -> Self {
        Self { allowance, bytes }
    }

    /// Keeps the room: the free of the block returns it.
    pub(in super::super) fn keep(self) {
        mem::forget(self);
    }
}

impl Drop for TakenRoom<'_> {
    fn drop(&mut self) {
        self.allowance.give(self.bytes);
    }
}
