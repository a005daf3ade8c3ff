//! Memory for other processes and devices: each function notes what it was given, and answers with numbers that show it.

use std::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::sync::Mutex;

use super::{LOANS, answer, count, current_device, enter};

/// What the last of these calls was given: numbers, addresses of handles left out; then the device whose context was current.
static GIVEN: Mutex<[u64; 5]> = Mutex::new([0; 5]);

/// Memory that was imported has this number, and its device is the next call's `STUB_HOME`.
const IMPORTED: u64 = 0x1234_5678_9ABC_DEF0;

/// What the test reads.
#[unsafe(no_mangle)]
extern "C" fn stub_given() -> [u64; 5] {
    *GIVEN.lock().unwrap()
}

/// The handles of the interface: 64 bytes, here those from 0 on, with a number in place of the last eight.
#[repr(C)]
pub struct Portable([u8; 64]);

impl Portable {
    fn of(number: u64) -> Self {
        let mut bytes = std::array::from_fn(|at| at as u8);
        bytes[56..].copy_from_slice(&number.to_ne_bytes());
        Self(bytes)
    }

    /// Nothing for bytes that this library did not make.
    fn number(&self) -> Option<u64> {
        let number = u64::from_ne_bytes(self.0[56..].try_into().unwrap());
        (self.0 == Self::of(number).0).then_some(number)
    }
}

/// Notes what was given, and says what the call is to return.
fn note(given: &[u64]) -> c_uint {
    let mut noted = [0; 5];
    noted[..given.len()].copy_from_slice(given);
    noted[4] = current_device().map_or(u64::MAX, |device| device as u64);
    *GIVEN.lock().unwrap() = noted;
    match enter() {
        0 => answer(LOANS).unwrap_or(0),
        code => code,
    }
}

/// Writes the answer of a call that succeeds.
fn give<T>(code: c_uint, to: *mut T, value: T) -> c_uint {
    if code == 0 {
        unsafe { to.write(value) };
    }
    code
}

/// A handle of one of the two types that an exported thing has.
fn export(code: c_uint, to: *mut c_void, handle_type: c_uint, number: u64) -> c_uint {
    match (code, handle_type) {
        (0, 1) => give(0, to.cast::<c_int>(), File::open("/dev/null").unwrap().into_raw_fd()),
        (0, 8) => give(0, to.cast(), Portable::of(number)),
        (0, _) => 1,
        (code, _) => code,
    }
}

/// What identifies a handle: the number of a descriptor, or what is where the pointer points.
fn identity(handle: *mut c_void, handle_type: c_uint) -> u64 {
    match handle_type {
        1 => handle as u64,
        _ => unsafe { &*handle.cast::<Portable>() }.number().unwrap_or(u64::MAX),
    }
}

exports! {
    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) {
        count();
        let code = answer(LOANS).unwrap_or(0);
        give(code, uuid, std::array::from_fn(|at| at as u8 + 16 * device as u8))
    }
    fn cuIpcGetMemHandle(handle: *mut Portable, address: u64) {
        give(note(&[address]), handle, Portable::of(address))
    }
    fn cuIpcOpenMemHandle_v2(address: *mut u64, handle: Portable, flags: c_uint) {
        let Some(number) = handle.number() else { return note(&[0, flags.into()]).max(1) };
        give(note(&[number, flags.into()]), address, number + 1)
    }
    fn cuIpcCloseMemHandle(address: u64) { note(&[address]) }
    fn cuIpcGetEventHandle(handle: *mut Portable, event: usize) {
        give(note(&[event as u64]), handle, Portable::of(event as u64))
    }
    fn cuIpcOpenEventHandle(event: *mut usize, handle: Portable) {
        let Some(number) = handle.number() else { return note(&[]).max(1) };
        give(note(&[number]), event, number as usize + 1)
    }
    fn cuMemPoolExportToShareableHandle(handle: *mut c_void, pool: usize, handle_type: c_uint, flags: u64) {
        export(note(&[pool as u64, handle_type.into(), flags]), handle, handle_type, pool as u64)
    }
    fn cuMemPoolImportFromShareableHandle(pool: *mut usize, handle: *mut c_void, handle_type: c_uint, flags: u64) {
        give(note(&[identity(handle, handle_type), handle_type.into(), flags]), pool, 0x9001)
    }
    fn cuMemPoolExportPointer(handle: *mut Portable, address: u64) {
        give(note(&[address]), handle, Portable::of(address))
    }
    fn cuMemPoolImportPointer(address: *mut u64, pool: usize, handle: *mut Portable) {
        let Some(number) = unsafe { &*handle }.number() else { return note(&[pool as u64]).max(1) };
        give(note(&[pool as u64, number]), address, number + 1)
    }
    fn cuMemPoolSetAccess(pool: usize, access: *const [c_uint; 3], count: usize) {
        let [kind, device, flags] = unsafe { *access };
        assert_eq!((kind, count), (1, 1), "one device");
        note(&[pool as u64, device.into(), flags.into()])
    }
    fn cuMemExportToShareableHandle(handle: *mut c_void, memory: u64, handle_type: c_uint, flags: u64) {
        export(note(&[memory, handle_type.into(), flags]), handle, handle_type, memory)
    }
    fn cuMemImportFromShareableHandle(memory: *mut u64, handle: *mut c_void, handle_type: c_uint) {
        give(note(&[identity(handle, handle_type), handle_type.into()]), memory, IMPORTED)
    }
    // The type of the allocation, its handle types, and its location: a device.
    fn cuMemGetAllocationPropertiesFromHandle(properties: *mut [c_uint; 8], memory: u64) {
        assert_eq!(memory, IMPORTED);
        let home = super::number_from("STUB_HOME", 0);
        give(enter().max(answer(LOANS).unwrap_or(0)), properties, [1, 1, 1, home, 0, 0, 0, 0])
    }
    fn cuMemRelease(memory: u64) { note(&[memory]) }
    // Two devices of three reach each other.
    fn cuDeviceCanAccessPeer(answered: *mut c_int, device: c_int, peer: c_int) {
        count();
        let code = answer(LOANS).unwrap_or(0);
        give(code, answered, (device + peer == 1).into())
    }
    fn cuCtxEnablePeerAccess(peer: usize, flags: c_uint) { note(&[peer as u64, flags.into()]) }
}
