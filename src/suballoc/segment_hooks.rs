//! `SegmentHooks`: who is told of segments.

use core::cell::Cell;
use core::fmt;

use super::SegmentView;
use crate::contain::{Inside, contain};
use crate::error::Error;
use crate::sync::Arc;

thread_local! {
    /// A hook is running on this thread. No destructor, so it can be read while the thread's other locals are being dropped.
    static IS_TELLING: Cell<bool> = const { Cell::new(false) };
}

/// Two functions that are told of each segment of a suballocator: before its first block goes out, and before it goes back to the
/// upstream. There a program registers memory with a network card or a communicator, and takes it back.
///
/// They are called with no lock held, by the thread whose request, trim, sleep or end it is. They may use the suballocator, but a
/// request of theirs that takes another segment is refused. Other threads that need a segment meanwhile wait as for a slow upstream: a
/// second, or ten where there is no room for another, and then go on; only a sleep and a wake wait until the hook of another one has
/// returned. A hook that keeps the suballocator alive which it belongs to keeps both for ever.
///
/// [`PoolConfig::segment_hooks`](super::PoolConfig::segment_hooks) has them from the first segment on,
/// [`SuballocBook::set_segment_hooks`](super::SuballocBook::set_segment_hooks) from now on.
///
/// ```
/// use std::sync::mpsc;
///
/// use alluvion::source::Mapped;
/// use alluvion::suballoc::SegmentHooks;
/// use alluvion::{DeviceVec, PoolConfig, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let (tell, told) = mpsc::channel();
/// let (added, dropped) = (tell.clone(), tell);
/// let hooks = SegmentHooks::default()
///     .on_added(move |segment| {
///         let _ = added.send(("register", segment.bytes));
///         Ok(())
///     })
///     .on_dropped(move |segment| {
///         let _ = dropped.send(("take back", segment.bytes));
///         Ok(())
///     });
/// let config = PoolConfig::default().registered(8 << 20).segment_hooks(hooks);
/// let pool = Mapped::new(&sim.device(0))?.pool(config)?;
/// let numbers = DeviceVec::<f32, _>::zeroed_in(1000, &stream, &pool)?;
/// assert_eq!(told.try_recv(), Ok(("register", 8 << 20)));
/// drop(numbers);
/// stream.synchronize()?;
/// assert_eq!(pool.trim(0)?, 8 << 20);
/// assert_eq!(told.try_recv(), Ok(("take back", 8 << 20)));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Default)]
#[must_use = "hooks hear of nothing until a suballocator has them"]
pub struct SegmentHooks {
    added: Hook,
    dropped: Hook,
}

static_assertions::assert_impl_all!(SegmentHooks: Send, Sync, Clone);

/// A function of the user's, whose destructor is his, too.
#[derive(Clone, Default)]
struct Hook(Option<Arc<HookFunction>>);

type HookFunction = dyn Fn(SegmentView) -> Result<(), Error> + Send + Sync;

impl Hook {
    fn call(&self, segment: SegmentView) -> Result<(), Error> {
        let Some(hook) = &self.0 else { return Ok(()) };
        // At the end of a suballocator that a hook lets go of, this thread is telling already.
        let _telling = Inside::enter(&IS_TELLING);
        contain(|| hook(segment)).unwrap_or_else(|| Err(Error::foreign("a hook of segments panicked")))
    }
}

impl Drop for Hook {
    /// A panic of the destructor ends here: no method of a resource unwinds.
    fn drop(&mut self) {
        if let Some(hook) = self.0.take() {
            contain(|| drop(hook));
        }
    }
}

impl SegmentHooks {
    /// Is called with each segment that the suballocator has got, before a block of it goes out. If it fails, or panics, the segment
    /// goes back, and the request has its error: at once if that is [`Error::foreign`], else after all else was tried.
    ///
    /// Where the driver does not unmap a segment that was let go of, it is told of that segment again, which stays whatever it answers.
    pub fn on_added(
        mut self,
        hook: impl Fn(SegmentView) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        self.added = Hook(Some(Arc::new(hook)));
        self
    }

    /// Is called with each segment before it goes: nothing of it is out, and no work uses it, or all of it sleeps. If it fails, or
    /// panics, the segment stays; at the end of the suballocator it is leaked.
    pub fn on_dropped(
        mut self,
        hook: impl Fn(SegmentView) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        self.dropped = Hook(Some(Arc::new(hook)));
        self
    }

    /// Tells of a segment, as a suballocator does: for those that [were there](super::SuballocBook::set_segment_hooks) before the hooks.
    ///
    /// ```
    /// use alluvion::suballoc::SegmentHooks;
    /// use alluvion::{PoolConfig, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default().initial(4 << 20))?;
    /// let hooks = SegmentHooks::default().on_added(|segment| {
    ///     println!("{} bytes", segment.bytes);
    ///     Ok(())
    /// });
    /// for segment in pool.set_segment_hooks(hooks.clone())? {
    ///     hooks.added(segment)?;
    /// }
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// That of the hook; `Foreign` if it panics.
    pub fn added(&self, segment: SegmentView) -> Result<(), Error> {
        self.added.call(segment)
    }

    pub(super) fn dropped(&self, segment: SegmentView) -> Result<(), Error> {
        self.dropped.call(segment)
    }

    /// Returns `true` if this thread runs a hook, of whichever suballocator.
    pub(super) fn is_telling() -> bool {
        IS_TELLING.try_with(Cell::get).unwrap_or(false)
    }
}

impl fmt::Debug for SegmentHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = |hook: &Hook| hook.0.is_some();
        f.debug_struct("SegmentHooks")
            .field("added", &has(&self.added))
            .field("dropped", &has(&self.dropped))
            .finish()
    }
}
