//! `Shared<C>`: a container that other processes can open.

use core::fmt;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::BorrowedFd;

use super::device_side::has_stopped;
use super::lease;
use super::loan::{Lent, Loan};
use super::message::{Element, Message};
use super::parked::{Parked, Waiting};
use super::share_config::ShareConfig;
use crate::container::owned::Owned;
use crate::container::{DeviceCopy, DeviceVec};
use crate::device::Device;
use crate::error::{Error, Returned};
use crate::joint;
use crate::resource::{DeviceAccessible, Shareable};
use crate::stream::{OnStream, StreamRef};
use crate::sync::nap;

/// A container that other processes can open, until it is [ended](Self::end): see [`share`](crate::share).
///
/// It lends its container out to be read. Dropped, it is not freed while another process has it: it is parked with its device, and
/// freed by a later share, or by [`sweep`](super::sweep).
///
/// ```
/// use alluvion::share::Imported;
/// use alluvion::{DeviceVec, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let vector = DeviceVec::from_slice_in(&[1.0, 2.0], &stream, Cuda::new(&sim.device(0)))?;
/// let shared = vector.share(&stream)?;
///
/// // Another process, to which the message was sent:
/// let other = sim.process();
/// let its_stream = other.device(0).stream()?;
/// let imported = Imported::<f64>::open(shared.message(), None, &its_stream)?;
/// assert_eq!(imported.to_vec(&its_stream)?, [1.0, 2.0]);
///
/// let mut shared = shared.try_end().expect_err("the other process has it");
/// drop(imported);
/// let vector = shared.try_end().expect("nobody has it");
/// # Ok::<(), alluvion::Error>(())
/// ```
#[must_use = "what is dropped is shared no longer"]
pub struct Shared<C: Container> {
    /// Taken by the end, and by the drop.
    parts: Option<Box<Parts<C>>>,
}

struct Parts<C> {
    loan: Loan,
    // Behind the loan: it is freed when that has ended.
    container: C,
}

impl<C: Container> Waiting for Parts<C> {
    fn loan(&mut self) -> &mut Loan {
        &mut self.loan
    }
}

/// A container that can be shared: a [`DeviceVec`] over a resource that is [`Shareable`] and borrows nothing.
pub trait Container: sealed::Container + Send + Sync + 'static {}

mod sealed {
    use crate::container::owned::Owned;
    use crate::resource::DeviceAccessible;
    use crate::share::message::Element;

    #[allow(private_interfaces, reason = "the trait is sealed")]
    pub trait Container {
        type Resource: DeviceAccessible;

        fn owned(&self) -> &Owned<Self::Resource>;

        fn element() -> Element;
    }
}

#[allow(private_interfaces, reason = "the trait is sealed")]
impl<T: DeviceCopy + Send + Sync + 'static, R: Shareable + Send + Sync + 'static> sealed::Container
    for DeviceVec<T, R>
{
    type Resource = R;

    fn owned(&self) -> &Owned<R> {
        self.owned()
    }

    fn element() -> Element {
        Element::of::<T>()
    }
}

impl<T: DeviceCopy + Send + Sync + 'static, R: Shareable + Send + Sync + 'static> Container
    for DeviceVec<T, R>
{
}

impl<T: DeviceCopy, R: DeviceAccessible> DeviceVec<T, R> {
    /// Shares the vector with other processes, to be read: as [`Shared::new`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn share<'s>(self, stream: impl OnStream<'s>) -> Result<Shared<Self>, Returned<Self>>
    where
        T: Send + Sync + 'static,
        R: Shareable + Send + Sync + 'static,
    {
        Shared::new(self, stream)
    }
}

impl<C: Container> Shared<C> {
    /// Shares a container with other processes, to be read. What importers do follows all that was done with it until now: by an
    /// event that is recorded on `stream`, or, where the driver gives none that processes share, by a wait of the host.
    ///
    /// # Errors
    ///
    /// The container itself, as it was: `Unsupported` with the reason if its memory cannot be shared, as
    /// [`Resource::export`](crate::Resource::export) says; `Capture` if the stream captures; `DeviceMismatch` for a stream of another
    /// device; `Unwritable` if there is no room for the lease; as the driver says.
    pub fn new<'s>(container: C, stream: impl OnStream<'s>) -> Result<Self, Returned<C>> {
        Self::with_config(container, ShareConfig::default(), stream)
    }

    /// As [`new`](Self::new), as `config` says.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn with_config<'s>(
        container: C,
        config: ShareConfig,
        stream: impl OnStream<'s>,
    ) -> Result<Self, Returned<C>> {
        match begin(container.owned(), C::element(), config, stream.stream_ref()) {
            Ok(loan) => Ok(Self { parts: Some(Box::new(Parts { loan, container })) }),
            Err(error) => Err(Returned::new(container, error)),
        }
    }

    fn parts(&self) -> &Parts<C> {
        match &self.parts {
            Some(parts) => parts,
            // Only what consumes the value takes them.
            None => unreachable!("a container that is shared is there"),
        }
    }

    /// What other processes open it by.
    #[must_use]
    pub fn message(&self) -> &Message {
        self.parts().loan.message()
    }

    /// What has to be sent beside the message, over a Unix socket, if it [needs one](Message::needs_descriptor). Each copy of it keeps the
    /// memory alive.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.parts().loan.descriptor()
    }

    /// The number of processes that have it open.
    ///
    /// # Errors
    ///
    /// `InUse` if somebody has removed the lease's file, so that nobody knows; `Unwritable`; `ShutDown` in a child of a fork.
    pub fn importers(&self) -> Result<usize, Error> {
        self.parts().loan.importers()
    }

    /// Takes the container back, if no process has it open. From then on none can open it.
    ///
    /// # Errors
    ///
    /// The value itself, while a process has it, or where nobody knows: [`importers`](Self::importers) has the error.
    pub fn try_end(mut self) -> Result<C, Self> {
        let Some(mut parts) = self.parts.take() else { return Err(self) };
        if let Ok(true) = parts.loan.try_end() {
            return Ok(parts.container);
        }
        self.parts = Some(parts);
        Err(self)
    }

    /// Waits until no process has it open, and takes the container back.
    ///
    /// A process that has died has it no more; one that lives has it until it drops it. If that is never, this never returns: a
    /// program that wants to give up calls [`try_end`](Self::try_end) as often as it likes.
    ///
    /// # Errors
    ///
    /// The value itself, with why nobody knows who has it: as [`importers`](Self::importers).
    pub fn end(mut self) -> Result<C, Returned<Self>> {
        loop {
            self = match self.try_end() {
                Ok(container) => return Ok(container),
                Err(shared) => shared,
            };
            if let Err(error) = self.importers() {
                return Err(Returned::new(self, error));
            }
            nap();
        }
    }
}

fn begin<R: DeviceAccessible>(
    owned: &Owned<R>,
    element: Element,
    config: ShareConfig,
    stream: StreamRef<'_>,
) -> Result<Loan, Error> {
    owned.block().device().require(stream.device())?;
    clear_up(&config, stream.device());
    let lent = Lent { export: owned.export()?, bytes: owned.block().len(), element };
    owned.behind_all_uses(stream, || Loan::begin(lent, config, stream))
}

/// Removes what others have left, and frees what was parked.
pub(super) fn clear_up(config: &ShareConfig, device: &Device) {
    static IS_SWEPT: AtomicBool = AtomicBool::new(false);
    // Once a process: it looks at every file that there is. Relaxed: nothing follows from it, and nobody waits for it; in a child of a
    // fork that came meanwhile nobody would end.
    if config.directory.as_os_str() == joint::DIRECTORY && !IS_SWEPT.swap(true, Ordering::Relaxed) {
        lease::sweep(&config.directory);
    }
    Parked::of(device).sweep_a_few();
}

impl<C: Container> Deref for Shared<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.parts().container
    }
}

impl<C: Container> Drop for Shared<C> {
    fn drop(&mut self) {
        let Some(mut parts) = self.parts.take() else { return };
        if parts.loan.is_forked_child() || matches!(parts.loan.try_end(), Ok(true)) {
            return;
        }
        let device = parts.loan.device().clone();
        // The memory has gone with the device's contents, as far as nobody has it open: there is nothing to wait for.
        if !has_stopped(&device) {
            Parked::of(&device).park(parts);
        }
    }
}

impl<C: Container> fmt::Debug for Shared<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({:?})", self.message())
    }
}
