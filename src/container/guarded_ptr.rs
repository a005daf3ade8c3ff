//! `GuardedPtr<'g>`: the address that a guard gives out.

use core::fmt;
use core::marker::PhantomData;

use crate::resource::DevicePtr;

/// The address of elements, for as long as the guard that gave it is there.
///
/// A launch with an address whose guard is gone is ordered with nothing. So the address borrows the guard, and the usual slip does
/// not compile:
///
/// ```compile_fail,E0716
/// # use alluvion::{DeviceVec, Sim};
/// # let sim = Sim::new();
/// # let stream = sim.device(0).stream()?;
/// # let mut vector = DeviceVec::<f32>::zeroed(8, &stream)?;
/// let address = vector.write_on(&stream)?.as_device_ptr(); // The guard ends with this line,
/// println!("launched with {address}"); // and the launch comes later.
/// # Ok::<(), alluvion::Error>(())
/// ```
///
/// As an argument of a kernel it is the number itself: 8 bytes, the address. Launchers that take a pointer to each argument, as
/// `cuLaunchKernel` does, take one to this, and those of cudarc take `.arg(&address)`. What has to have the plain number asks
/// for it by name: [`unguarded`](Self::unguarded).
///
/// ```
/// use alluvion::{DeviceVec, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let mut vector = DeviceVec::<f32>::zeroed(8, &stream)?;
/// let write = vector.write_on(&stream)?;
/// let second = write.as_device_ptr().offset(size_of::<f32>());
/// // Here a kernel is launched on `stream`.
/// let argument: *const core::ffi::c_void = (&raw const second).cast();
/// # let _ = argument;
/// assert_eq!(second.unguarded().address(), write.as_device_ptr().unguarded().address() + 4);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct GuardedPtr<'g> {
    address: DevicePtr,
    guard: PhantomData<&'g ()>,
}

static_assertions::assert_eq_size!(GuardedPtr<'static>, u64);
static_assertions::assert_eq_align!(GuardedPtr<'static>, u64);

impl GuardedPtr<'_> {
    /// For as long as the caller says: the borrow of a guard.
    pub(super) const fn new(address: DevicePtr) -> Self {
        Self { address, guard: PhantomData }
    }

    /// The address `bytes` further on.
    ///
    /// # Panics
    ///
    /// If the address would overflow, which none inside of a block does.
    #[must_use]
    pub const fn offset(self, bytes: usize) -> Self {
        Self::new(self.address.offset(bytes))
    }

    /// Returns `true` if the address is a multiple of `align`.
    #[must_use]
    pub const fn is_aligned_to(self, align: usize) -> bool {
        self.address.is_aligned_to(align)
    }

    /// The address on its own, which nothing ties to the guard any more. Whoever takes it keeps the guard until the work is
    /// submitted, or enters the use by `record_use` of the container.
    #[must_use]
    pub const fn unguarded(self) -> DevicePtr {
        self.address
    }
}

impl PartialEq<DevicePtr> for GuardedPtr<'_> {
    fn eq(&self, other: &DevicePtr) -> bool {
        self.address == *other
    }
}

impl fmt::Display for GuardedPtr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl fmt::Debug for GuardedPtr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuardedPtr({})", self.address)
    }
}
