//! A pool in a model, and the blocks that the model takes of it.

use std::sync::Arc;

use alluvion::compose::StackSleeper;
use alluvion::driver::RawStream;
use alluvion::{
    AnyResource, DevicePtr, Error, Frontier, Layout, Pool, PoolConfig, Resource, SleepConfig, StreamRef,
};

use crate::{Ground, Rig, Work, spawn};

/// A block of a [`Site`].
#[derive(Debug)]
#[must_use = "a block that is not given back is leaked"]
pub struct Plot {
    block: DevicePtr,
    layout: Layout,
}

impl Plot {
    /// Where it is.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.block.address()
    }

    fn bytes(&self) -> u64 {
        self.layout.bytes() as u64
    }
}

/// A pool over a [`Ground`] whose blocks are watched: none overlaps another that is live, and work that uses one comes after all
/// work that ever used its bytes.
#[derive(Clone, Debug)]
pub struct Site {
    /// The driver and the device.
    pub rig: Rig,
    /// The upstream.
    pub ground: Ground,
    /// The pool.
    pub pool: Arc<Pool<Ground>>,
}

impl Site {
    /// A pool over an upstream of so many bytes. Without a ledger, so that there is a fast path.
    ///
    /// # Panics
    ///
    /// If the configuration is wrong.
    #[must_use]
    pub fn new(capacity: usize, config: PoolConfig) -> Self {
        Self::over(|rig| Ground::new(rig, capacity), config)
    }

    /// As [`new`](Self::new), over pages of so many bytes.
    ///
    /// # Panics
    ///
    /// As there.
    #[must_use]
    pub fn in_pages(capacity: usize, page_bytes: usize, config: PoolConfig) -> Self {
        Self::over(|rig| Ground::in_pages(rig, capacity, page_bytes), config)
    }

    /// As [`in_pages`](Self::in_pages), where a page may be mapped at several addresses.
    ///
    /// # Panics
    ///
    /// As there.
    #[must_use]
    pub fn in_pages_with_aliases(capacity: usize, page_bytes: usize, config: PoolConfig) -> Self {
        Self::over(|rig| Ground::in_pages(rig, capacity, page_bytes).with_aliases(), config)
    }

    fn over(ground: impl FnOnce(&Rig) -> Ground, config: PoolConfig) -> Self {
        let rig = Rig::new();
        let ground = ground(&rig);
        let pool = Pool::new(ground.clone(), config.checked(false)).expect("a configuration that is right");
        Self { rig, ground, pool: Arc::new(pool) }
    }

    /// A block for work on `stream`; `None` if there is no memory.
    ///
    /// # Panics
    ///
    /// If it overlaps one that is live, or if something else went wrong.
    pub fn take(&self, stream: StreamRef<'_>, bytes: usize) -> Option<Plot> {
        match self.try_to_take(stream, bytes) {
            Ok(plot) => Some(plot),
            Err(error) => {
                assert!(error.is_out_of_memory(), "{error}");
                None
            }
        }
    }

    /// As [`take`](Self::take), where something else may go wrong.
    ///
    /// # Errors
    ///
    /// What the pool says.
    ///
    /// # Panics
    ///
    /// If it overlaps one that is live.
    pub fn try_to_take(&self, stream: StreamRef<'_>, bytes: usize) -> Result<Plot, Error> {
        let layout = Layout::from_bytes(bytes).expect("a small size");
        Ok(self.enter(self.pool.allocate(layout, stream)?, layout))
    }

    /// Each of two threads takes a block on a stream of its own, uses it, and gives it back once both have. Returns whether they
    /// got one.
    ///
    /// # Panics
    ///
    /// As [`take`](Self::take) and [`use_on`](Self::use_on).
    pub fn take_on_two_threads(&self, bytes: usize) -> [bool; 2] {
        let (one, two) = (self.rig.stream(), self.rig.stream());
        let other = {
            let site = self.clone();
            spawn(move || {
                let plot = site.take(one.as_ref(), bytes);
                plot.iter().for_each(|plot| site.use_on(one.as_ref(), plot, Work(0)));
                (one, plot)
            })
        };
        let plot = self.take(two.as_ref(), bytes);
        plot.iter().for_each(|plot| self.use_on(two.as_ref(), plot, Work(1)));
        let (one, other) = other.join().expect("the thread gives the block back");
        let had = [other.is_some(), plot.is_some()];
        other.into_iter().for_each(|plot| self.give(one.as_ref(), plot));
        plot.into_iter().for_each(|plot| self.give(two.as_ref(), plot));
        had
    }

    /// As [`take`](Self::take), for anybody: what used it must be over.
    ///
    /// # Panics
    ///
    /// As there, and if it is not.
    pub fn take_for_host(&self, bytes: usize) -> Option<Plot> {
        let layout = Layout::from_bytes(bytes).expect("a small size");
        let block = self.pool.allocate_sync(layout);
        assert!(block.as_ref().err().is_none_or(|error| error.is_out_of_memory()), "{block:?}");
        let plot = self.enter(block.ok()?, layout);
        self.ground.assert_over(plot.address(), plot.bytes());
        Some(plot)
    }

    fn enter(&self, block: DevicePtr, layout: Layout) -> Plot {
        self.ground.enter(block.address(), layout.bytes() as u64);
        Plot { block, layout }
    }

    /// Submits work that uses a block.
    ///
    /// # Panics
    ///
    /// If it does not come after everything that used these bytes before.
    pub fn use_on(&self, stream: StreamRef<'_>, plot: &Plot, work: Work) {
        let followed = self.rig.mock.submit(stream.raw(), work);
        self.ground.note_use(plot.address(), plot.bytes(), work, followed);
    }

    /// Frees a block on a stream that its uses come before.
    ///
    /// # Panics
    ///
    /// If it is not live.
    pub fn give(&self, stream: StreamRef<'_>, plot: Plot) {
        // Before it is free: the next one who has it may be another thread.
        self.ground.leave(plot.address());
        // SAFETY: the block came from this pool with this layout. Nothing uses memory in a model.
        unsafe { self.pool.deallocate(plot.block, plot.layout, stream) };
    }

    /// As [`give`](Self::give), on the stream of a bare handle, as the functions of C: at once where that can be. Returns whether it could.
    ///
    /// # Panics
    ///
    /// If the block is not live.
    pub fn give_by_handle(&self, raw: RawStream, plot: Plot) -> bool {
        self.ground.leave(plot.address());
        // SAFETY: as in `give`.
        let at_once =
            |stream: StreamRef<'_>| unsafe { self.pool.deallocate_at_once(plot.block, plot.layout, stream) };
        // SAFETY: the models end the stream when the call is over, and do nothing else with it here.
        let is_given = unsafe { self.rig.device.raw_streams().visit(raw, at_once) };
        if !is_given {
            // SAFETY: as in `give`.
            unsafe { self.pool.deallocate(plot.block, plot.layout, self.rig.lent(raw).as_ref()) };
        }
        is_given
    }

    /// Submits work that uses a block, on the stream of a bare handle.
    ///
    /// # Panics
    ///
    /// If it does not come after everything that used these bytes before.
    pub fn use_by_handle(&self, raw: RawStream, plot: &Plot, work: Work) {
        let followed = self.rig.mock.submit(raw, work);
        self.ground.note_use(plot.address(), plot.bytes(), work, followed);
    }

    /// Leaves a block to the graph of the capture that a stream takes part in, as the pool is told by its owner. Returns whether it is.
    #[must_use]
    pub fn leave_to_graph(&self, stream: StreamRef<'_>, plot: &Plot) -> bool {
        AnyResource::new(Arc::clone(&self.pool)).leave_to_graph(plot.block, stream, &Frontier::quiescent())
    }

    /// Puts a block to sleep that nothing has used, whose contents nobody wants.
    ///
    /// # Errors
    ///
    /// What the pool says.
    pub fn sleep(&self, plot: &Plot) -> Result<StackSleeper, Error> {
        let stack = AnyResource::new(Arc::clone(&self.pool));
        // SAFETY: the block is live, and nothing uses memory in a model.
        unsafe { stack.sleep_block(plot.block, &Frontier::quiescent(), SleepConfig::default()) }
    }

    /// From here on a block sleeps: it has no memory, until it [is awake](Self::note_awake).
    ///
    /// # Panics
    ///
    /// If it is not live.
    pub fn note_asleep(&self, plot: &Plot) {
        self.ground.leave(plot.address());
    }

    /// A block that slept has memory again.
    ///
    /// # Panics
    ///
    /// If it overlaps one that is live.
    pub fn note_awake(&self, plot: &Plot) {
        self.ground.enter(plot.address(), plot.bytes());
    }

    /// Frees a block that sleeps, or is being woken.
    pub fn give_asleep(&self, stream: StreamRef<'_>, plot: Plot) {
        // SAFETY: as in `give`.
        unsafe { self.pool.deallocate(plot.block, plot.layout, stream) };
    }

    /// As [`give`](Self::give), by the call that says what is wrong. Returns whether nothing was. The block may be given back so more
    /// than once: nobody else takes one meanwhile.
    pub fn try_to_give(&self, stream: StreamRef<'_>, plot: &Plot) -> bool {
        // SAFETY: the block came from this pool with this layout, and if it is live it is this one. Nothing uses memory in a
        // model.
        let given = unsafe { self.pool.try_deallocate(plot.block, plot.layout, stream) };
        if given.is_ok() {
            self.ground.leave(plot.address());
        }
        given.is_ok()
    }

    /// Frees a block whose uses are over.
    ///
    /// # Panics
    ///
    /// If they are not, or if it is not live.
    pub fn give_by_host(&self, plot: Plot) {
        self.ground.assert_over(plot.address(), plot.bytes());
        self.ground.leave(plot.address());
        // SAFETY: as in `give`.
        unsafe { self.pool.deallocate_sync(plot.block, plot.layout) };
    }

    /// Never frees a block: from here on nothing uses it but what was submitted.
    ///
    /// # Panics
    ///
    /// If it is not live.
    pub fn leak(&self, plot: Plot) {
        self.ground.leave(plot.address());
        drop(plot);
    }

    /// Ends the pool, of which this is the last handle.
    ///
    /// # Panics
    ///
    /// If it is not, if a segment does not come back, or if a stream or an event was used after its end.
    pub fn end(self) {
        let Self { rig, ground, pool } = self;
        assert_eq!(Arc::strong_count(&pool), 1, "this is the last handle");
        drop(pool);
        ground.assert_whole();
        rig.mock.assert_no_mistakes();
    }
}
