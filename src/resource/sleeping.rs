//! `Sleeping`: blocks that give their memory back and keep their addresses.

#![expect(unsafe_code, reason = "gives back the host memory of what sleeps, and reads it")]

use core::fmt;
use core::mem::MaybeUninit;
use std::sync::Arc;

use super::{AnyResource, DeviceAccessible, DevicePtr, HostAccessible, Layout, Resource};
use crate::error::Error;
use crate::stream::{Frontier, Stream};
use crate::sync::Mutex;
use crate::tag::{BlockTags, Tag};

/// Where the contents of sleeping blocks are kept: memory of the host that the device reaches.
pub(crate) trait HostStore: Resource + Send + Sync {}

impl<R: HostAccessible + DeviceAccessible + Send + Sync> HostStore for R {}

/// One that has answered that the host reaches its blocks: [`Kept::in_stack`] asks.
impl HostStore for AnyResource {}

/// A host store, shared.
pub(crate) type SharedStore<'k> = Arc<dyn HostStore + 'k>;

/// The streams of copies that could not be waited for. Shared by the two that the copies are between, so that either can wait again.
#[derive(Debug, Default)]
pub(crate) struct OpenCopies(Mutex<Vec<Stream>>);

impl OpenCopies {
    /// Waits for copies that were submitted to these streams, and for earlier ones.
    pub(crate) fn settle(&self, streams: impl IntoIterator<Item = Stream>) -> Result<(), Error> {
        self.0.require_same_process()?;
        let open = {
            let mut open = self.0.lock();
            open.extend(streams);
            open.clone()
        };
        let mut waited = Ok(());
        for stream in &open {
            match stream.synchronize() {
                // No last handle is dropped under the lock: `open` has one.
                Ok(()) => self.0.lock().retain(|other| other.id() != stream.id()),
                Err(error) => waited = waited.and(Err(error)),
            }
        }
        waited
    }

    /// Returns `true` if all copies are known to be over. Asks no driver.
    pub(crate) fn are_settled(&self) -> bool {
        self.0.lock_unless_forked().is_some_and(|open| open.is_empty())
    }
}

/// Contents that are kept in memory of the host. Given back when it is dropped, by synchronous calls.
pub(crate) struct HostCopy<'k> {
    store: SharedStore<'k>,
    /// Each is as long as [`CHUNK`](Self::CHUNK), but the last.
    chunks: Vec<(DevicePtr, Layout)>,
    copies: Arc<OpenCopies>,
}

impl<'k> HostCopy<'k> {
    /// Contents are kept in pieces of the host's memory of at most so many bytes: 512 MiB. A store that is a pool finds
    /// such a piece more easily than one for all, and a driver call for each costs nothing beside the copy of it.
    pub(crate) const CHUNK: u64 = 512 << 20;

    /// Memory for so many bytes.
    pub(crate) fn allocate(store: SharedStore<'k>, bytes: u64) -> Result<Self, Error> {
        let mut copy = Self { store, chunks: Vec::new(), copies: Arc::default() };
        let mut left = bytes;
        while left > 0 {
            let layout = Layout::from_bytes(left.min(Self::CHUNK) as usize)?;
            copy.chunks.push((copy.store.allocate_sync(layout)?, layout));
            left -= layout.bytes() as u64;
        }
        Ok(copy)
    }

    /// The address of a byte, and how many follow it at the next addresses.
    pub(crate) fn place(&self, offset: u64) -> Option<(u64, u64)> {
        let &(chunk, layout) = self.chunks.get((offset / Self::CHUNK) as usize)?;
        let within = offset % Self::CHUNK;
        Some((chunk.address() + within, (layout.bytes() as u64).checked_sub(within)?))
    }

    /// The copies to and from it.
    pub(crate) fn copies(&self) -> &Arc<OpenCopies> {
        &self.copies
    }

    /// The bytes of the host.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.iter().map(|(_, layout)| layout.bytes()).sum()
    }
}

impl Drop for HostCopy<'_> {
    fn drop(&mut self) {
        if !self.copies.are_settled() && self.copies.settle([]).is_err() {
            // The device may use the memory: it is leaked.
            return;
        }
        for &(chunk, layout) in &self.chunks {
            // SAFETY: the chunk came from this store with this layout, nobody else knows it, and all copies are over.
            unsafe { self.store.deallocate_sync(chunk, layout) };
        }
    }
}

/// Where the contents of sleeping blocks are kept, other than in memory: see `saved`.
pub(crate) trait ContentFiles: Send + Sync {
    /// Begins a file for so many bytes. It is there when it is finished, and not before.
    fn create(&self, bytes: u64) -> Result<Box<dyn ContentWriter>, Error>;
}

/// A file of contents that is being written. One that is dropped leaves nothing.
pub(crate) trait ContentWriter {
    /// Writes the next bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error>;

    /// Completes the file, when it has all of its bytes.
    fn finish(self: Box<Self>) -> Result<Box<dyn KeptContents>, Error>;
}

/// A file of contents. It goes with the value.
pub(crate) trait KeptContents: Send + Sync {
    /// All of its bytes.
    fn bytes(&self) -> u64;

    /// Begins to read from the first byte on.
    fn begin(&mut self) -> Result<(), Error>;

    /// Reads the next bytes. With the last ones it says whether all were those that were written.
    fn read(&mut self, into: &mut [u8]) -> Result<(), Error>;
}

/// A block that sleeps, of one [`SleepRecord`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct SleepingBlock {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// Where its contents are kept.
    pub(crate) offset: u64,
}

/// What sleeps together, and what is kept of it.
///
/// Made by [`Sleeping::sleep`], for [`Sleeping::wake`] of the same resource. The blocks sleep on when it is dropped, until they
/// are freed; what is kept of them is lost.
#[must_use = "the contents are lost with it"]
pub struct SleepRecord<'k> {
    /// The number of the resource that it belongs to.
    pub(crate) of: u64,
    /// Its number there; 0 once it is awake.
    pub(crate) number: u64,
    /// In the order of addresses.
    pub(crate) blocks: Vec<SleepingBlock>,
    /// Their contents, or what these go through on their way to or from the file.
    pub(crate) host: Option<HostCopy<'k>>,
    /// The file that has their contents.
    pub(crate) file: Option<Box<dyn KeptContents>>,
}

impl SleepRecord<'_> {
    /// A record without a block.
    pub(crate) const fn of_nothing() -> Self {
        Self { of: 0, number: 0, blocks: Vec::new(), host: None, file: None }
    }

    /// The blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Their bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.bytes as usize).sum()
    }

    /// Returns `true` until the blocks are awake.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.number != 0
    }

    /// Reads what is kept of the bytes from an address on, while they sleep. Returns `false`, and leaves `into` as it is, if not all of them
    /// lie in one of the blocks, or none are kept in memory of the host: nothing was kept, a file has it, or the blocks are awake. A block that
    /// is freed asleep is still read as it was, whatever lies at its address by then.
    ///
    /// ```
    /// use alluvion::source::{Mapped, Pinned};
    /// use alluvion::{DeviceVec, PoolConfig, ResourceExt, Sim, SleepConfig};
    ///
    /// let sim = Sim::new();
    /// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
    /// let pool = Mapped::new(&device)?.pool(PoolConfig::default())?;
    /// let weights = DeviceVec::filled_in(4 << 20, 7_u8, &stream, &pool)?;
    /// // SAFETY: nothing uses `weights` until the pool is awake.
    /// let sleeper = unsafe { pool.sleep(SleepConfig::default().keep_in(Pinned::new(&device)?)) }?;
    /// let mut some = [0; 3];
    /// assert!(sleeper.record().read_kept(weights.as_device_ptr(), &mut some));
    /// assert_eq!(some, [7; 3]);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn read_kept(&self, from: DevicePtr, into: &mut [u8]) -> bool {
        // SAFETY: it has as many bytes, at the same place and as aligned, is borrowed for as long, and gets none that is not written.
        self.copy_kept(from, unsafe { &mut *(core::ptr::from_mut(into) as *mut [MaybeUninit<u8>]) }).is_ok()
    }

    /// As [`read_kept`](Self::read_kept), into memory that may never have been written: all of it is after `Ok`. An error, which says why,
    /// leaves it as it is.
    pub(crate) fn copy_kept(&self, from: DevicePtr, into: &mut [MaybeUninit<u8>]) -> Result<(), Error> {
        if !self.is_asleep() {
            return Err(not_kept("the blocks are awake", "read the memory itself"));
        }
        if self.file.is_some() {
            return Err(not_kept(
                "a file has the contents",
                "wake the blocks, or keep them in memory of the host",
            ));
        }
        let Some(host) = self.host.as_ref() else {
            return Err(not_kept("nothing was kept of the blocks", "keep them in memory of the host"));
        };
        let mut offset = self.offset_of(from, into.len() as u64).ok_or_else(|| {
            not_kept(
                "not all of them lie in one block that sleeps",
                "pass a range within one of these blocks",
            )
        })?;
        let mut left = into;
        while !left.is_empty() {
            // All that the blocks have was copied there, so that each offset of theirs has a place.
            let Some((place, room)) = host.place(offset).filter(|(_, room)| *room > 0) else {
                return Err(not_kept("no memory of the host has them", "wake the blocks"));
            };
            let (now, later) = left.split_at_mut(left.len().min(room as usize));
            // SAFETY: the chunk is live while `self` is borrowed, has so many bytes from there on, and the host reaches it at its address:
            // `HostStore`. All of them were written when the blocks went to sleep, and copies since then only read them. `now` is the
            // caller's own memory.
            unsafe {
                let kept = core::ptr::with_exposed_provenance::<MaybeUninit<u8>>(place as usize);
                core::ptr::copy_nonoverlapping(kept, now.as_mut_ptr(), now.len());
            }
            offset += now.len() as u64;
            left = later;
        }
        Ok(())
    }

    /// Where the contents of so many bytes from an address on are kept, if they lie in one of the blocks.
    fn offset_of(&self, from: DevicePtr, bytes: u64) -> Option<u64> {
        let first = from.address();
        // The last block that does not begin behind the address.
        let at = self.blocks.partition_point(|block| block.address <= first).checked_sub(1)?;
        let block = self.blocks[at];
        let within = first - block.address;
        (within < block.bytes && bytes <= block.bytes - within).then_some(block.offset + within)
    }

    /// The copies of their contents that are not known to be over.
    pub(crate) fn open_copies(&self) -> Option<Arc<OpenCopies>> {
        self.host.as_ref().map(HostCopy::copies).filter(|copies| !copies.are_settled()).cloned()
    }

    /// The bytes of the host's memory, or of the file, that their contents are kept in; 0 if they were dropped.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        match &self.file {
            Some(file) => file.bytes() as usize,
            None => self.host.as_ref().map_or(0, HostCopy::bytes),
        }
    }
}

#[cold]
fn not_kept(why: &'static str, instead: &'static str) -> Error {
    Error::invalid_argument("what is kept of these bytes", why, instead)
}

impl fmt::Debug for SleepRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SleepRecord({} blocks of {} bytes)", self.blocks(), self.bytes())
    }
}

/// How the contents of sleeping blocks are kept: see [`SleepConfig`](crate::suballoc::SleepConfig), which makes it.
#[derive(Clone, Default)]
pub struct Kept<'k>(pub(crate) Option<Place<'k>>);

/// A place for contents.
#[derive(Clone)]
pub(crate) enum Place<'k> {
    Host(SharedStore<'k>),
    Files(Arc<dyn ContentFiles>),
}

impl<'k> Kept<'k> {
    /// In memory of the host.
    pub(crate) fn in_host(store: SharedStore<'k>) -> Self {
        Self(Some(Place::Host(store)))
    }

    /// In files.
    pub(crate) fn in_files(files: Arc<dyn ContentFiles>) -> Self {
        Self(Some(Place::Files(files)))
    }

    /// In memory of a stack whose type is forgotten.
    pub(crate) fn in_stack(host: AnyResource) -> Result<Self, Error> {
        if host.host_access() {
            return Ok(Self::in_host(Arc::new(host)));
        }
        Err(Error::invalid_argument(
            "the memory that contents are kept in",
            "the host cannot be sure to reach it",
            "keep them in pinned memory, such as `pool | pinned`",
        ))
    }
}

impl fmt::Debug for Kept<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Some(Place::Host(_)) => "Kept(in host memory)",
            Some(Place::Files(_)) => "Kept(on disk)",
            None => "Kept(nothing)",
        })
    }
}

/// The blocks that carry a tag, or one within it.
#[derive(Clone, Copy)]
pub struct Tagged<'t> {
    /// The tag.
    pub tag: Tag,
    /// Who knows the tags of the blocks. Without one the resource has to know them itself.
    pub by: Option<&'t (dyn BlockTags + Sync)>,
}

impl fmt::Debug for Tagged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tagged({})", self.tag)
    }
}

/// Blocks that give their memory back and keep their addresses.
///
/// A resource that can do this returns it from [`Resource::sleeping`]: a [`Pool`](crate::Pool) over a resource with
/// [`pages`](Resource::pages). Containers sleep by it: [`DeviceVec::sleep`](crate::DeviceVec::sleep). A whole pool sleeps by
/// [`Pool::sleep`](crate::Pool::sleep), and a stack whose type is forgotten by [`AnyResource::sleep`](crate::AnyResource::sleep).
///
/// # Safety
///
/// After `sleep` and `wake` a block has the address that it had before, and the contents if they are kept. A block that sleeps is
/// live, and may be freed. No method unwinds.
pub unsafe trait Sleeping {
    /// Gives back the pages on which nothing but this block and free memory lies. Waits, on the host, until all work before the
    /// frontier and, if the contents are kept, the copies are over.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if no block of the resource begins there, or it sleeps; a capture error while a stream captures;
    /// `OutOfMemory` of the host's memory; as the driver says. Then nothing has changed.
    ///
    /// # Safety
    ///
    /// The block is live, every use of it is in the frontier or over, and no work uses it until it is awake.
    unsafe fn sleep<'k>(
        &self,
        block: DevicePtr,
        behind: &Frontier,
        keep: Kept<'k>,
    ) -> Result<SleepRecord<'k>, Error>;

    /// As [`sleep`](Self::sleep), for all blocks, or for those with a tag. If all sleep, so does the resource: it refuses allocations
    /// until it is awake, or until [`give_up`](Self::give_up). Waits for all work on all streams that the machine knows.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a tag where nobody knows the tags; `Asleep` for a resource that sleeps; a capture error while a stream
    /// captures; `OutOfMemory` of the host's memory; `DeviceMismatch` for memory of another device's host resource; as the driver
    /// says. Then nothing has changed.
    ///
    /// # Safety
    ///
    /// - No thread frees a block that is to sleep while this call runs, and none uses the resource if all of it is to sleep.
    /// - No work uses such a block from this call until it is awake: neither work that is submitted meanwhile, nor work on a stream
    ///   that the machine does not know.
    unsafe fn sleep_all<'k>(
        &self,
        tagged: Option<Tagged<'_>>,
        keep: Kept<'k>,
    ) -> Result<SleepRecord<'k>, Error>;

    /// Notes that nobody will wake these blocks. They have no memory until they are freed; a resource that slept as a whole serves
    /// requests again.
    fn give_up(&self, record: &SleepRecord<'_>);

    /// Maps memory where it is missing, and restores what was kept. Waits, on the host, until that is over. Blocks that were freed
    /// meanwhile are left alone.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, with the bytes that miss; `InvalidArgument` for a record of another resource; as the driver says. The blocks
    /// sleep on then, nothing is lost, and it can be called again.
    fn wake(&self, record: &mut SleepRecord<'_>) -> Result<(), Error>;
}

static_assertions::assert_impl_all!(SleepRecord<'static>: Send, Sync);
