//! Two processes of a simulated machine, blocks of the one, and calls that tests of sharing make.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use calluvion::*;

use crate::support::*;

/// A process that shares, another one, and a stream and a resource for copies in each.
pub(crate) struct Pair {
    pub(crate) first: Sim,
    pub(crate) second: Sim,
    pub(crate) stream: *mut StreamHandle,
    pub(crate) its_stream: *mut StreamHandle,
    pub(crate) its_memory: *mut ResourceHandle,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let first = Sim::new(1);
        let second = first.process();
        let (stream, its_stream) = (first.stream(), second.stream());
        let its_memory = second.recipe("cuda");
        Self { first, second, stream, its_stream, its_memory }
    }

    /// Opens by a message, and a descriptor or -1.
    pub(crate) fn open(
        &self,
        message: &[u8],
        descriptor: i32,
        flags: u32,
    ) -> Result<*mut ImportedHandle, Status> {
        self.open_in(message, descriptor, flags, None)
    }

    pub(crate) fn open_in(
        &self,
        message: &[u8],
        descriptor: i32,
        flags: u32,
        directory: Option<&CStr>,
    ) -> Result<*mut ImportedHandle, Status> {
        let options = OpenOptions {
            struct_size: size_of::<OpenOptions>(),
            flags,
            reserved: 0,
            directory: directory.map_or(null(), CStr::as_ptr),
        };
        let mut imported = null_mut();
        let (bytes, length) = (message.as_ptr().cast(), message.len());
        // SAFETY: a live stream, the message's bytes, a whole struct and a place.
        let status = unsafe {
            alv_open_shared_on(
                self.its_stream,
                bytes,
                length,
                descriptor,
                &raw const options,
                &raw mut imported,
            )
        };
        if status == ALV_OK { Ok(imported) } else { Err(nothing(status, imported)) }
    }

    pub(crate) fn its_figures(&self) -> (usize, usize) {
        let figures = figures(&self.second);
        (figures.imports, figures.imported_bytes)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: counts that the test holds.
        unsafe {
            alv_stream_release(self.stream);
            alv_stream_release(self.its_stream);
        }
        release(self.its_memory);
    }
}

/// A failed call has given nothing.
pub(crate) fn nothing<T>(status: Status, given: *mut T) -> Status {
    assert!(given.is_null());
    status
}

pub(crate) fn options(flags: u32) -> ShareOptions {
    ShareOptions { struct_size: size_of::<ShareOptions>(), flags, reserved: 0, directory: null() }
}

/// A block of a resource, whose bytes are all `value`.
pub(crate) struct Filled {
    pub(crate) resource: *mut ResourceHandle,
    pub(crate) block: *mut c_void,
    pub(crate) bytes: usize,
}

impl Filled {
    pub(crate) fn new(pair: &Pair, recipe: &str, bytes: usize, value: u8) -> Self {
        let resource = pair.first.recipe(recipe);
        let mut block = null_mut();
        // SAFETY: live handles, a place, and a block of that size.
        unsafe {
            assert_eq!(alv_allocate_on(resource, bytes, 0, pair.stream, &raw mut block), ALV_OK);
            let stream = alv_stream_handle(pair.stream);
            assert_eq!(alv_fill_raw(resource, block, value, bytes, stream), ALV_OK);
        }
        Self { resource, block, bytes }
    }

    pub(crate) fn try_share(&self, pair: &Pair, options: &ShareOptions) -> Result<*mut SharedHandle, Status> {
        let mut shared = null_mut();
        // SAFETY: a live block of the resource with that size, which the test frees after the end; a whole struct and a place.
        let status = unsafe {
            alv_share_on(self.resource, self.block, self.bytes, 0, options, pair.stream, &raw mut shared)
        };
        if status == ALV_OK { Ok(shared) } else { Err(nothing(status, shared)) }
    }

    pub(crate) fn share(&self, pair: &Pair, flags: u32) -> *mut SharedHandle {
        self.try_share(pair, &options(flags)).unwrap_or_else(|status| panic!("{status}: {}", message()))
    }

    pub(crate) fn bytes(&self, pair: &Pair) -> Vec<u8> {
        // SAFETY: a live stream.
        copied(self.resource, self.block, self.bytes, unsafe { alv_stream_handle(pair.stream) })
    }

    pub(crate) fn free(self, pair: &Pair) {
        // SAFETY: a block of the resource with that size, which nobody has any more.
        unsafe { alv_deallocate_on(self.resource, self.block, self.bytes, 0, pair.stream) };
        release(self.resource);
    }
}

pub(crate) fn copied(
    resource: *mut ResourceHandle,
    block: *mut c_void,
    bytes: usize,
    stream: CudaStream,
) -> Vec<u8> {
    let mut out = vec![0; bytes];
    // SAFETY: live handles, a block and a place with as many bytes.
    unsafe {
        assert_eq!(alv_copy_raw(resource, out.as_mut_ptr().cast(), block, bytes, stream), ALV_OK);
        assert_eq!(alv_synchronize_raw(resource, stream), ALV_OK);
    }
    out
}

pub(crate) fn sent(shared: *const SharedHandle) -> Vec<u8> {
    let (mut bytes, mut needed) = (vec![0; ALV_MESSAGE_BYTES], 0);
    // SAFETY: a live handle, a buffer with as much room, and a place.
    let status =
        unsafe { alv_shared_message(shared, bytes.as_mut_ptr().cast(), bytes.len(), &raw mut needed) };
    assert_eq!(status, ALV_OK);
    bytes.truncate(needed);
    bytes
}

pub(crate) fn range(imported: *const ImportedHandle) -> ImportedRange {
    let mut range = ImportedRange {
        struct_size: size_of::<ImportedRange>(),
        data: null_mut(),
        bytes: 0,
        visible_bytes: 0,
        device: -1,
        flags: 7,
    };
    // SAFETY: a live handle and a whole struct.
    assert_eq!(unsafe { alv_imported_range(imported, &raw mut range) }, ALV_OK);
    range
}

pub(crate) fn figures(sim: &Sim) -> ShareFigures {
    let mut figures = ShareFigures {
        struct_size: size_of::<ShareFigures>(),
        imports: 7,
        imported_bytes: 7,
        parked: 7,
        parked_bytes: 7,
    };
    // SAFETY: a live machine and a whole struct.
    assert_eq!(unsafe { alv_sharing_of(sim.0, 0, &raw mut figures) }, ALV_OK);
    figures
}

pub(crate) fn sweep(sim: &Sim) -> usize {
    let mut freed = 7;
    // SAFETY: a live machine and a place.
    assert_eq!(unsafe { alv_sharing_sweep(sim.0, 0, &raw mut freed) }, ALV_OK);
    freed
}

pub(crate) fn importers(shared: *const SharedHandle) -> usize {
    let mut count = 7;
    // SAFETY: a live handle and a place.
    assert_eq!(unsafe { alv_shared_importers(shared, &raw mut count) }, ALV_OK);
    count
}

pub(crate) fn end(shared: *const SharedHandle, timeout_ms: i64) -> Status {
    // SAFETY: a live handle.
    unsafe { alv_shared_end(shared, timeout_ms) }
}

pub(crate) fn drop_shared(shared: *mut SharedHandle) {
    // SAFETY: a count that the test holds.
    unsafe { alv_shared_release(shared) };
}

pub(crate) fn drop_imported(imported: *mut ImportedHandle) {
    // SAFETY: a count that the test holds.
    unsafe { alv_imported_release(imported) };
}

/// Every way that needs no network of devices, and whether a descriptor goes with the message.
pub(crate) const WAYS: [(&str, bool); 5] = [
    ("cuda", false),
    ("stats | tracking | pool | cuda", false),
    ("pool | cuda-async(handles=fd)", true),
    ("mapped(handles=fd)", true),
    ("arena(bytes=8MiB) | mapped(handles=fd)", true),
];

pub(crate) fn descriptor(shared: *const SharedHandle) -> i32 {
    // SAFETY: a live handle.
    unsafe { alv_shared_descriptor(shared) }
}

pub(crate) fn is_over(shared: *const SharedHandle) -> bool {
    // SAFETY: a live handle.
    unsafe { alv_shared_is_over(shared) }
}
