//! `Handle`: what a compiled door holds of a stack.

#![expect(unsafe_code, reason = "turns pointers into counts and back")]

use core::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use alluvion::driver::RawStream;
use alluvion::error::freeing;
use alluvion::{AnyResource, Device, Error, Stream};

use super::failure::null;
use super::unattached::unattached;

/// A stack, which a door has counted pointers to.
pub(super) struct Handle {
    resource: AnyResource,
    /// That of the stack, at hand.
    device: Device,
    /// How many frees through this handle a layer has refused.
    refused: AtomicU64,
    /// The streams that are never destroyed, which are registered while they are here.
    streams: Mutex<Vec<Stream>>,
}

impl Handle {
    /// A new handle, with one count that is the caller's.
    pub(super) fn give(resource: AnyResource) -> NonNull<Self> {
        let device = resource.device().clone();
        let handle =
            Arc::new(Self { resource, device, refused: AtomicU64::new(0), streams: Mutex::default() });
        // SAFETY: the pointer of an `Arc` is not null.
        unsafe { NonNull::new_unchecked(Arc::into_raw(handle).cast_mut()) }
    }

    /// What a handle points to, for one call.
    ///
    /// # Safety
    ///
    /// `handle` is null, or has a count that is not released during the call.
    #[inline]
    pub(super) unsafe fn lend<'a>(handle: *const Self) -> Result<&'a Self, Error> {
        // SAFETY: null, or it has a count, as the caller promises.
        unsafe { handle.as_ref() }.ok_or_else(|| null("handle"))
    }

    /// One more count; nothing for null.
    ///
    /// # Safety
    ///
    /// As [`lend`](Self::lend).
    pub(super) unsafe fn retain(handle: *const Self) {
        if !handle.is_null() {
            // SAFETY: it came from `Arc::into_raw` in `give`, and has a count.
            unsafe { Arc::increment_strong_count(handle) };
        }
    }

    /// Takes one count; nothing for null. The last one drops the handle, and the stack if nothing else has it.
    ///
    /// # Safety
    ///
    /// `handle` is null, or has a count, which is the caller's and is given up.
    pub(super) unsafe fn release(handle: *const Self) {
        if handle.is_null() {
            return;
        }
        // SAFETY: it came from `Arc::into_raw` in `give`; the count is the caller's, who gives it up.
        let handle = unsafe { Arc::from_raw(handle) };
        if Arc::strong_count(&handle) == 1 && !AnyResource::is_shared(&handle.resource) {
            // The stack goes, and may wait.
            unattached(|| drop(handle));
        }
    }

    #[inline]
    pub(super) fn resource(&self) -> &AnyResource {
        &self.resource
    }

    /// The device that the memory belongs to.
    #[inline]
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// How many frees through this handle a layer has refused.
    pub(super) fn refused(&self) -> u64 {
        // Relaxed, here and below: a figure, which orders nothing.
        self.refused.load(Ordering::Relaxed)
    }

    /// Has a bare stream known without a question to the driver, from now on.
    ///
    /// # Safety
    ///
    /// `raw` is a stream of the device, or names a default stream, and is not destroyed before the process ends.
    pub(super) unsafe fn keep_stream(&self, raw: RawStream) -> Result<(), Error> {
        if raw.is_default() || raw == RawStream::PER_THREAD {
            return Ok(());
        }
        // SAFETY: the stream is never destroyed, as the caller promises, and it is no default stream.
        let stream = unsafe { Stream::from_owner(&self.device, raw, Arc::new(())) }?;
        self.device.raw_streams().register(&stream);
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        Ok(())
    }

    /// Frees a block of the stack by `free`; an error says why a layer has refused it, and left it alone.
    pub(super) fn freeing(&self, free: impl FnOnce()) -> Result<(), Error> {
        freeing(free).inspect_err(|refused| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            // Where a function of the program's frees within the free of a stack over it, the block of that one is refused, too.
            // SAFETY: a free of such a stack is under way then, and what was refused here is its block.
            unsafe { refused.clone().tell_who_frees() };
        })
    }
}
