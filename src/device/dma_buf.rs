//! Memory as a dma-buf, for the kernel's other drivers.

#![expect(unsafe_code, reason = "lends memory whose life the caller promises")]

use std::os::fd::OwnedFd;

use super::Device;
use crate::driver::{Code, ExportedMemory};
use crate::error::Error;

impl Device {
    /// A descriptor of a dma-buf, through which the kernel's other drivers reach memory of the device: `ibv_reg_dmabuf_mr` registers it
    /// with a network card. It keeps the memory, also when that is freed, until the last copy of the descriptor and the last registration
    /// are gone: a [segment](crate::suballoc::SegmentHooks) is lent, and not a block that moves.
    ///
    /// ```
    /// use alluvion::source::Mapped;
    /// use alluvion::{PoolConfig, ResourceExt, Sim};
    ///
    /// let device = Sim::new().device(0);
    /// let pool = Mapped::new(&device)?.pool(PoolConfig::default().registered(8 << 20).initial(8 << 20))?;
    /// let segment = pool.segments()[0];
    /// // SAFETY: the pool keeps the segment.
    /// let descriptor = unsafe { device.dma_buf(segment.address.address(), segment.bytes) }?;
    /// # drop(descriptor);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported` where the device has none, see [`Capabilities::dma_buf`](super::Capabilities::dma_buf); as the driver says, for a
    /// range that is not whole pages of the host, or not within one allocation or one page.
    ///
    /// # Safety
    ///
    /// The range is live memory of this device.
    pub unsafe fn dma_buf(&self, address: u64, bytes: usize) -> Result<OwnedFd, Error> {
        self.machine().require_same_process()?;
        let sharing = self.driver().sharing().ok_or_else(no_dma_buf)?;
        // SAFETY: the caller's promise.
        match unsafe { sharing.dma_buf(self.ordinal(), address, bytes) } {
            Ok(ExportedMemory::FileDescriptor(descriptor)) => Ok(descriptor),
            Ok(ExportedMemory::Fabric(_)) => Err(no_dma_buf()),
            Err(error) if matches!(error.code, Code::NOT_SUPPORTED | Code::NOT_FOUND) => Err(no_dma_buf()),
            Err(error) => Err(Error::of_driver(error, bytes)),
        }
    }
}

#[cold]
fn no_dma_buf() -> Error {
    Error::unsupported(
        "memory as a dma-buf",
        "the device or its driver has none",
        "load the open kernel modules, or register the address itself",
    )
}
