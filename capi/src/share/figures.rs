//! What a device has open of others, and what of its own waits for others.

#![expect(unsafe_code, reason = "exports functions")]

use alluvion::share;

use crate::boundary;
use crate::machine::{self, MachineHandle};
use crate::record::{self, Record};
use crate::status::Status;

/// What a device has open of other processes, and what of its own was parked and waits for others.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ShareFigures {
    /// `sizeof(alv_sharing)`.
    pub struct_size: usize,
    /// What is imported.
    pub imports: usize,
    /// Its bytes.
    pub imported_bytes: usize,
    /// The blocks that were parked while other processes had them.
    pub parked: usize,
    /// Their bytes.
    pub parked_bytes: usize,
}

// SAFETY: repr(C), a size first, and numbers.
unsafe impl Record for ShareFigures {
    const NAME: &'static str = "out, an alv_sharing";
}

/// What a device has open of other processes, and what of its own waits for others. A null `machine` is the chosen one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sharing_of(
    machine: *const MachineHandle,
    device: i32,
    out: *mut ShareFigures,
) -> Status {
    boundary::call(|| {
        // SAFETY: the contract of pointers.
        let status = share::status(&unsafe { machine::device_on(machine, device) }?);
        let figures = ShareFigures {
            struct_size: size_of::<ShareFigures>(),
            imports: status.imports,
            imported_bytes: status.imported_bytes,
            parked: status.parked,
            parked_bytes: status.parked_bytes,
        };
        // SAFETY: the caller's struct, by the contract of pointers.
        unsafe { record::write(out, &figures) }
    })
}

/// Frees the blocks that were parked and that no process has any more. `freed`, which may be null, gets how many they were. A null
/// `machine` is the chosen one. Every share looks after a few of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sharing_sweep(
    machine: *const MachineHandle,
    device: i32,
    freed: *mut usize,
) -> Status {
    boundary::call(|| {
        // SAFETY: the contract of pointers.
        let swept = share::sweep(&unsafe { machine::device_on(machine, device) }?);
        if !freed.is_null() {
            // SAFETY: not null, so writable.
            unsafe { freed.write(swept) };
        }
        Ok(())
    })
}
