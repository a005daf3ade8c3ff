//! `TransferScope`: copies that borrow, and are over before the borrows are.

#![expect(unsafe_code, reason = "submits copies of borrowed memory, and waits before the borrows end")]

use core::cell::RefCell;
use core::fmt;
use core::marker::PhantomData;

use super::courier::Courier;
use super::device_copy::DeviceCopy;
use super::device_slice::DeviceSlice;
use super::device_slice_mut::DeviceSliceMut;
use super::settle::{refused_or_settled, settle, settle_event};
use crate::error::Error;
use crate::stream::{Event, Stream, StreamRef};

/// Copies between host and device on one stream that borrow memory of the host: made by [`Stream::scope`].
///
/// As with [`std::thread::scope`], what is borrowed comes from outside of the scope and stays borrowed until the
/// scope has ended; touching it in between is an error of the compiler:
///
/// ```compile_fail,E0502
/// use alluvion::{DeviceVec, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let mut vector = DeviceVec::<u8>::uninit(3, &stream)?;
/// let mut host = vec![1, 2, 3];
/// stream.scope(|scope| {
///     scope.upload(&mut vector, &host)?;
///     host[0] = 9;
///     Ok(())
/// })?;
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct TransferScope<'scope, 'env: 'scope> {
    stream: StreamRef<'env>,
    /// The end of the last copy, and with it of all before; and the stream that they are on.
    last: RefCell<Option<(Event, StreamRef<'env>)>>,
    /// Invariant, as in the standard library: a borrow that is too short cannot pass for one that is long enough.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope, 'env> TransferScope<'scope, 'env> {
    /// Copies elements from the host. Does not wait; the elements stay borrowed until the scope has ended.
    ///
    /// # Errors
    ///
    /// As [`DeviceSliceMut::copy_from_slice`].
    pub fn upload<'d, T: DeviceCopy>(
        &self,
        to: impl Into<DeviceSliceMut<'d, T>>,
        from: &'scope [T],
    ) -> Result<(), Error> {
        let mut to = to.into();
        let courier = to.as_slice().admit_transfer(from.len(), self.stream)?;
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: the elements are borrowed until the scope has ended, and it ends when the copies have run: see
        // `Finish`.
        let submitted = unsafe { to.submit_upload(from.as_ptr(), courier) };
        refused_or_settled(submitted, courier.stream())?;
        self.note(courier)
    }

    /// Copies elements to the host. Does not wait; the room stays borrowed until the scope has ended, and has the
    /// elements then.
    ///
    /// # Errors
    ///
    /// As [`DeviceSlice::copy_to_slice`].
    pub fn download<'d, T: DeviceCopy>(
        &self,
        from: impl Into<DeviceSlice<'d, T>>,
        into: &'scope mut [T],
    ) -> Result<(), Error> {
        let from = from.into();
        let courier = from.admit_transfer(into.len(), self.stream)?;
        if into.is_empty() {
            return Ok(());
        }
        // SAFETY: the room is borrowed alone until the scope has ended, and it ends when the copies have run: see
        // `Finish`.
        let submitted = unsafe { from.submit_download(into.as_mut_ptr(), courier) };
        refused_or_settled(submitted, courier.stream())?;
        self.note(courier)
    }

    /// The stream that the copies are on.
    #[must_use]
    pub fn stream(&self) -> StreamRef<'_> {
        self.stream
    }

    /// Marks the end of the copies so far. An event rather than the stream itself: a capture that is begun later
    /// cannot stand in the way of waiting for it.
    fn note(&self, courier: Courier<'env>) -> Result<(), Error> {
        match courier.record() {
            Ok(event) => {
                *self.last.borrow_mut() = Some((event, courier.stream()));
                Ok(())
            }
            Err(_) => settle(courier.stream()),
        }
    }
}

/// Waits for the copies of a scope, however the scope ends. It is a local of `StreamRef::scope`, so it cannot be
/// leaked: either that function goes on, or it unwinds, and both pass here before the borrows end. What never returns
/// never ends a borrow: a thread whose copies nobody answers for any more stays here, and at exit it ends with the process.
struct Finish<'a, 'env> {
    last: &'a RefCell<Option<(Event, StreamRef<'env>)>>,
}

impl Finish<'_, '_> {
    fn finish(&self) -> Result<(), Error> {
        let last = self.last.borrow_mut().take();
        last.map_or(Ok(()), |(event, stream)| settle_event(&event, stream))
    }
}

impl Drop for Finish<'_, '_> {
    fn drop(&mut self) {
        // With an error or without, nothing touches what is borrowed any more: see `settle`.
        let _ = self.finish();
    }
}

impl Stream {
    /// As [`StreamRef::scope`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn scope<'env, X>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope TransferScope<'scope, 'env>) -> Result<X, Error>,
    ) -> Result<X, Error> {
        self.as_ref().scope(body)
    }
}

impl<'env> StreamRef<'env> {
    /// Runs `body`, which may start copies that borrow memory of the host, and waits for these copies, also when
    /// `body` panics.
    ///
    /// ```
    /// use alluvion::{DeviceVec, Sim};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let (mut first, mut second) = (
    ///     DeviceVec::<u8>::uninit(3, &stream)?,
    ///     DeviceVec::<u8>::uninit(3, &stream)?,
    /// );
    /// let (host, mut back) = (vec![1, 2, 3], [0; 3]);
    /// stream.scope(|scope| {
    ///     scope.upload(&mut first, &host)?;
    ///     second.copy_from(first.as_slice(), scope.stream())?;
    ///     scope.download(&second, &mut back)
    /// })?;
    /// assert_eq!(back, [1, 2, 3]);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of `body`, and then those of the stream's work.
    pub fn scope<X>(
        self,
        body: impl for<'scope> FnOnce(&'scope TransferScope<'scope, 'env>) -> Result<X, Error>,
    ) -> Result<X, Error> {
        let scope =
            TransferScope { stream: self, last: RefCell::new(None), scope: PhantomData, env: PhantomData };
        let finish = Finish { last: &scope.last };
        let result = body(&scope);
        let finished = finish.finish();
        result.and_then(|value| finished.map(|()| value))
    }
}

impl fmt::Debug for TransferScope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransferScope({:?})", self.stream)
    }
}
