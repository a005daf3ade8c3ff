//! `Transfer<B>`: a copy under way, and the buffer of the host that it needs.

#![expect(unsafe_code, reason = "keeps a buffer from being moved as a value while the device uses it")]

use core::fmt;
use core::mem::MaybeUninit;

use super::courier::Courier;
use super::host_buffer::HostBuffer;
use super::settle::{Settled, try_settle, try_settle_copy, try_settle_event};
use crate::error::{Error, Returned};
use crate::stream::{Event, Stream};

/// A copy between host and device that may still be under way. It owns the buffer of the host until the copy is done.
///
/// [`wait`](Self::wait) gives the buffer back. A transfer that is dropped waits first, and one that is leaked leaks the buffer, as does
/// one of which nobody can say whether it is over, while the process exits or in a fork: in no case is the memory reused while the
/// device reads or writes it. The container is free at once: it knows of the copy.
///
/// It is no future: nothing but a callback of the driver could wake a task, and what wakes a task may run it, in a thread that must
/// not call the driver. An asynchronous program has a thread for blocking calls wait, which a transfer may be sent to:
/// `spawn_blocking(move || transfer.wait())`.
///
/// ```
/// use alluvion::{DeviceVec, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let mut vector = DeviceVec::<u32>::uninit(4, &stream)?;
/// let upload = vector.upload(vec![1, 2, 3, 4], &stream)?;
/// let download = vector.download(vec![0; 4], &stream)?;
/// drop(vector);
/// assert_eq!(download.wait()?, [1, 2, 3, 4]);
/// let reusable: Vec<u32> = upload.wait()?;
/// # assert_eq!(reusable.len(), 4);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[must_use = "dropping a transfer waits for it"]
pub struct Transfer<B: HostBuffer> {
    /// Initialised, until `finish` takes it. Not a plain `B`, because moving a box says that nobody else touches what
    /// is in it, and here the device does.
    host: Option<MaybeUninit<B>>,
    /// What the copy comes before; `None` if it is over.
    done: Option<Event>,
    stream: Stream,
}

static_assertions::assert_impl_all!(Transfer<Vec<u8>>: Send, Sync);

impl<B: HostBuffer> Transfer<B> {
    /// Submits a copy of all elements of `host` with `submit`, if `admit` says how. `submit` gets their address.
    pub(super) fn begin<'s>(
        host: B,
        admit: impl FnOnce(usize) -> Result<Courier<'s>, Error>,
        submit: impl FnOnce(*mut B::Item, Courier<'s>) -> Result<(), Error>,
    ) -> Result<Self, Returned<Option<B>>> {
        let len = host.len();
        let mut host = MaybeUninit::new(host);
        // SAFETY: initialised above. The address is taken where the buffer stays: what is moved from here on is bytes.
        let address = unsafe { host.assume_init_mut() }.as_mut_ptr();
        // Behind the buffer's own code, which may be anybody's and begin a capture.
        let courier = match admit(len) {
            Ok(courier) => courier,
            Err(error) => {
                // SAFETY: initialised above, and nothing has been given its address.
                let host = unsafe { host.assume_init() };
                return Err(Returned::new(Some(host), error));
            }
        };
        let stream = courier.stream();
        let mut transfer = Self { host: Some(host), done: None, stream: stream.to_stream() };
        if len == 0 {
            return Ok(transfer);
        }
        let settled = match submit(address, courier) {
            Ok(()) => match courier.record() {
                Ok(event) => {
                    transfer.done = Some(event);
                    return Ok(transfer);
                }
                // Without an event the transfer is waited for here: slower, and the same.
                Err(_) => try_settle(stream),
            },
            refused => try_settle_copy(refused, stream),
        };
        if let Settled::Over(Ok(())) = settled {
            return Ok(transfer);
        }
        let (host, outcome) = transfer.finish(settled);
        match outcome {
            Err(error) => Err(Returned::new(host, error)),
            // Only `Settled::Over(Ok(()))` finishes so, and that has returned above.
            Ok(()) => unreachable!(),
        }
    }

    /// Waits until the copy is done and gives the buffer back.
    ///
    /// # Errors
    ///
    /// Those of the stream's work. The copy has not run then and will not, because the context is lost, and the buffer is
    /// dropped; or nobody can say whether it runs, and the buffer is leaked.
    pub fn wait(mut self) -> Result<B, Error> {
        let settled = self.settle();
        match self.finish(settled) {
            (_, Err(error)) => Err(error),
            (Some(host), Ok(())) => Ok(host),
            // Only `finish` takes the buffer, and gives it unless it gives an error.
            (None, Ok(())) => unreachable!(),
        }
    }

    /// Returns `true` if the copy is done. Does not wait.
    ///
    /// # Errors
    ///
    /// Those of the stream's work.
    pub fn is_done(&self) -> Result<bool, Error> {
        self.done.as_ref().map_or(Ok(true), Event::is_complete)
    }

    /// The point of the stream that the copy comes before, for other streams to wait for; `None` if it was over at
    /// once.
    #[must_use]
    pub fn event(&self) -> Option<&Event> {
        self.done.as_ref()
    }

    fn settle(&self) -> Settled {
        match &self.done {
            Some(event) => try_settle_event(event, self.stream.as_ref()),
            None => Settled::Over(Ok(())),
        }
    }

    /// The buffer, once nothing touches it any more. Where nobody can say, it is leaked.
    fn finish(&mut self, settled: Settled) -> (Option<B>, Result<(), Error>) {
        match settled {
            Settled::Over(outcome) => (self.take(), outcome),
            Settled::Open(error) => {
                // A `MaybeUninit` that goes does not drop what is in it.
                self.host = None;
                (None, Err(error))
            }
        }
    }

    fn take(&mut self) -> Option<B> {
        // SAFETY: `host` is initialised while it is there, and is taken once. Nothing touches the elements: the
        // callers know.
        self.host.take().map(|host| unsafe { host.assume_init() })
    }
}

impl<B: HostBuffer> Drop for Transfer<B> {
    fn drop(&mut self) {
        if self.host.is_some() {
            let settled = self.settle();
            drop(self.finish(settled));
        }
    }
}

impl<B: HostBuffer> fmt::Debug for Transfer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.done {
            Some(event) => write!(f, "Transfer(until {event:?})"),
            None => f.write_str("Transfer(over)"),
        }
    }
}
