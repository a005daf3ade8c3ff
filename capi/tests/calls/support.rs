//! A simulated machine, and calls that every test makes.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;

use calluvion::*;

/// A simulated machine of its own for each test, named by handles alone: the chosen machine is the whole process's.
pub(crate) struct Sim(pub(crate) *mut MachineHandle);

impl Sim {
    pub(crate) fn new(devices: u32) -> Self {
        Self::with_pools_left_alone(devices, 0)
    }

    /// One that does not look into pools, and so takes nothing from the heap beside their calls.
    #[allow(dead_code, reason = "what calls cost is counted by another test")]
    pub(crate) fn of_costs() -> Self {
        Self::with_pools_left_alone(1, 1)
    }

    fn with_pools_left_alone(devices: u32, leaves_pools_alone: u32) -> Self {
        let options = SimOptions {
            struct_size: size_of::<SimOptions>(),
            devices,
            cuda_version: 0,
            memory_bytes: 0,
            seed: 7,
            leaves_pools_alone,
            reserved: 0,
        };
        let mut machine = null_mut();
        // SAFETY: a whole struct and a place.
        assert_eq!(unsafe { alv_machine_sim(&raw const options, &raw mut machine) }, ALV_OK);
        Self(machine)
    }

    pub(crate) fn try_recipe(&self, recipe: &str, device: i32) -> Result<*mut ResourceHandle, Status> {
        let recipe = CString::new(recipe).expect("no 0 within");
        let mut resource = null_mut();
        // SAFETY: a live machine, a string and a place.
        match unsafe { alv_resource_from_recipe_on(self.0, recipe.as_ptr(), device, &raw mut resource) } {
            ALV_OK => Ok(resource),
            failed => {
                assert!(resource.is_null());
                Err(failed)
            }
        }
    }

    pub(crate) fn recipe(&self, recipe: &str) -> *mut ResourceHandle {
        self.try_recipe(recipe, 0).expect("the recipe is fine")
    }

    /// Another process on the same machine.
    pub(crate) fn process(&self) -> Self {
        let mut machine = null_mut();
        // SAFETY: a live machine and a place.
        assert_eq!(unsafe { alv_sim_process(self.0, &raw mut machine) }, ALV_OK);
        Self(machine)
    }

    pub(crate) fn stream(&self) -> *mut StreamHandle {
        self.stream_of(0)
    }

    pub(crate) fn stream_of(&self, device: i32) -> *mut StreamHandle {
        let mut stream = null_mut();
        // SAFETY: a live machine and a place.
        assert_eq!(unsafe { alv_stream_create_on(self.0, device, &raw mut stream) }, ALV_OK);
        stream
    }

    /// A stream that the library does not know.
    pub(crate) fn foreign_stream(&self) -> CudaStream {
        let mut stream = null_mut();
        // SAFETY: a live machine and a place.
        assert_eq!(unsafe { alv_sim_stream_create(self.0, 0, &raw mut stream) }, ALV_OK);
        stream
    }

    pub(crate) fn fail(&self, call: &CStr, nth: u64, code: i32) {
        // SAFETY: a live machine and a string.
        assert_eq!(unsafe { alv_sim_fail(self.0, call.as_ptr(), nth, code) }, ALV_OK);
    }

    /// Makes the nth coming call fail, whichever it is.
    pub(crate) fn fail_any(&self, nth: u64) {
        // SAFETY: a live machine.
        assert_eq!(unsafe { alv_sim_fail(self.0, std::ptr::null(), nth, 999) }, ALV_OK);
    }

    pub(crate) fn clear_faults(&self) {
        // SAFETY: a live machine.
        assert_eq!(unsafe { alv_sim_clear_faults(self.0) }, ALV_OK);
    }

    pub(crate) fn calls(&self) -> u64 {
        // SAFETY: a live machine.
        unsafe { alv_sim_calls(self.0) }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        let mut mistakes = 0;
        let mut text = String::new();
        // SAFETY: a live machine, a function that fills the text, and a place.
        unsafe {
            let user = (&raw mut text).cast();
            assert_eq!(alv_sim_report(self.0, Some(append), user, &raw mut mistakes), ALV_OK);
            alv_machine_release(self.0);
        }
        if !std::thread::panicking() {
            assert_eq!(mistakes, 0, "{text}");
        }
    }
}

pub(crate) unsafe extern "C" fn append(user: *mut c_void, bytes: *const c_char, n: usize) -> c_int {
    // SAFETY: `user` is the test's string, and `bytes` are `n` bytes.
    let (text, bytes) = unsafe { (&mut *user.cast::<String>(), std::slice::from_raw_parts(bytes.cast(), n)) };
    text.push_str(std::str::from_utf8(bytes).expect("text is UTF-8"));
    0
}

pub(crate) fn message() -> String {
    // SAFETY: never null, and ended by 0.
    unsafe { CStr::from_ptr(alv_last_error_message()) }.to_str().expect("messages are UTF-8").to_owned()
}

pub(crate) fn error() -> ErrorInfo {
    let mut info = ErrorInfo {
        struct_size: size_of::<ErrorInfo>(),
        status: -1,
        cuda_code: -1,
        requested_bytes: 1,
        limit: 1,
        line: 1,
        column: 1,
        call: [1; 48],
        foreign_status: 1,
        reserved: 1,
    };
    // SAFETY: a whole struct.
    assert_eq!(unsafe { alv_last_error(&raw mut info) }, ALV_OK);
    info
}

pub(crate) fn allocate(resource: *const ResourceHandle, bytes: usize, align: usize) -> (Status, *mut c_void) {
    let mut block = std::ptr::dangling_mut::<c_void>();
    // SAFETY: a live resource, the default stream and a place.
    let status = unsafe { alv_allocate_raw(resource, bytes, align, null_mut(), &raw mut block) };
    (status, block)
}

pub(crate) fn free(resource: *const ResourceHandle, block: *mut c_void, bytes: usize, align: usize) {
    // SAFETY: a block of the resource with that size, which nothing uses.
    unsafe { alv_deallocate_raw(resource, block, bytes, align, null_mut()) };
}

pub(crate) fn release(resource: *mut ResourceHandle) {
    // SAFETY: a count that the test holds.
    unsafe { alv_resource_release(resource) };
}

pub(crate) fn counts(resource: *const ResourceHandle) -> StatsCounts {
    let zero = Count { value: 0, peak: 0, total: 0 };
    let mut counts =
        StatsCounts { struct_size: size_of::<StatsCounts>(), bytes: zero, allocations: zero, failures: 0 };
    // SAFETY: a live resource and a whole struct.
    assert_eq!(unsafe { alv_stats(resource, &raw mut counts) }, ALV_OK);
    counts
}
