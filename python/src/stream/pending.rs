//! Copies with pinned memory that the host does not wait for, and the objects that own that memory.

use std::sync::{Mutex, PoisonError};

use alluvion::stream::Event;
use pyo3::prelude::*;

use crate::argument::HeldBuffer;

/// An object whose memory is used until the event.
struct Pending {
    until: Event,
    object: HeldBuffer,
}

/// The copies that were not seen to be over. Held for a push or an exchange.
static PENDING: Mutex<Vec<Pending>> = Mutex::new(Vec::new());

/// Keeps `object` until the copies before `until` are over.
pub(crate) fn keep(object: HeldBuffer, until: Event) {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner).push(Pending { until, object });
}

/// Lets go of the objects whose copies are over. It is called by each copy with memory of the host, and by each wait for a stream.
pub(crate) fn sweep(py: Python<'_>) {
    let all = core::mem::take(&mut *PENDING.lock().unwrap_or_else(PoisonError::into_inner));
    if all.is_empty() {
        return;
    }
    // A question that fails is asked again next time: nothing but an answer lets an object go.
    let (over, open): (Vec<_>, Vec<_>) =
        py.detach(|| all.into_iter().partition(|pending| pending.until.is_complete().unwrap_or(false)));
    PENDING.lock().unwrap_or_else(PoisonError::into_inner).extend(open);
    over.into_iter().for_each(|pending| drop(pending.object));
}
