//! A libcuda whose only device is a part of a GPU: of what the whole one can do it lacks some, and says so. Built by the test beside it.
//!
//! `STUB_MACHINE` is `mig` for a slice of a GPU that is partitioned (its own memory and number, no peers, no memory for other processes
//! but pages, which network cards may read if `STUB_RDMA` is set), or `vgpu` for the share of a virtual machine (no pools, no mapping, no managed memory). Memory of the device is memory of
//! the host, and every call has done its work when it returns.

#![allow(non_snake_case)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

const CONTEXT: usize = 0xC0;
const PAGE: usize = 2 << 20;

const INVALID_VALUE: c_uint = 1;
const OUT_OF_MEMORY: c_uint = 2;
const INVALID_CONTEXT: c_uint = 201;
const PEER_ACCESS_UNSUPPORTED: c_uint = 217;
const INVALID_HANDLE: c_uint = 400;
const NOT_SUPPORTED: c_uint = 801;
const CAPTURE_UNSUPPORTED: c_uint = 900;

/// What the device has of everything, in the words of `CUdevice_attribute`.
struct Part {
    name: &'static [u8],
    bytes: usize,
    uuid: &'static [u8; 16],
    has_pools: bool,
    has_pages: bool,
    has_managed: bool,
}

const MIG: Part = Part {
    name: b"NVIDIA H200 MIG 1g.18gb\0",
    bytes: 18 << 30,
    uuid: b"the slice itself",
    has_pools: true,
    has_pages: true,
    has_managed: true,
};

const VGPU: Part = Part {
    name: b"GRID A10-4Q\0",
    bytes: 4 << 30,
    uuid: b"the virtual one.",
    has_pools: false,
    has_pages: false,
    has_managed: false,
};

fn part() -> &'static Part {
    if std::env::var("STUB_MACHINE").is_ok_and(|machine| machine == "mig") { &MIG } else { &VGPU }
}

impl Part {
    fn attribute(&self, number: c_uint) -> Option<c_int> {
        Some(match number {
            // Multiprocessors; memory of the host is mapped; one address space; the compute capability.
            16 => 16,
            19 | 41 => 1,
            75 => 9,
            76 => 0,
            83 | 89 => self.has_managed.into(),
            // Registered memory, at its own address.
            91 | 99 => 1,
            102 => self.has_pages.into(),
            // Pages as descriptors, and neither pools nor events for other processes.
            103 => self.has_pages.into(),
            110 => std::env::var_os("STUB_RDMA").is_some().into(),
            115 => self.has_pools.into(),
            119 | 125 | 128 => 0,
            0..=133 => 0,
            _ => return None,
        })
    }
}

thread_local! {
    static CONTEXTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Memory of the device by its address, and the mapped and reserved ranges.
static MEMORY: Mutex<Option<HashMap<u64, Layout>>> = Mutex::new(None);
static USED: AtomicUsize = AtomicUsize::new(0);
static HANDLES: AtomicUsize = AtomicUsize::new(0x1000);
/// Streams that capture.
static CAPTURING: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn enter() -> c_uint {
    match CONTEXTS.with_borrow(|contexts| contexts.last().copied()) {
        Some(CONTEXT) => 0,
        _ => INVALID_CONTEXT,
    }
}

/// A call of what the device may lack.
fn enter_if(has: bool) -> c_uint {
    match enter() {
        0 if has => 0,
        0 => NOT_SUPPORTED,
        code => code,
    }
}

fn give<T>(code: c_uint, to: *mut T, value: T) -> c_uint {
    if code == 0 {
        unsafe { to.write(value) };
    }
    code
}

/// Whether `CUmemAllocationProp` asks for memory that network cards may read as the device makes it: the byte behind that of the
/// compression.
fn is_for_rdma(properties: *const c_void) -> bool {
    let rdma = unsafe { properties.cast::<u8>().add(25).read() };
    part().attribute(110) == Some(rdma.into())
}

fn new_handle() -> usize {
    HANDLES.fetch_add(1, SeqCst)
}

fn allocate(code: c_uint, to: *mut u64, bytes: usize) -> c_uint {
    if code != 0 {
        return code;
    }
    if bytes == 0 {
        return INVALID_VALUE;
    }
    if bytes > part().bytes - USED.load(SeqCst) {
        return OUT_OF_MEMORY;
    }
    let layout = Layout::from_size_align(bytes, 512).unwrap();
    let address = unsafe { alloc_zeroed(layout) };
    if address.is_null() {
        return OUT_OF_MEMORY;
    }
    USED.fetch_add(bytes, SeqCst);
    MEMORY.lock().unwrap().get_or_insert_default().insert(address as u64, layout);
    give(0, to, address as u64)
}

fn free(code: c_uint, address: u64) -> c_uint {
    if code != 0 {
        return code;
    }
    let Some(layout) = MEMORY.lock().unwrap().get_or_insert_default().remove(&address) else {
        return INVALID_VALUE;
    };
    USED.fetch_sub(layout.size(), SeqCst);
    unsafe { dealloc(address as *mut u8, layout) };
    0
}

fn is_capturing(stream: usize) -> bool {
    CAPTURING.lock().unwrap().contains(&stream)
}

/// Work on a stream: done at once, unless the stream captures.
fn work(stream: usize, run: impl FnOnce()) -> c_uint {
    let code = enter();
    if code == 0 && !is_capturing(stream) {
        run();
    }
    code
}

unsafe extern "C" {
    fn mmap(start: *mut c_void, bytes: usize, protection: c_int, flags: c_int, file: c_int, at: c_long) -> *mut c_void;
    fn mprotect(start: *mut c_void, bytes: usize, protection: c_int) -> c_int;
    fn munmap(start: *mut c_void, bytes: usize) -> c_int;
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int;
    fn ftruncate(file: c_int, bytes: c_long) -> c_int;
    fn dup(file: c_int) -> c_int;
    fn close(file: c_int) -> c_int;
}

const NO_ACCESS: c_int = 0;
const READ_WRITE: c_int = 3;
const SHARED: c_int = 1;
const PRIVATE: c_int = 2;
const FIXED: c_int = 0x10;
const ANONYMOUS: c_int = 0x20;

macro_rules! exports {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $body:block)+) => {
        $(#[unsafe(no_mangle)] unsafe extern "C" fn $name($($argument: $type),*) -> c_uint $body)+
    };
}

macro_rules! are_done {
    ($($name:ident)+) => {
        $(#[unsafe(no_mangle)] extern "C" fn $name() -> c_uint { enter() })+
    };
}

/// What no part of a GPU has, or this one has not.
macro_rules! are_not_supported {
    ($($name:ident)+) => {
        $(#[unsafe(no_mangle)] extern "C" fn $name() -> c_uint { NOT_SUPPORTED })+
    };
}

exports! {
    fn cuDriverGetVersion(version: *mut c_int) { give(0, version, 12080) }
    fn cuInit(_flags: c_uint) { 0 }
    fn cuDeviceGetCount(count: *mut c_int) { give(0, count, 1) }
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) { give(0, device, ordinal) }
    fn cuDeviceGetName(name: *mut u8, _length: c_int, _device: c_int) {
        unsafe { name.copy_from(part().name.as_ptr(), part().name.len()) };
        0
    }
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, _device: c_int) {
        part().attribute(attribute).map_or(INVALID_VALUE, |known| give(0, value, known))
    }
    // The second form says which part it is. The first names the whole GPU.
    fn cuDeviceGetUuid(uuid: *mut [u8; 16], _device: c_int) { give(0, uuid, *b"all of that GPU.") }
    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], _device: c_int) { give(0, uuid, *part().uuid) }
    fn cuDevicePrimaryCtxRetain(context: *mut usize, _device: c_int) { give(0, context, CONTEXT) }
    fn cuCtxGetCurrent(context: *mut usize) {
        give(0, context, CONTEXTS.with_borrow(|contexts| contexts.last().copied().unwrap_or(0)))
    }
    fn cuCtxGetDevice(device: *mut c_int) { give(enter(), device, 0) }
    fn cuCtxPushCurrent_v2(context: usize) {
        CONTEXTS.with_borrow_mut(|contexts| contexts.push(context));
        0
    }
    fn cuCtxPopCurrent_v2(context: *mut usize) {
        let popped = CONTEXTS.with_borrow_mut(Vec::pop);
        popped.map_or(INVALID_CONTEXT, |popped| give(0, context, popped))
    }
    fn cuCtxSetCurrent(context: usize) {
        CONTEXTS.with_borrow_mut(|contexts| {
            contexts.pop();
            contexts.push(context);
        });
        0
    }
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        give(enter(), least, 0);
        give(enter(), greatest, 0)
    }
    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) { give(0, mode, 0) }
    fn cuStreamCreateWithPriority(stream: *mut usize, _flags: c_uint, _priority: c_int) {
        give(enter(), stream, new_handle())
    }
    fn cuStreamIsCapturing(stream: usize, status: *mut c_uint) { give(enter(), status, is_capturing(stream).into()) }
    fn cuStreamBeginCapture_v2(stream: usize, _mode: c_uint) {
        CAPTURING.lock().unwrap().push(stream);
        enter()
    }
    fn cuStreamEndCapture(stream: usize, graph: *mut usize) {
        CAPTURING.lock().unwrap().retain(|capturing| *capturing != stream);
        give(enter(), graph, new_handle())
    }
    fn cuLaunchHostFunc(_stream: usize, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) {
        let data = data as usize;
        // On a thread of its own, as the real one does.
        std::thread::spawn(move || unsafe { function(data as *mut c_void) }).join().expect("it does not unwind");
        enter()
    }
    // An event for other processes is one that this device has not.
    fn cuEventCreate(event: *mut usize, flags: c_uint) { give(enter_if(flags & 4 == 0), event, new_handle()) }
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        give(enter(), free, part().bytes - USED.load(SeqCst));
        give(enter(), total, part().bytes)
    }
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) { allocate(enter(), address, bytes) }
    fn cuMemFree_v2(address: u64) { free(enter(), address) }
    fn cuMemAllocManaged(address: *mut u64, bytes: usize, _flags: c_uint) {
        allocate(enter_if(part().has_managed), address, bytes)
    }
    fn cuMemHostAlloc(pointer: *mut u64, bytes: usize, _flags: c_uint) {
        // Memory of the host is none of the device's.
        let memory = vec![0_u8; bytes + 4096].leak().as_ptr() as u64;
        give(enter(), pointer, memory.next_multiple_of(4096))
    }
    fn cuMemHostGetDevicePointer_v2(address: *mut u64, pointer: u64, _flags: c_uint) { give(enter(), address, pointer) }
    fn cuMemcpy(to: u64, from: u64, bytes: usize) {
        unsafe { (from as *const u8).copy_to(to as *mut u8, bytes) };
        enter()
    }
    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: usize) {
        work(stream, || unsafe { (from as *const u8).copy_to(to as *mut u8, bytes) })
    }
    fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: usize) {
        work(stream, || unsafe { (to as *mut u8).write_bytes(value, count) })
    }
    fn cuMemsetD16Async(to: u64, value: u16, count: usize, stream: usize) {
        work(stream, || (0..count).for_each(|at| unsafe { (to as *mut u16).add(at).write(value) }))
    }
    fn cuMemsetD32Async(to: u64, value: u32, count: usize, stream: usize) {
        work(stream, || (0..count).for_each(|at| unsafe { (to as *mut u32).add(at).write(value) }))
    }
    fn cuMemPrefetchAsync_v2(_address: u64, _bytes: usize, _to: u64, _flags: c_uint, _stream: usize) {
        enter_if(part().has_managed)
    }

    fn cuMemPoolCreate(pool: *mut usize, properties: *const [c_uint; 2]) {
        match enter_if(part().has_pools) {
            // For no other process.
            0 if unsafe { *properties }[1] != 0 => INVALID_VALUE,
            code => give(code, pool, new_handle()),
        }
    }
    fn cuMemPoolDestroy(_pool: usize) { enter_if(part().has_pools) }
    fn cuMemPoolTrimTo(_pool: usize, _bytes: usize) { enter_if(part().has_pools) }
    fn cuMemPoolGetAttribute(_pool: usize, _attribute: c_uint, value: *mut c_int) {
        give(enter_if(part().has_pools), value, 0)
    }
    fn cuMemPoolSetAttribute(_pool: usize, _attribute: c_uint, _value: *const c_void) { enter_if(part().has_pools) }
    fn cuDeviceGetDefaultMemPool(pool: *mut usize, _device: c_int) { give(enter_if(part().has_pools), pool, 0x900) }
    fn cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, _pool: usize, stream: usize) {
        // What a graph allocates has an address, and no memory while nobody launches it.
        if is_capturing(stream) {
            return give(enter_if(part().has_pools), address, 0x1_0000);
        }
        allocate(enter_if(part().has_pools), address, bytes)
    }
    fn cuMemFreeAsync(address: u64, stream: usize) {
        if is_capturing(stream) {
            return enter_if(part().has_pools);
        }
        free(enter_if(part().has_pools), address)
    }

    fn cuMemGetAllocationGranularity(bytes: *mut usize, properties: *const c_void, _option: c_uint) {
        if is_for_rdma(properties) { give(enter_if(part().has_pages), bytes, PAGE) } else { INVALID_VALUE }
    }
    fn cuMemAddressReserve(address: *mut u64, bytes: usize, align: usize, _wish: u64, _flags: u64) {
        let code = enter_if(part().has_pages);
        if code != 0 {
            return code;
        }
        let align = align.max(PAGE);
        let start = unsafe { mmap(std::ptr::null_mut(), bytes + align, NO_ACCESS, PRIVATE | ANONYMOUS, -1, 0) };
        // What lies before and behind stays reserved for good: of addresses there are enough.
        give(if start as isize == -1 { OUT_OF_MEMORY } else { 0 }, address, (start as u64).next_multiple_of(align as u64))
    }
    fn cuMemAddressFree(address: u64, bytes: usize) {
        unsafe { munmap(address as *mut c_void, bytes) };
        enter_if(part().has_pages)
    }
    fn cuMemCreate(memory: *mut u64, bytes: usize, properties: *const [c_uint; 2], _flags: u64) {
        match enter_if(part().has_pages) {
            0 if bytes > part().bytes - USED.load(SeqCst) => OUT_OF_MEMORY,
            0 if !is_for_rdma(properties.cast()) => INVALID_VALUE,
            // As descriptors, and as nothing else.
            0 if unsafe { *properties }[1] > 1 => INVALID_VALUE,
            0 => {
                let file = unsafe { memfd_create(c"pages".as_ptr(), 1) };
                unsafe { ftruncate(file, bytes as c_long) };
                give(0, memory, file as u64)
            }
            code => code,
        }
    }
    fn cuMemRelease(memory: u64) {
        unsafe { close(memory as c_int) };
        enter_if(part().has_pages)
    }
    fn cuMemExportToShareableHandle(handle: *mut c_int, memory: u64, handle_type: c_uint, _flags: u64) {
        match enter_if(part().has_pages) {
            0 if handle_type != 1 => INVALID_VALUE,
            code => give(code, handle, unsafe { dup(memory as c_int) }),
        }
    }
    fn cuMemImportFromShareableHandle(memory: *mut u64, handle: usize, handle_type: c_uint) {
        match enter_if(part().has_pages) {
            0 if handle_type != 1 => INVALID_VALUE,
            code => give(code, memory, unsafe { dup(handle as c_int) } as u64),
        }
    }
    fn cuMemMap(address: u64, bytes: usize, _offset: usize, memory: u64, _flags: u64) {
        let (start, file) = (address as *mut c_void, memory as c_int);
        let mapped = unsafe { mmap(start, bytes, NO_ACCESS, SHARED | FIXED, file, 0) };
        if mapped == start { enter_if(part().has_pages) } else { INVALID_VALUE }
    }
    fn cuMemUnmap(address: u64, bytes: usize) {
        unsafe { mmap(address as *mut c_void, bytes, NO_ACCESS, PRIVATE | ANONYMOUS | FIXED, -1, 0) };
        enter_if(part().has_pages)
    }
    fn cuMemSetAccess(address: u64, bytes: usize, access: *const [c_uint; 3], _count: usize) {
        let protection = if unsafe { *access }[2] == 3 { READ_WRITE } else { NO_ACCESS };
        unsafe { mprotect(address as *mut c_void, bytes, protection) };
        enter_if(part().has_pages)
    }

    fn cuDeviceCanAccessPeer(can: *mut c_int, _device: c_int, _peer: c_int) { give(0, can, 0) }
    fn cuCtxEnablePeerAccess(_peer: usize, _flags: c_uint) { PEER_ACCESS_UNSUPPORTED }
}

are_done! {
    cuCtxSynchronize
    cuStreamDestroy_v2 cuStreamSynchronize cuStreamQuery cuStreamWaitEvent
    cuEventDestroy_v2 cuEventRecord cuEventQuery cuEventSynchronize
    cuMemFreeHost cuMemHostRegister_v2 cuMemHostUnregister cuGraphDestroy
}

are_not_supported! {
    cuIpcGetMemHandle cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle cuIpcGetEventHandle cuIpcOpenEventHandle
    cuMemPoolExportToShareableHandle cuMemPoolImportFromShareableHandle cuMemPoolExportPointer cuMemPoolImportPointer
    cuMemPoolSetAccess
}
