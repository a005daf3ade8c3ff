//! Events for `tracing`: what a suballocator does beside handing out what lies there.

/// A debug event of the target `alluvion`. Without the feature `tracing` it is nothing, and its arguments are not looked at.
///
/// Never while a lock is held: who listens may be anybody, and may call back.
macro_rules! event {
    ($($event:tt)+) => {
        #[cfg(feature = "tracing")]
        $crate::suballoc::engine::events::shielded(|| tracing::debug!(target: "alluvion", $($event)+));
    };
}

pub(super) use event;

/// Tells an event. Who listens may panic, which ends here: no method of a resource unwinds. What they ask of a suballocator
/// themselves is not told: else they would be told of it without end.
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
