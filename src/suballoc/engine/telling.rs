//! Tells hooks of segments: before a block of one goes out, and before it goes back.
//!
//! Which segments the hooks know is under the mutex, and changes in one step with who the hooks are. A segment is known before its
//! hook is called, so that hooks which are set meanwhile have it in their list; and it is known until the hooks that are set then
//! have let go of it. So each set of hooks hears of each segment once, and the calls are made without a lock.

use std::collections::BTreeMap;

use super::book::SuballocBook;
use crate::error::Error;
use crate::resource::{DevicePtr, Layout};
use crate::suballoc::core::Extent;
use crate::suballoc::{SegmentHooks, SegmentView};

/// Who is told, and of what.
#[derive(Debug, Default)]
pub(super) struct Told {
    hooks: Option<SegmentHooks>,
    /// How often the hooks have changed.
    number: u64,
    /// The segments that they know, by address, with their bytes.
    known: BTreeMap<u64, usize>,
    /// Those that stay until they are told of, because they were there before the hooks, with the number of these.
    held: BTreeMap<u64, u64>,
    /// No segment comes or goes any more.
    pub(super) is_frozen: bool,
}

impl Told {
    pub(super) fn new(hooks: Option<SegmentHooks>) -> Self {
        Self { hooks, ..Self::default() }
    }
}

/// What users see of a segment. `None` for the address 0, which none has.
pub(super) fn view_of(address: u64, units: u32) -> Option<SegmentView> {
    let bytes = units as usize * Layout::MIN_ALIGN;
    DevicePtr::new(address).map(|address| SegmentView { address, bytes })
}

impl SuballocBook {
    /// Returns `true` if pages move from segment to segment, so that no segment stays what it is.
    pub(super) fn moves_pages(&self) -> bool {
        self.page_units > 0 && self.config.segment_bytes.is_none()
    }

    /// Has these hooks told of every segment from now on, instead of those before. Returns the segments that are there already, of which
    /// they are not told: each segment is in this list or comes later, and never both.
    ///
    /// A segment of the list may go at any time, where another thread trims: `dropped` is told of it then, maybe before the list is read.
    /// [`SegmentHooks::added`] tells of those that are there, and [`introduce_segment_hooks`](Self::introduce_segment_hooks) does both.
    ///
    /// ```
    /// use alluvion::suballoc::SegmentHooks;
    /// use alluvion::{Error, PoolConfig, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default().initial(4 << 20))?;
    /// let hooks = SegmentHooks::default().on_added(|_| Err(Error::foreign("no more can be registered")));
    /// let there = pool.set_segment_hooks(hooks)?;
    /// assert_eq!(there.iter().map(|segment| segment.bytes).collect::<Vec<_>>(), [4 << 20]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported` where pages move: over an upstream with [pages](crate::resource::Pages), unless the pool is
    /// [registered](super::super::PoolConfig::registered).
    pub fn set_segment_hooks(&self, hooks: SegmentHooks) -> Result<Vec<SegmentView>, Error> {
        self.replace_hooks(hooks, false).map(|(there, _)| there)
    }

    /// As [`set_segment_hooks`](Self::set_segment_hooks), and tells the hooks of the segments that are there. Each stays until they have
    /// been told of it, also where another thread trims: so `dropped` never comes before `added`.
    ///
    /// ```
    /// use alluvion::suballoc::{SegmentHooks, SuballocBook};
    /// use alluvion::{PoolConfig, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default().initial(4 << 20))?;
    /// let book = pool.find::<SuballocBook>().expect("a pool has one");
    /// book.introduce_segment_hooks(&SegmentHooks::default().on_added(|segment| {
    ///     println!("{} bytes", segment.bytes);
    ///     Ok(())
    /// }))?;
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for that; the last one that the hook has: that segment stays, and the others are told of all the same.
    pub fn introduce_segment_hooks(&self, hooks: &SegmentHooks) -> Result<(), Error> {
        let (there, number) = self.replace_hooks(hooks.clone(), true)?;
        let mut answer = Ok(());
        for segment in there {
            let told = hooks.added(segment);
            // A hook may have forked, or have set others, which hold it for themselves.
            if let Some(mut inner) = self.lock_unless_forked() {
                let held = &mut inner.told.held;
                if held.get(&segment.address.address()) == Some(&number) {
                    held.remove(&segment.address.address());
                }
            }
            if told.is_err() {
                answer = told;
            }
        }
        answer
    }

    /// Sets hooks, and returns what is there, and their number. Holds what is there for them, if it is to be.
    fn replace_hooks(&self, hooks: SegmentHooks, holds: bool) -> Result<(Vec<SegmentView>, u64), Error> {
        self.require_same_process()?;
        self.require_segments_that_stay()?;
        let (before, there, number) = {
            let told = &mut self.lock().told;
            told.number += 1;
            let known = told.known.iter();
            let there: Vec<SegmentView> = known
                .filter_map(|(&address, &bytes)| {
                    Some(SegmentView { address: DevicePtr::new(address)?, bytes })
                })
                .collect();
            if holds {
                told.held.extend(there.iter().map(|segment| (segment.address.address(), told.number)));
            }
            (told.hooks.replace(hooks), there, told.number)
        };
        // Their destructors are the user's.
        drop(before);
        Ok((there, number))
    }

    pub(super) fn require_segments_that_stay(&self) -> Result<(), Error> {
        if !self.moves_pages() {
            return Ok(());
        }
        Err(Error::unsupported(
            "hooks of segments over pages that move",
            "no segment stays what it is",
            "make the pool with `registered`",
        ))
    }

    /// Takes no more memory of the upstream and gives none back, until it ends: a request that does not fit is refused, with a
    /// [`Cause`](crate::error::Cause) that says so, and a trim does nothing. A thread that is taking a segment at this moment gets it
    /// still. What sleeps may wake.
    ///
    /// ```
    /// use alluvion::error::Cause;
    /// use alluvion::{Layout, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default().initial(4 << 20))?;
    /// pool.freeze();
    /// let error = pool.allocate_sync(Layout::from_bytes(5 << 20)?).unwrap_err();
    /// assert_eq!(error.out_of_memory_report().map(|report| report.cause), Some(Cause::Frozen));
    /// assert_eq!((pool.trim(0)?, pool.pool_size()), (0, 4 << 20));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn freeze(&self) {
        if let Some(mut inner) = self.lock_unless_forked() {
            inner.told.is_frozen = true;
        }
    }

    /// Returns `true` after [`freeze`](Self::freeze).
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.lock_unless_forked().is_some_and(|inner| inner.told.is_frozen)
    }

    /// Returns `true` on a thread that runs a hook, if this suballocator has hooks itself: to tell them of a segment would be a call
    /// within a call, without end.
    pub(super) fn is_within_hooks(&self) -> bool {
        SegmentHooks::is_telling()
            && self.lock_unless_forked().is_some_and(|inner| inner.told.hooks.is_some())
    }

    pub(super) fn require_outside_of_hooks(&self) -> Result<(), Error> {
        if !self.is_within_hooks() {
            return Ok(());
        }
        Err(Error::invalid_argument(
            "a segment that comes or goes within a hook of segments",
            "its hooks would be called within themselves",
            "do it after the hook has returned",
        ))
    }

    /// Tells the hooks of a segment of which no block is out. After an error nobody knows it.
    pub(super) fn tell_added(&self, segment: SegmentView) -> Result<(), Error> {
        if self.moves_pages() {
            return Ok(());
        }
        self.require_same_process()?;
        let (hooks, number) = {
            let told = &mut self.lock().told;
            told.known.insert(segment.address.address(), segment.bytes);
            (told.hooks.clone(), told.number)
        };
        let Err(error) = hooks.map_or(Ok(()), |hooks| hooks.added(segment)) else { return Ok(()) };
        // Hooks that were set meanwhile have it in their list, and may keep it.
        if self.let_go(segment, Some(number)) { Err(error) } else { Ok(()) }
    }

    /// Has the hooks let go of a segment, but for the hooks `told`. Returns `false` if they refuse, or are yet to be told of it: then it stays.
    pub(super) fn let_go(&self, segment: SegmentView, mut told: Option<u64>) -> bool {
        if self.moves_pages() {
            return true;
        }
        loop {
            let hooks = {
                let Some(mut inner) = self.lock_unless_forked() else { return false };
                let all = &mut inner.told;
                if all.held.contains_key(&segment.address.address()) {
                    return false;
                }
                match &all.hooks {
                    Some(hooks) if told != Some(all.number) => {
                        told = Some(all.number);
                        hooks.clone()
                    }
                    _ => {
                        all.known.remove(&segment.address.address());
                        return true;
                    }
                }
            };
            if hooks.dropped(segment).is_err() {
                return false;
            }
        }
    }

    /// As [`let_go`](Self::let_go), of a page that is a segment.
    pub(in crate::suballoc::engine) fn let_go_of_page(&self, extent: Extent) -> bool {
        view_of(extent.address, extent.units).is_none_or(|segment| self.let_go(segment, None))
    }

    /// Tells the hooks of a page again that they have let go of, because the driver does not unmap it.
    pub(super) fn tell_of_page_again(&self, extent: Extent) {
        let Some(segment) = view_of(extent.address, extent.units).filter(|_| !self.moves_pages()) else {
            return;
        };
        let hooks = self.lock_unless_forked().and_then(|mut inner| {
            inner.told.known.insert(extent.address, segment.bytes);
            inner.told.hooks.clone()
        });
        // It stays whatever they answer.
        let _ = hooks.map(|hooks| hooks.added(segment));
    }
}
