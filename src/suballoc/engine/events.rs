//! Events for `tracing`: growth, waits, strategies and refusals of a suballocator.

/// Emits a debug event of the target `alluvion`. Without the feature `tracing` it does nothing, and its arguments are
/// not evaluated.
///
/// Never while a lock is held: a subscriber is foreign code, and may call back.
macro_rules! event {
    ($($event:tt)+) => {
        #[cfg(feature = "tracing")]
        $crate::suballoc::engine::events::shielded(|| tracing::debug!(target: "alluvion", $($event)+));
    };
}

pub(super) use event;

/// Emits an event. A panic of a subscriber ends here, because no method of a resource unwinds. Requests that a
/// subscriber itself makes emit no events, which would never end.
#[cfg(feature = "tracing")]
pub(super) fn shielded(event: impl FnOnce()) {
    use core::cell::Cell;

    use crate::contain::{Inside, contain};

    thread_local! {
        // No destructor, so it can be read while the thread's other locals are being dropped.
        static IS_EMITTING: Cell<bool> = const { Cell::new(false) };
    }

    let Some(_emitting) = Inside::enter(&IS_EMITTING) else { return };
    contain(event);
}
