//! What a message says of the memory that it stands for.

#![expect(unsafe_code, reason = "exports functions, and reads bytes of C")]

use std::ffi::c_void;

use alluvion::Error;
use alluvion::share::Message;

use crate::boundary::{self, null};
use crate::record::{self, Record};
use crate::status::Status;

/// A message has at most so many bytes.
pub const ALV_MESSAGE_BYTES: usize = 512;
/// In `flags`: importers may write.
pub const ALV_MESSAGE_WRITABLE: u32 = 1;
/// In `flags`: a descriptor has to be sent beside the message, over a Unix socket.
pub const ALV_MESSAGE_NEEDS_DESCRIPTOR: u32 = 2;

/// What a message says.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MessageInfo {
    /// `sizeof(alv_message)`.
    pub struct_size: usize,
    /// The bytes that are shared.
    pub bytes: usize,
    /// The bytes that become visible to an importer, at least: all of the allocation, or of the pages, that it lies in.
    pub visible_bytes: usize,
    /// The constants `ALV_MESSAGE_` that hold.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// The number by which every process knows the device.
    pub device_uuid: [u8; 16],
}

// SAFETY: repr(C), a size first, and numbers.
unsafe impl Record for MessageInfo {
    const NAME: &'static str = "out, an alv_message";
}

/// The message in bytes that came from elsewhere.
///
/// # Safety
///
/// `message` is null, or has `length` readable bytes.
pub(super) unsafe fn parse(message: *const c_void, length: usize) -> Result<Message, Error> {
    if message.is_null() {
        return Err(null("message"));
    }
    // More than any message has: nothing of it is read.
    if length > ALV_MESSAGE_BYTES {
        return Err(Error::invalid_argument(
            "length",
            "no message has so many bytes",
            "pass the length that alv_shared_message told",
        ));
    }
    // SAFETY: not null, so `length` bytes are readable, as the caller promises.
    let bytes = unsafe { std::slice::from_raw_parts(message.cast::<u8>(), length) };
    Message::from_bytes(bytes)
}

/// Reads what a message says, and opens nothing. `ALV_MALFORMED` for what is no message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_message_read(
    message: *const c_void,
    length: usize,
    out: *mut MessageInfo,
) -> Status {
    boundary::call(|| {
        // SAFETY: the contract of pointers.
        let message = unsafe { parse(message, length) }?;
        let writable = if message.is_writable() { ALV_MESSAGE_WRITABLE } else { 0 };
        let descriptor = if message.needs_descriptor() { ALV_MESSAGE_NEEDS_DESCRIPTOR } else { 0 };
        let info = MessageInfo {
            struct_size: size_of::<MessageInfo>(),
            bytes: message.bytes(),
            visible_bytes: message.visible_bytes(),
            flags: writable | descriptor,
            reserved: 0,
            device_uuid: message.device_uuid(),
        };
        // SAFETY: the caller's struct, by the contract of pointers.
        unsafe { record::write(out, &info) }
    })
}
