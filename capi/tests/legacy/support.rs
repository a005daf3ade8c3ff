//! A process for each test, a simulated machine for it, and the calls that tests make.

use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::ptr::null_mut;

use calluvion::*;

use crate::rerun;

pub(crate) const MIB: usize = 1 << 20;
/// The memory of each of the two devices.
pub(crate) const DEVICE_BYTES: usize = 1 << 30;

/// What the simulated driver takes at least for a block.
pub(crate) const GRAIN: usize = 512;

pub(crate) const PLAIN: u32 = 0;
pub(crate) const POOL: u32 = 1;
pub(crate) const MANAGED: u32 = 2;
pub(crate) const MANAGED_POOL: u32 = 3;

/// A test that runs in a process of its own, on a machine of its own, which must have seen no mistake and no leak when it ends.
macro_rules! alone {
    ($(#[$attribute:meta])* fn $name:ident($sim:ident) $body:block) => {
        alone! { $(#[$attribute])* with(&[]) fn $name($sim) $body }
    };
    ($(#[$attribute:meta])* with($variables:expr) fn $name:ident($sim:ident) $body:block) => {
        #[test]
        $(#[$attribute])*
        fn $name() {
            // Without the name of the program.
            let name = concat!(module_path!(), "::", stringify!($name)).split_once("::").expect("a module").1;
            crate::support::in_child(name, $variables, |$sim: &crate::support::Sim| $body);
        }
    };
}

pub(crate) fn in_child(name: &str, variables: &[(&str, &OsStr)], body: impl FnOnce(&Sim)) {
    if rerun::is_child(name) {
        let sim = Sim::new();
        body(&sim);
        assert_eq!(finalize(), RmmError::Success);
        sim.end();
        return;
    }
    let ended = rerun::run_child(name, variables);
    assert!(ended.status.success(), "{}\n{}", ended.printed, ended.said);
    assert!(ended.printed.contains("1 passed"), "the child has run nothing: {}", ended.printed);
}

/// A machine with two devices, which is chosen.
pub(crate) struct Sim {
    machine: *mut MachineHandle,
    /// A context was lost: its memory cannot be given back.
    pub(crate) is_lost: Cell<bool>,
}

impl Sim {
    pub(crate) fn new() -> Self {
        let options = SimOptions {
            struct_size: size_of::<SimOptions>(),
            devices: 2,
            cuda_version: 0,
            memory_bytes: DEVICE_BYTES,
            seed: 7,
            leaves_pools_alone: 0,
            reserved: 0,
        };
        let mut machine = null_mut();
        unsafe {
            assert_eq!(alv_machine_sim(&raw const options, &raw mut machine), ALV_OK);
            assert_eq!(alv_set_machine(machine), ALV_OK);
        }
        Self { machine, is_lost: Cell::new(false) }
    }

    pub(crate) fn fail(&self, call: &CStr, nth: u64, code: i32) {
        assert_eq!(unsafe { alv_sim_fail(self.machine, call.as_ptr(), nth, code) }, ALV_OK);
    }

    pub(crate) fn clear_faults(&self) {
        assert_eq!(unsafe { alv_sim_clear_faults(self.machine) }, ALV_OK);
    }

    /// The driver calls that `body` makes.
    pub(crate) fn calls(&self, body: impl FnOnce()) -> u64 {
        let before = unsafe { alv_sim_calls(self.machine) };
        body();
        unsafe { alv_sim_calls(self.machine) - before }
    }

    /// The mistakes and leaks, a line each.
    pub(crate) fn mistakes(&self) -> String {
        let mut text = String::new();
        let user = (&raw mut text).cast();
        assert_eq!(unsafe { alv_sim_report(self.machine, Some(append), user, null_mut()) }, ALV_OK);
        text
    }

    pub(crate) fn end(&self) {
        let mistakes = self.mistakes();
        if !self.is_lost.get() {
            assert_eq!(mistakes, "");
        }
        unsafe {
            assert_eq!(alv_set_machine(null_mut()), ALV_OK);
            alv_machine_release(self.machine);
        }
    }
}

unsafe extern "C" fn append(user: *mut c_void, bytes: *const c_char, n: usize) -> c_int {
    let (text, bytes) = unsafe { (&mut *user.cast::<String>(), std::slice::from_raw_parts(bytes.cast(), n)) };
    text.push_str(std::str::from_utf8(bytes).expect("text is UTF-8"));
    0
}

/// A stream of a device, by its handle.
pub(crate) struct OwnStream(*mut StreamHandle);

impl OwnStream {
    pub(crate) fn new(device: i32) -> Self {
        let mut stream = null_mut();
        assert_eq!(unsafe { alv_stream_create(device, &raw mut stream) }, ALV_OK);
        Self(stream)
    }

    pub(crate) fn raw(&self) -> CudaStream {
        unsafe { alv_stream_handle(self.0) }
    }
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        unsafe { alv_stream_release(self.0) };
    }
}

pub(crate) fn make_current(device: i32) {
    assert_eq!(alv_set_current_device(device), ALV_OK);
}

pub(crate) fn options(allocation_mode: u32, initial_pool_size: usize, has_log: bool) -> RmmOptions {
    RmmOptions { allocation_mode, initial_pool_size, enable_logging: u8::from(has_log) }
}

pub(crate) fn initialize(options: RmmOptions) -> RmmError {
    unsafe { rmmInitialize(&raw const options) }
}

pub(crate) fn initialize_again() -> RmmError {
    unsafe { rmmInitialize(null_mut()) }
}

pub(crate) fn finalize() -> RmmError {
    rmmFinalize()
}

/// Whether it is initialized, and the options in force.
pub(crate) fn is_initialized() -> (bool, RmmOptions) {
    let mut in_force = options(77, 77, false);
    let answer = unsafe { rmmIsInitialized(&raw mut in_force) };
    assert_eq!(answer, unsafe { rmmIsInitialized(null_mut()) });
    (answer, in_force)
}

pub(crate) fn try_alloc_on(bytes: usize, stream: CudaStream) -> (RmmError, *mut c_void) {
    // What a failure must not leave there.
    let mut block = 0x77 as *mut c_void;
    let answer = unsafe { rmmAlloc(&raw mut block, bytes, stream, c"a.c".as_ptr(), 1) };
    (answer, block)
}

pub(crate) fn try_alloc(bytes: usize) -> (RmmError, *mut c_void) {
    try_alloc_on(bytes, null_mut())
}

pub(crate) fn alloc(bytes: usize) -> *mut c_void {
    let (answer, block) = try_alloc(bytes);
    assert_eq!(answer, RmmError::Success, "{}", message());
    assert!(!block.is_null());
    block
}

pub(crate) fn realloc(block: &mut *mut c_void, bytes: usize) -> RmmError {
    unsafe { rmmRealloc(&raw mut *block, bytes, null_mut(), c"b.c".as_ptr(), 2) }
}

pub(crate) fn free_on(block: *mut c_void, stream: CudaStream) -> RmmError {
    unsafe { rmmFree(block, stream, c"c.c".as_ptr(), 3) }
}

pub(crate) fn free(block: *mut c_void) -> RmmError {
    free_on(block, null_mut())
}

/// Free and total bytes.
pub(crate) fn info() -> (usize, usize) {
    let (mut free, mut total) = (0, 0);
    let answer = unsafe { rmmGetInfo(&raw mut free, &raw mut total, null_mut()) };
    assert_eq!(answer, RmmError::Success, "{}", message());
    (free, total)
}

pub(crate) fn offset(address: *mut c_void) -> (RmmError, i64) {
    let mut offset = 77;
    let answer = unsafe { rmmGetAllocationOffset(&raw mut offset, address, null_mut()) };
    (answer, offset)
}

pub(crate) fn message() -> String {
    unsafe { CStr::from_ptr(alv_last_error_message()) }.to_str().expect("messages are UTF-8").to_owned()
}

/// The log, by its size and a buffer of that size.
pub(crate) fn log() -> String {
    let size = rmmLogSize();
    let mut buffer = vec![b'!'; size + 1];
    assert_eq!(unsafe { rmmGetLog(buffer.as_mut_ptr().cast(), size) }, RmmError::Success);
    assert_eq!(buffer.pop(), Some(b'!'), "no 0 is written behind the log");
    String::from_utf8(buffer).expect("the log is UTF-8")
}
