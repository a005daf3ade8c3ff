//! `DevicePtr`: an address that the host never dereferences.

use core::fmt;
use core::num::NonZeroU64;

/// The address of a block, as the device sees it.
///
/// It is a number and not a pointer: safe code cannot read through it, and no method turns it into a pointer. Memory that the host
/// may touch comes as a pointer from [`OnHost`](crate::OnHost), and only there.
///
/// ```
/// use alluvion::DevicePtr;
///
/// let block = DevicePtr::new(0x1000).unwrap();
/// assert_eq!(block.offset(256).address(), 0x1100);
/// assert_eq!(format!("{block}"), "0x1000");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct DevicePtr(NonZeroU64);

static_assertions::assert_eq_size!(Option<DevicePtr>, u64);

impl DevicePtr {
    /// The address, or `None` for null.
    #[must_use]
    pub const fn new(address: u64) -> Option<Self> {
        match NonZeroU64::new(address) {
            Some(address) => Some(Self(address)),
            None => None,
        }
    }

    /// The address as a number, to pass to a kernel.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.0.get()
    }

    /// The address plus `bytes`, for parts of one block.
    ///
    /// # Panics
    ///
    /// If the address overflows, which no address inside of a block does.
    #[must_use]
    pub const fn offset(self, bytes: usize) -> Self {
        match self.0.checked_add(bytes as u64) {
            Some(address) => Self(address),
            None => panic!("the address overflows"),
        }
    }

    /// Returns `true` if the address is a multiple of `align`.
    #[must_use]
    pub const fn is_aligned_to(self, align: usize) -> bool {
        self.0.get().is_multiple_of(align as u64)
    }
}

impl fmt::Display for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DevicePtr({:#x})", self.0)
    }
}
