//! `Imported<T>` and `ImportedMut<T>`: elements of another process.

use core::fmt;
use core::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;

use super::import::Import;
use super::imported_memory::ImportedMemory;
use super::message::Message;
use crate::container::{DeviceCopy, DeviceVec};
use crate::error::Error;
use crate::stream::OnStream;

/// Elements that another process shares, to be read: see [`share`](crate::share).
///
/// It lends out a [`DeviceVec`], whose methods to read it has. Dropped, it waits, on the host, for what it was used for; then the
/// exporter may free the memory.
///
/// An example is at [`Shared`](super::Shared).
///
/// ```compile_fail,E0596
/// use alluvion::share::Imported;
///
/// fn write(numbers: Imported<f32>, stream: &alluvion::Stream) {
///     numbers.fill(0.0, stream).unwrap();
/// }
/// ```
#[must_use = "what is dropped is closed"]
pub struct Imported<T: DeviceCopy> {
    vector: DeviceVec<T, ImportedMemory>,
}

static_assertions::assert_impl_all!(Imported<f32>: Send, Sync);
static_assertions::assert_not_impl_any!(Imported<f32>: Clone, DerefMut);

impl<T: DeviceCopy> Imported<T> {
    pub(super) fn new(vector: DeviceVec<T, ImportedMemory>) -> Self {
        Self { vector }
    }

    /// Opens what a message describes, which came with a descriptor or without: as [`Import::open`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn open<'s>(
        message: &Message,
        descriptor: Option<OwnedFd>,
        stream: impl OnStream<'s>,
    ) -> Result<Self, Error> {
        of(message, descriptor).open(stream)
    }
}

impl<T: DeviceCopy> Deref for Imported<T> {
    type Target = DeviceVec<T, ImportedMemory>;

    fn deref(&self) -> &Self::Target {
        &self.vector
    }
}

impl<T: DeviceCopy> fmt::Debug for Imported<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Imported({:?})", self.vector)
    }
}

/// Elements that another process shares, to be read and written: as [`Imported`].
///
/// It has as many elements as were shared. Who writes when, the processes agree on themselves.
///
/// ```
/// use alluvion::share::{ImportedMut, ShareConfig, Shared};
/// use alluvion::{DeviceVec, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let vector = DeviceVec::from_slice_in(&[1.0, 2.0], &stream, Cuda::new(&sim.device(0)))?;
/// let shared = Shared::with_config(vector, ShareConfig::default().writable(), &stream)?;
///
/// // Another process:
/// let other = sim.process();
/// let its_stream = other.device(0).stream()?;
/// let mut imported = ImportedMut::<f64>::open(shared.message(), None, &its_stream)?;
/// imported.set(1, 7.0, &its_stream)?;
/// drop(imported);
///
/// let vector = shared.end()?;
/// assert_eq!(vector.to_vec(&stream)?, [1.0, 7.0]);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[must_use = "what is dropped is closed"]
pub struct ImportedMut<T: DeviceCopy> {
    vector: DeviceVec<T, ImportedMemory>,
}

static_assertions::assert_impl_all!(ImportedMut<f32>: Send, Sync);
static_assertions::assert_not_impl_any!(ImportedMut<f32>: Clone);

impl<T: DeviceCopy> ImportedMut<T> {
    pub(super) fn new(vector: DeviceVec<T, ImportedMemory>) -> Self {
        Self { vector }
    }

    /// Opens what a message describes, which came with a descriptor or without: as [`Import::open_mut`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn open<'s>(
        message: &Message,
        descriptor: Option<OwnedFd>,
        stream: impl OnStream<'s>,
    ) -> Result<Self, Error> {
        of(message, descriptor).open_mut(stream)
    }
}

fn of(message: &Message, descriptor: Option<OwnedFd>) -> Import<'_> {
    match descriptor {
        Some(descriptor) => Import::new(message).descriptor(descriptor),
        None => Import::new(message),
    }
}

impl<T: DeviceCopy> Deref for ImportedMut<T> {
    type Target = DeviceVec<T, ImportedMemory>;

    fn deref(&self) -> &Self::Target {
        &self.vector
    }
}

impl<T: DeviceCopy> DerefMut for ImportedMut<T> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.vector
    }
}

impl<T: DeviceCopy> fmt::Debug for ImportedMut<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImportedMut({:?})", self.vector)
    }
}
