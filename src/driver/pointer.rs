//! `PointerInfo` and `AddressRange`: the memory that an address lies in.

/// A kind of memory that a driver knows by its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Memory of a device: of its own calls, of a pool, of a graph, or mapped.
    Device,
    /// Managed memory, which moves between devices and the host.
    Managed,
    /// Memory of the host that is pinned or registered.
    PinnedHost,
}

impl MemoryKind {
    /// Returns `true` if the host may use the address as a pointer.
    #[must_use]
    pub const fn is_host_accessible(self) -> bool {
        matches!(self, Self::Managed | Self::PinnedHost)
    }
}

/// The memory that an address lies in, as [`Driver::pointer_attributes`](super::Driver::pointer_attributes) returns it.
///
/// ```
/// use alluvion::driver::{Driver, MemoryKind, PointerInfo};
/// use alluvion::sim::{SimConfig, SimDriver};
///
/// let driver = SimDriver::new(SimConfig::default());
/// let address = driver.allocate_device(0, 1024)?;
/// let of_device = PointerInfo { kind: MemoryKind::Device, ordinal: Some(0) };
/// assert_eq!(driver.pointer_attributes(address + 1023)?, Some(of_device));
/// assert_eq!(driver.pointer_attributes(1)?, None);
/// # Ok::<(), alluvion::driver::DriverError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PointerInfo {
    /// The kind of memory.
    pub kind: MemoryKind,
    /// The device that the memory is of, or that pinned memory was pinned for. `None` for memory that a driver keeps for no device.
    pub ordinal: Option<u32>,
}

/// An allocation, as [`Driver::address_range`](super::Driver::address_range) returns it.
///
/// ```
/// use alluvion::driver::{AddressRange, Driver};
/// use alluvion::sim::{SimConfig, SimDriver};
///
/// let driver = SimDriver::new(SimConfig::default());
/// let start = driver.allocate_device(0, 1024)?;
/// assert_eq!(driver.address_range(start + 100)?, Some(AddressRange { start, bytes: 1024 }));
/// # Ok::<(), alluvion::driver::DriverError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressRange {
    /// The first address.
    pub start: u64,
    /// The number of bytes.
    pub bytes: usize,
}
