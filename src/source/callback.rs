//! `Callback<A, D>`: memory from two closures.

#![expect(unsafe_code, reason = "passes on the promises of its closures")]

use core::fmt;

use super::refusal;
use crate::contain::contain;
use crate::device::Device;
use crate::error::Error;
use crate::resource::{DeviceAccessible, DevicePtr, Layout, Resource, ResourceId};
use crate::stream::StreamRef;

/// Memory from two closures: for an allocator that this crate does not know.
///
/// The closures get size, alignment and stream. They are called with no lock held, and never for zero bytes. Their types are part
/// of the type of the resource, so nothing is boxed. The resource frees its own blocks only.
///
/// The result of `allocate` is checked: null means out of memory, as for `malloc`; a misaligned block is freed, and the request
/// fails. A closure that panics does not unwind into the caller: a panic of `allocate` becomes an error, one of `deallocate` leaks
/// the block if it was not freed yet. The panic hook has printed the message by then. An error of `allocate` goes up as it is: one of
/// another library or language as [`Error::foreign`].
///
/// # Stream ordering
///
/// That of the closures, which are given the stream. [`allocate_sync`](Resource::allocate_sync) and
/// [`deallocate_sync`](Resource::deallocate_sync) give them a stream of the crate's own, and wait for it.
///
/// # Thread safety
///
/// As thread-safe as the closures: it is `Sync` if they are, and they are then called from any thread, several at once.
///
/// # Examples
///
/// ```
/// use alluvion::{Layout, Resource, Sim, StreamRef, source::{Callback, CudaAsync}};
///
/// let sim = Sim::new();
/// let device = sim.device(0);
/// let pool = CudaAsync::new(&device)?;
/// // SAFETY: the closures hand out the blocks of a pool, and give them back to it.
/// let resource = unsafe {
///     Callback::new(
///         &device,
///         |layout, stream| Ok(pool.allocate(layout, stream)?.address()),
///         |block, layout, stream| pool.deallocate(block, layout, stream),
///     )
/// };
/// let layout = Layout::array::<f32>(1024)?;
/// let block = resource.allocate_sync(layout)?;
/// assert!(pool.used_bytes()? >= 4096);
/// // SAFETY: `block` came from this resource with this layout, and nothing uses it.
/// unsafe { resource.deallocate_sync(block, layout) };
/// assert_eq!(pool.used_bytes()?, 0);
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Callback<A, D> {
    device: Device,
    id: ResourceId,
    max_align: usize,
    /// Blocks are checked for what was asked for, and else for nothing.
    at_any_address: bool,
    allocate: A,
    deallocate: D,
}

type AllocateFn = fn(Layout, StreamRef<'_>) -> Result<u64, Error>;
type DeallocateFn = fn(DevicePtr, Layout, StreamRef<'_>);
static_assertions::assert_impl_all!(Callback<AllocateFn, DeallocateFn>: Send, Sync, DeviceAccessible);
static_assertions::assert_not_impl_any!(Callback<AllocateFn, DeallocateFn>: Clone, crate::resource::HostAccessible);

impl<A, D> Callback<A, D>
where
    A: Fn(Layout, StreamRef<'_>) -> Result<u64, Error>,
    D: Fn(DevicePtr, Layout, StreamRef<'_>),
{
    /// A resource on `device` that calls `allocate` and `deallocate`.
    ///
    /// Alignments above [`Layout::MIN_ALIGN`] are refused; [`with_max_align`](Self::with_max_align) permits more.
    ///
    /// # Safety
    ///
    /// Whenever `allocate`, called with a layout that is not empty and a live stream of `device`, answers an address
    /// other than 0, then from there
    ///
    /// - as many bytes as the layout says are memory that work on `device`, ordered after the call on that stream, may
    ///   read and write;
    /// - they overlap no other block that it has handed out and `deallocate` has not been called for;
    /// - they stay valid until `deallocate` is called for them, and then until the work that is on the stream given
    ///   there is done.
    ///
    /// In turn `deallocate` is called at most once for each block that `allocate` has handed out, with the same layout.
    /// All of this holds after either closure has panicked, too.
    #[must_use]
    pub unsafe fn new(device: &Device, allocate: A, deallocate: D) -> Self {
        Self {
            device: device.clone(),
            id: ResourceId::unique(),
            max_align: Layout::MIN_ALIGN,
            at_any_address: false,
            allocate,
            deallocate,
        }
    }

    /// Declares that `allocate` honours alignments up to `max_align`. Each block is checked.
    ///
    /// # Errors
    ///
    /// `InvalidAlignment` unless `max_align` is a power of two, of [`Layout::MIN_ALIGN`] or more.
    pub fn with_max_align(mut self, max_align: usize) -> Result<Self, Error> {
        if !max_align.is_power_of_two() || max_align < Layout::MIN_ALIGN {
            return Err(Error::invalid_alignment(max_align));
        }
        self.max_align = max_align;
        Ok(self)
    }

    /// Takes blocks at any address: only alignments above [`Layout::MIN_ALIGN`] are checked. For an allocator that aligns to less, or
    /// one of a test, below layers that hand blocks on as they are.
    ///
    /// ```
    /// use alluvion::source::Callback;
    /// use alluvion::suballoc::PoolConfig;
    /// use alluvion::{Layout, Resource, ResourceExt, Sim};
    ///
    /// let device = Sim::new().device(0);
    /// // SAFETY: nobody uses the memory at 123, of which there is none.
    /// let odd = unsafe { Callback::new(&device, |_, _| Ok(123), |_, _, _| {}) };
    /// // SAFETY: nobody relies on an alignment of it.
    /// let counted = unsafe { odd.at_any_address() }.stats();
    /// let layout = Layout::from_bytes(5)?;
    /// let block = counted.allocate_sync(layout)?;
    /// assert_eq!(block.address(), 123);
    /// // SAFETY: the block came from here with this layout, and nothing uses it.
    /// unsafe { counted.deallocate_sync(block, layout) };
    /// let pool = counted.pool(PoolConfig::default())?;
    /// assert!(pool.allocate_sync(layout).is_err(), "a pool carves up memory that is aligned to 256");
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Whoever gets a block of this resource, or of a layer over it, relies on no alignment up to [`Layout::MIN_ALIGN`]. Suballocators
    /// and [`Aligned`](crate::adaptor::Aligned) check that for themselves, and refuse such memory.
    #[must_use]
    pub unsafe fn at_any_address(mut self) -> Self {
        self.at_any_address = true;
        self
    }

    /// What the address of a block of that layout must be a multiple of.
    fn required_align(&self, layout: Layout) -> usize {
        let align = layout.block_align();
        if self.at_any_address && align <= Layout::MIN_ALIGN { 1 } else { align }
    }

    /// Calls `deallocate`, and catches its panic.
    fn call_deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        contain(|| (self.deallocate)(block, layout, stream));
    }
}

// SAFETY: the closures hand out memory that overlaps no other live memory and is long enough, and keep it valid: `new`'s caller
// promised it. The alignment is checked here, as far as that of `at_any_address` has not said that nobody relies on it. The closures move with this value, and no other value has its id. Their panics are
// caught.
unsafe impl<A, D> Resource for Callback<A, D>
where
    A: Fn(Layout, StreamRef<'_>) -> Result<u64, Error>,
    D: Fn(DevicePtr, Layout, StreamRef<'_>),
{
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.device.require(stream.device())?;
        layout.require_align(self.max_align)?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        let Some(answer) = contain(|| (self.allocate)(layout, stream)) else {
            return Err(Error::invalid_argument(
                "a callback that allocates",
                "it panicked",
                "return an error instead",
            ));
        };
        let Some(block) = DevicePtr::new(answer?) else {
            return Err(refusal::refused("Callback", &self.device, layout, || self.memory_info()));
        };
        if !block.is_aligned_to(self.required_align(layout)) {
            self.call_deallocate(block, layout, stream);
            return Err(Error::invalid_argument(
                "a block of a callback",
                "it is not aligned to what was asked for, or to 256",
                "honour `Layout::block_align`",
            ));
        }
        Ok(block)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        if !layout.is_empty() {
            self.call_deallocate(block, layout, stream);
        }
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Callback({})", self.device)
    }

    fn max_align(&self) -> usize {
        self.max_align
    }
}

// SAFETY: `new`'s caller promised that work on the device may read and write every block.
unsafe impl<A, D> DeviceAccessible for Callback<A, D>
where
    A: Fn(Layout, StreamRef<'_>) -> Result<u64, Error>,
    D: Fn(DevicePtr, Layout, StreamRef<'_>),
{
}

impl<A, D> fmt::Debug for Callback<A, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Callback({})", self.device)
    }
}
