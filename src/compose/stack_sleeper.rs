//! `StackSleeper`: a stack whose type is forgotten, or a part of it, that has given its memory back.

#![expect(unsafe_code, reason = "puts blocks to sleep that others may have")]

use core::fmt;
use core::mem::MaybeUninit;

use super::ResourceExt as _;
use crate::adaptor::Tracking;
use crate::error::Error;
use crate::resource::{AnyResource, DevicePtr, Resource, SleepRecord, Sleeping, Tagged};
use crate::size::Size;
use crate::stream::Frontier;
use crate::suballoc::SleepConfig;
use crate::sync::{Arc, Mutex};
use crate::tag::BlockTags;

/// Blocks of a stack that sleep: [`AnyResource::sleep`], [`AnyResource::sleep_block`]. They have their addresses and no memory, until [`wake`](Self::wake).
///
/// It is what [`Sleeper`](crate::Sleeper) is for a pool, it keeps the stack, and any thread may wake it. One that is dropped leaves its
/// blocks without memory until they are freed, and loses what was kept of them; a stack that slept as a whole serves requests again. One
/// that is leaked leaks what was kept, and the stack sleeps on.
#[must_use = "the contents are lost with it"]
pub struct StackSleeper {
    /// `None` while a thread wakes the blocks. Threads that read what is kept have a count of it each. Held for an exchange, and never while
    /// anything waits or foreign code runs. Before the stack, which may have what is kept.
    record: Mutex<Option<Arc<SleepRecord<'static>>>>,
    stack: AnyResource,
    blocks: usize,
    bytes: usize,
    kept_bytes: usize,
}

static_assertions::assert_impl_all!(StackSleeper: Send, Sync);
static_assertions::assert_not_impl_any!(StackSleeper: Clone);

impl AnyResource {
    /// Puts a stack over [pages](crate::source::Mapped) to sleep, or what carries a tag: as [`Pool::sleep`](crate::Pool::sleep), for a
    /// stack of which only this handle is known, such as that of a [recipe](crate::Recipe).
    ///
    /// The tags are those that the configuration [names](SleepConfig::tags_of), those of the outermost layer
    /// [`Tracking`](crate::adaptor::Tracking), or those of a [checked](crate::PoolConfig::checked) pool.
    ///
    /// ```
    /// use alluvion::source::Pinned;
    /// use alluvion::tag::{Tag, with_tag};
    /// use alluvion::{DeviceVec, Recipe, Sim, SleepConfig};
    ///
    /// let sim = Sim::new();
    /// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
    /// let recipe: Recipe = "stats | tracking | pool | mapped".parse()?;
    /// let stack = recipe.build(&device)?;
    /// let (weights, tag) =
    ///     with_tag("weights", || (DeviceVec::filled_in(4 << 20, 7_u8, &stream, stack.clone()), Tag::current()));
    /// let weights = weights?;
    ///
    /// let config = SleepConfig::default().keep_in(Pinned::new(&device)?).tag(tag);
    /// // SAFETY: no work uses `weights` until it is awake.
    /// let sleeper = unsafe { stack.sleep(config) }?;
    /// assert_eq!((sleeper.blocks(), sleeper.kept_bytes()), (1, 4 << 20));
    /// sleeper.wake()?;
    /// assert_eq!(weights.front(&stream)?, 7);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported` for a stack without a pool over pages, and for a tag where nobody knows the tags; else as there.
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn sleep(&self, config: SleepConfig<'static>) -> Result<StackSleeper, Error> {
        let by_layer = self.find::<Tracking>().map(|book| book as &(dyn BlockTags + Sync));
        let tagged = config.tagged().map(|Tagged { tag, by }| Tagged { tag, by: by.or(by_layer) });
        // SAFETY: the caller's promises.
        let record = unsafe { sleeping(self)?.sleep_all(tagged, config.keep) }?;
        Ok(StackSleeper::of(self, record))
    }

    /// Puts one block to sleep, which keeps its address: as [`DeviceVec::sleep`](crate::DeviceVec::sleep), for a block that is known by its
    /// address. `behind` is every use of it. A tag in the configuration is ignored.
    ///
    /// ```
    /// use alluvion::{Frontier, Layout, Recipe, Resource, Sim, SleepConfig, source::Pinned};
    ///
    /// let sim = Sim::new();
    /// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
    /// let stack = "stats | pool | mapped".parse::<Recipe>()?.build(&device)?;
    /// let layout = Layout::from_bytes(4 << 20)?;
    /// let block = stack.allocate(layout, stream.as_ref())?;
    /// let config = SleepConfig::default().keep_in(Pinned::new(&device)?);
    /// // SAFETY: the block is live, all that uses it is on `stream`, and nothing does until it is awake.
    /// let sleeper = unsafe { stack.sleep_block(block, &Frontier::of(stream.release()), config) }?;
    /// assert_eq!((sleeper.blocks(), sleeper.kept_bytes()), (1, 4 << 20));
    /// sleeper.wake()?;
    /// // SAFETY: as before.
    /// unsafe { stack.deallocate(block, layout, stream.as_ref()) };
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported` for a stack without a pool over pages; else as [`Sleeping::sleep`].
    ///
    /// # Safety
    ///
    /// The block is live and of this resource, every use of it is in the frontier or over, and no work uses it until it is awake.
    pub unsafe fn sleep_block(
        &self,
        block: DevicePtr,
        behind: &Frontier,
        config: SleepConfig<'static>,
    ) -> Result<StackSleeper, Error> {
        // SAFETY: the caller's promises.
        let record = unsafe { sleeping(self)?.sleep(block, behind, config.keep) }?;
        Ok(StackSleeper::of(self, record))
    }
}

impl StackSleeper {
    fn of(stack: &AnyResource, record: SleepRecord<'static>) -> Self {
        let (blocks, bytes, kept_bytes) = (record.blocks(), record.bytes(), record.kept_bytes());
        Self { record: Mutex::new(Some(Arc::new(record))), stack: stack.clone(), blocks, bytes, kept_bytes }
    }

    /// As [`Sleeper::wake`](crate::Sleeper::wake).
    ///
    /// # Errors
    ///
    /// As there; `InUse` while another thread wakes the blocks, or reads what is kept.
    pub fn wake(&self) -> Result<(), Error> {
        let sleeping = sleeping(&self.stack)?;
        let mut record = self.take()?;
        let woken = sleeping.wake(&mut record);
        *self.record.lock() = Some(Arc::new(record));
        woken
    }

    /// As [`SleepRecord::read_kept`]. Several threads read at once.
    ///
    /// # Errors
    ///
    /// `InUse` while another thread wakes the blocks.
    pub fn read_kept(&self, from: DevicePtr, into: &mut [u8]) -> Result<bool, Error> {
        self.lend().map(|record| record.read_kept(from, into))
    }

    /// As [`read_kept`](Self::read_kept), into memory of a program in another language, which may never have been written: all of it is after
    /// `Ok`. An error leaves it as it is.
    ///
    /// # Errors
    ///
    /// As there; `InvalidArgument`, which says why, where that is `false`.
    #[doc(hidden)]
    pub fn copy_kept(&self, from: DevicePtr, into: &mut [MaybeUninit<u8>]) -> Result<(), Error> {
        self.lend()?.copy_kept(from, into)
    }

    /// Takes the record from all others, until it is put back.
    fn take(&self) -> Result<SleepRecord<'static>, Error> {
        self.record.require_same_process()?;
        let mut held = self.record.lock();
        let shared = held.take().ok_or_else(is_being_woken)?;
        // No thread gets another count meanwhile, because of the lock.
        Arc::try_unwrap(shared).map_err(|shared| {
            *held = Some(shared);
            Error::in_use_by_others("what sleeps", "another thread reads it now", "wait for that thread")
        })
    }

    /// One more count of the record, to read it without the lock. It is never the last one: `self` is borrowed, and keeps its own.
    fn lend(&self) -> Result<Arc<SleepRecord<'static>>, Error> {
        self.record.require_same_process()?;
        self.record.lock().clone().ok_or_else(is_being_woken)
    }

    /// Returns `true` until it is awake.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.record
            .lock_unless_forked()
            .is_none_or(|record| record.as_ref().is_none_or(|record| record.is_asleep()))
    }

    /// The stack.
    #[must_use]
    pub fn stack(&self) -> &AnyResource {
        &self.stack
    }

    /// The blocks that were put to sleep.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Their bytes, each block's rounded up to 256.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes of the host's memory that their contents went to; 0 if nothing was kept.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }
}

#[cold]
fn is_being_woken() -> Error {
    Error::in_use_by_others("what sleeps", "another thread wakes it now", "wait for that thread")
}

fn sleeping(stack: &AnyResource) -> Result<&dyn Sleeping, Error> {
    stack.sleeping().ok_or_else(|| {
        Error::unsupported(
            "sleep of this stack",
            "its pool has no pages, or a layer over the pool hands out blocks of its own, as `guard` does",
            "make it over `mapped`: `pool | mapped`, under layers that pass blocks on",
        )
    })
}

impl Drop for StackSleeper {
    fn drop(&mut self) {
        // A child of a fork leaks what its parent kept.
        let record = self.record.lock_unless_forked().and_then(|mut record| record.take());
        if let (Ok(sleeping), Some(record)) = (sleeping(&self.stack), record) {
            sleeping.give_up(&record);
        }
    }
}

impl fmt::Debug for StackSleeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StackSleeper({} in {} blocks)", Size(self.bytes), self.blocks)
    }
}

#[cfg(all(test, feature = "sim", not(loom)))]
mod tests {
    use super::*;
    use crate::Sim;
    use crate::container::DeviceVec;
    use crate::error::ErrorKind;
    use crate::recipe::Recipe;
    use crate::source::Pinned;

    #[test]
    fn readers_are_beside_each_other_and_keep_a_wake_out() {
        let sim = Sim::new();
        let stream = sim.device(0).stream().expect("there are numbers left");
        let recipe: Recipe = "pool | mapped".parse().expect("a right recipe");
        let stack = recipe.build(&sim.device(0)).expect("the device has it");
        let weights = DeviceVec::from_slice_in(&[1_u8, 2, 3], &stream, stack.clone()).expect("there is room");
        let config =
            SleepConfig::default().keep_in(Pinned::new(&sim.device(0)).expect("addresses are common"));
        // SAFETY: nothing uses what sleeps.
        let sleeper = unsafe { stack.sleep(config) }.expect("nothing forbids it");

        let mut bytes = [0; 3];
        let read = sleeper.lend().expect("nobody wakes it");
        assert!(sleeper.read_kept(weights.as_device_ptr(), &mut bytes).expect("many may read"));
        assert_eq!((bytes, sleeper.is_asleep()), ([1, 2, 3], true));
        let refused = sleeper.wake().expect_err("it is read");
        assert!(
            refused.kind() == ErrorKind::InUse && refused.to_string().contains("another thread reads it"),
            "{refused}"
        );
        assert!(sleeper.is_asleep() && read.is_asleep(), "nothing has changed");
        drop(read);

        let woken = sleeper.take().expect("nobody reads");
        assert!(sleeper.is_asleep(), "until it is awake");
        for refused in [sleeper.read_kept(weights.as_device_ptr(), &mut bytes).map(drop), sleeper.wake()] {
            let refused = refused.expect_err("another thread has it");
            assert!(
                refused.kind() == ErrorKind::InUse && refused.to_string().contains("another thread wakes it"),
                "{refused}"
            );
        }
        *sleeper.record.lock() = Some(Arc::new(woken));
        sleeper.wake().expect("there is room");

        let read = sleeper.lend().expect("nobody wakes it");
        assert!(!sleeper.is_asleep(), "it is awake, whoever reads");
        assert!(!sleeper.read_kept(weights.as_device_ptr(), &mut bytes).expect("many may read"));
        drop(read);
        assert_eq!(weights.to_vec(&stream).expect("it is awake"), [1, 2, 3]);
    }
}
