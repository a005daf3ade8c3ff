//! The host's own memory, as the device uses it.

#![expect(unsafe_code, reason = "calls the driver")]

use core::ptr::NonNull;
use std::alloc::{self, Layout};

use alluvion::Device;
use alluvion::driver::PinnedFlags;
use alluvion::source::System;

use super::{BYTES, PATTERN, Patient, WRONG, round_trip};
use crate::doctor::finding::Trouble;
use crate::doctor::undo::Undo;

pub(super) fn fill_pageable(device: &Device) -> Result<String, Trouble> {
    round_trip(device, System::new(device)?)?;
    Ok("64 KiB of ordinary memory written by the device".to_owned())
}

/// As long as the largest page that a host has by default.
const ALIGN: usize = 64 << 10;
const _: () = assert!(BYTES.is_multiple_of(ALIGN));

/// Whole pages of the process, of zeros.
struct Pages(NonNull<u8>);

impl Pages {
    fn layout() -> Option<Layout> {
        Layout::from_size_align(BYTES, ALIGN).ok()
    }

    fn new() -> Option<Self> {
        // SAFETY: the layout is not empty.
        NonNull::new(unsafe { alloc::alloc_zeroed(Self::layout()?) }).map(Self)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout() {
            // SAFETY: they were allocated with this layout.
            unsafe { alloc::dealloc(self.0.as_ptr(), layout) };
        }
    }
}

/// Registers pages of the process, has the device write to them, and takes them out again.
pub(super) fn register(device: &Device) -> Result<String, Trouble> {
    let Patient { driver, ordinal } = Patient::of(device);
    let stream = device.stream()?;
    let pages = Pages::new().ok_or(Trouble::Wrong("the host has no memory"))?;
    let start = pages.0;
    start.as_ptr().expose_provenance();
    // SAFETY: they are whole pages, and stay where they are until they are taken out; or for ever, if they cannot be.
    unsafe { driver.register_host(ordinal, start, BYTES, PinnedFlags::default()) }?;
    // Whatever happens: pages that the device can reach must not become somebody else's.
    let pages = core::mem::ManuallyDrop::new(pages);
    let registered = Undo::new(|| {
        // Where there is no waiting, the context is lost and nothing runs.
        let _ = stream.synchronize();
        // SAFETY: they were registered above, and the only work that touches them was on the stream.
        unsafe { driver.unregister_host(ordinal, start) }?;
        drop(core::mem::ManuallyDrop::into_inner(pages));
        Ok(())
    });
    let address = start.as_ptr().addr() as u64;
    // SAFETY: the pages stay registered until the stream has been waited for, and nobody else uses them.
    unsafe { driver.fill_async(ordinal, address, Patient::pattern(), BYTES, stream.as_ref().raw()) }?;
    stream.synchronize()?;
    let is_right = (0..BYTES).step_by(509).all(|offset| {
        // SAFETY: the offset is within the pages.
        let at = unsafe { start.as_ptr().add(offset) };
        // SAFETY: the pages hold zeros or what the device wrote, and its work on them is over.
        let byte = unsafe { at.read_volatile() };
        byte == PATTERN
    });
    registered.now()?;
    if is_right { Ok("64 KiB pinned, written by the device, and let go".to_owned()) } else { Err(WRONG) }
}
