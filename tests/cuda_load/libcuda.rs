//! A libcuda without a GPU, built by the test beside it: it counts, checks contexts and fails on demand.
//!
//! It is no simulator: nothing above the driver's own duties is imitated. `--cfg lacks_required` and
//! `--cfg lacks_optional` leave functions out. `STUB_CODE` is what `cuInit` and `cuDriverGetVersion` return,
//! `STUB_VERSION` the version, `STUB_SPLIT_ADDRESSES` gives pinned memory a second address. `STUB_DEVICES` is how many devices there
//! are. With `STUB_SLOW` there is a device that copies, not before it is waited for or told to; `STUB_HOLD` names the calls that do not
//! return before they are let go.

#![allow(non_snake_case)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// The first device's primary context; those of the others follow.
const PRIMARY: usize = 0xC0;
/// What a stream says that has work to do.
const NOT_READY: c_uint = 600;
/// A stream that captures.
const CAPTURING: usize = 0xCA;
/// A stream that is none.
const NO_STREAM: usize = 0xBAD;

static CALLS: AtomicU64 = AtomicU64::new(0);
static PUSHES: AtomicU64 = AtomicU64::new(0);
static POPS: AtomicU64 = AtomicU64::new(0);
static RETAINS: AtomicU64 = AtomicU64::new(0);
static HOST_FREES: AtomicU64 = AtomicU64::new(0);
static LAST_PREFETCH: AtomicU64 = AtomicU64::new(0);
static LAST_FREED: AtomicU64 = AtomicU64::new(0);

/// The copies that are queued: to, from and bytes.
static QUEUE: Mutex<VecDeque<(u64, u64, usize)>> = Mutex::new(VecDeque::new());
/// What the coming copies, waits, questions for the current context, pushes of one and calls that lend memory return in place of 0. A
/// copy is queued all the same.
static ANSWERS: [Mutex<VecDeque<c_uint>>; 5] = [const { Mutex::new(VecDeque::new()) }; 5];
const COPIES: usize = 0;
const WAITS: usize = 1;
const QUESTIONS: usize = 2;
const ENTRIES: usize = 3;
const LOANS: usize = 4;

static IS_HELD: AtomicBool = AtomicBool::new(false);
static LET_GO: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CONTEXTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// What the tests read: calls, pushes, pops, retains, frees of pinned memory, and which prefetch ran last.
#[unsafe(no_mangle)]
extern "C" fn stub_counters() -> [u64; 6] {
    [&CALLS, &PUSHES, &POPS, &RETAINS, &HOST_FREES, &LAST_PREFETCH].map(|counter| counter.load(SeqCst))
}

/// The address that was freed last in the order of a stream, or 0.
#[unsafe(no_mangle)]
extern "C" fn stub_last_freed() -> u64 {
    LAST_FREED.load(SeqCst)
}

/// Where in memory of the host the oldest copy that is queued reads or writes, and how many bytes: 0 where there is none.
#[unsafe(no_mangle)]
extern "C" fn stub_queued() -> [u64; 2] {
    let queue = QUEUE.lock().unwrap();
    queue.front().map_or([0; 2], |&(to, from, bytes)| [if is_host(to) { to } else { from }, bytes as u64])
}

/// Whether a thread is in a call that does not return.
#[unsafe(no_mangle)]
extern "C" fn stub_is_held() -> bool {
    IS_HELD.load(SeqCst)
}

#[unsafe(no_mangle)]
extern "C" fn stub_let_go() {
    LET_GO.store(true, SeqCst);
}

/// The device runs what is queued. It writes 0xAB to the host.
#[unsafe(no_mangle)]
extern "C" fn stub_run() {
    let queued = std::mem::take(&mut *QUEUE.lock().unwrap());
    for (to, from, bytes) in queued {
        for at in 0..bytes as u64 {
            if is_host(to) {
                let byte = std::ptr::with_exposed_provenance_mut::<u8>((to + at) as usize);
                unsafe { byte.write_volatile(0xAB) };
            } else {
                let byte = std::ptr::with_exposed_provenance::<u8>((from + at) as usize);
                unsafe { byte.read_volatile() };
            }
        }
    }
}

/// Has the next `times` calls of a kind return `code`.
#[unsafe(no_mangle)]
extern "C" fn stub_answer(kind: usize, code: c_uint, times: usize) {
    ANSWERS[kind].lock().unwrap().extend((0..times).map(|_| code));
}

fn is_slow() -> bool {
    std::env::var_os("STUB_SLOW").is_some()
}

/// All memory of the device is where this library says so.
fn is_host(address: u64) -> bool {
    !(0x7000_0000..0x9000_0000).contains(&address)
}

fn answer(kind: usize) -> Option<c_uint> {
    ANSWERS[kind].lock().unwrap().pop_front()
}

/// Returns `true`, when the thread is let go, if `call` is one that does not return before.
fn hold(call: &str) -> bool {
    let holds = std::env::var_os("STUB_HOLD").is_some_and(|held| held == call);
    if holds {
        IS_HELD.store(true, SeqCst);
        while !LET_GO.load(SeqCst) {
            std::thread::yield_now();
        }
    }
    holds
}

/// A wait, for whatever: until the device has run what is queued.
fn wait() -> c_uint {
    let code = enter();
    if !is_slow() || code != 0 {
        return code;
    }
    if let Some(code) = answer(WAITS) {
        return code;
    }
    if hold("wait") {
        // This library has shut down meanwhile, and the device has not.
        return 4;
    }
    stub_run();
    0
}

fn stream_context(stream: usize) -> usize {
    if stream == 0xF5 { 0xF0 } else { PRIMARY }
}

fn number_from(variable: &str, otherwise: u32) -> u32 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// A call that needs no context.
fn count() -> c_uint {
    CALLS.fetch_add(1, SeqCst);
    0
}

/// A call that needs a primary context: 201 without one.
fn enter() -> c_uint {
    CALLS.fetch_add(1, SeqCst);
    if current_device().is_some() { 0 } else { 201 }
}

fn devices() -> usize {
    number_from("STUB_DEVICES", 1) as usize
}

/// The device whose primary context is current.
fn current_device() -> Option<usize> {
    let current = CONTEXTS.with_borrow(|contexts| contexts.last().copied());
    current.and_then(|context| context.checked_sub(PRIMARY)).filter(|device| *device < devices())
}

macro_rules! exports {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),*) $body:block)+) => {
        $($(#[$meta])* #[unsafe(no_mangle)] unsafe extern "C" fn $name($($argument: $type),*) -> c_uint $body)+
    };
}

macro_rules! need_a_context {
    ($($(#[$meta:meta])* $name:ident)+) => {
        $($(#[$meta])* #[unsafe(no_mangle)] extern "C" fn $name() -> c_uint { enter() })+
    };
}

exports! {
    fn cuDriverGetVersion(version: *mut c_int) {
        unsafe { *version = number_from("STUB_VERSION", 12080) as c_int };
        match number_from("STUB_CODE", 0) { 34 => 34, _ => 0 }
    }
    fn cuInit(_flags: c_uint) { number_from("STUB_CODE", 0) }
    fn cuDeviceGetCount(count: *mut c_int) { unsafe { *count = devices() as c_int }; 0 }
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) { unsafe { *device = ordinal }; 0 }
    fn cuDeviceGetName(name: *mut u8, length: c_int, _device: c_int) {
        let text = b"Stub\0";
        assert!(length as usize >= text.len());
        unsafe { name.copy_from(text.as_ptr(), text.len()) };
        count()
    }
    // An unknown attribute is an invalid value; 134 is unknown to a driver of before 12.3.
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, _device: c_int) {
        count();
        if attribute == 134 { return 1 }
        unsafe { *value = attribute as c_int };
        0
    }
    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) {
        RETAINS.fetch_add(1, SeqCst);
        unsafe { *context = PRIMARY + device as usize };
        0
    }
    fn cuCtxGetCurrent(context: *mut usize) {
        if let Some(code) = answer(QUESTIONS) { return code }
        let current = CONTEXTS.with_borrow(|contexts| contexts.last().copied().unwrap_or(0));
        unsafe { *context = current };
        0
    }
    fn cuCtxGetDevice(device: *mut c_int) {
        if CONTEXTS.with_borrow(Vec::is_empty) { return 201 }
        unsafe { *device = current_device().unwrap_or(0) as c_int };
        0
    }
    fn cuCtxPushCurrent_v2(context: usize) {
        if let Some(code) = answer(ENTRIES) { return code }
        PUSHES.fetch_add(1, SeqCst);
        CONTEXTS.with_borrow_mut(|contexts| contexts.push(context));
        0
    }
    fn cuCtxPopCurrent_v2(context: *mut usize) {
        POPS.fetch_add(1, SeqCst);
        let Some(popped) = CONTEXTS.with_borrow_mut(Vec::pop) else { return 201 };
        unsafe { *context = popped };
        0
    }
    fn cuCtxSetCurrent(context: usize) {
        CONTEXTS.with_borrow_mut(|contexts| {
            contexts.pop();
            contexts.push(context);
        });
        0
    }
    fn cuDevicePrimaryCtxRelease_v2(_device: c_int) { count() }
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        unsafe { *least = 0 };
        unsafe { *greatest = -5 };
        enter()
    }
    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) { unsafe { *mode = 0 }; count() }
    fn cuStreamIsCapturing(stream: usize, status: *mut c_uint) {
        unsafe { *status = (stream == CAPTURING).into() };
        enter()
    }
    // The capture of a stream has the stream's number. What depends on what is not asked for here.
    #[cfg(not(lacks_optional))]
    fn cuStreamGetCaptureInfo_v2(stream: usize, status: *mut c_uint, number: *mut u64, graph: *mut usize) {
        unsafe { *status = (stream == CAPTURING).into() };
        unsafe { *number = stream as u64 };
        unsafe { *graph = 0 };
        enter()
    }
    fn cuLaunchHostFunc(stream: usize, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) {
        if stream == NO_STREAM { return 400 }
        let data = data as usize;
        // On a thread of its own, as the real one does.
        std::thread::spawn(move || unsafe { function(data as *mut c_void) }).join().expect("it does not unwind");
        enter()
    }
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        unsafe { *free = 1 << 30 };
        unsafe { *total = 1 << 31 };
        enter()
    }
    fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, _flags: c_uint) {
        let memory = vec![0_u8; bytes].leak();
        unsafe { *pointer = memory.as_mut_ptr().cast() };
        enter()
    }
    fn cuMemFreeHost(_pointer: *mut c_void) { HOST_FREES.fetch_add(1, SeqCst); enter() }
    fn cuMemHostGetDevicePointer_v2(address: *mut u64, pointer: *mut c_void, _flags: c_uint) {
        let offset = u64::from(number_from("STUB_SPLIT_ADDRESSES", 0));
        unsafe { *address = pointer as u64 + offset };
        enter()
    }
    #[cfg(not(lacks_required))]
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        if bytes > 1 << 40 { return enter().max(2) }
        unsafe { *address = 0x7000_0000 };
        enter()
    }
    // What cudarc copies with. Null is no address of a device.
    fn cuMemcpyHtoDAsync_v2(to: u64, _from: *const c_void, _bytes: usize, _stream: usize) {
        if to == 0 { 1 } else { enter() }
    }
    fn cuMemcpyDtoHAsync_v2(_to: *mut c_void, from: u64, _bytes: usize, _stream: usize) {
        if from == 0 { 1 } else { enter() }
    }
    // The type of memory, whether it is managed, and its device; whether it has a handle, its range, and its pool. It wants a context, as
    // the manual allows it to.
    #[cfg(not(lacks_optional))]
    fn cuPointerGetAttributes(count: c_uint, attributes: *const c_uint, data: *const *mut c_int, address: u64) {
        let code = enter();
        if code != 0 { return code }
        let [memory_type, is_managed, device] = match address {
            0x7000_0000..0x7100_0000 => [2, 0, 0],
            0x7100_0000..0x7200_0000 => [3, 0, 0],
            0x8000_0000..0x8100_0000 => [1, 1, 0],
            0x8100_0000..0x8200_0000 => [1, 0, -1],
            _ => [0, 0, -2],
        };
        // Of the upper half of a kind, memory of a pool; of the second quarter, mapped memory. Both are device memory, or managed.
        let pool = u64::from(memory_type != 0 && address & 0x80_0000 != 0);
        let has_handle = c_int::from(memory_type == 2 && address & 0xC0_0000 == 0);
        let start = if memory_type == 0 { 0 } else { address & !0xFF_FFFF };
        for at in 0..count as usize {
            let to = unsafe { *data.add(at) };
            let wide = to.cast::<u64>();
            match unsafe { *attributes.add(at) } {
                2 => unsafe { *to = memory_type },
                8 => unsafe { *to.cast::<u8>() = is_managed as u8 },
                9 => unsafe { *to = device },
                10 => unsafe { *to.cast::<u8>() = has_handle as u8 },
                11 => unsafe { wide.write(start) },
                12 => unsafe { wide.write(if start == 0 { 0 } else { 0x100_0000 }) },
                17 => unsafe { wide.write(pool) },
                _ => return 1,
            }
        }
        0
    }
    #[cfg(not(lacks_optional))]
    fn cuMemGetAddressRange_v2(start: *mut u64, bytes: *mut usize, address: u64) {
        // It does not say for memory of the host.
        if (0x8100_0000..0x8200_0000).contains(&address) { return enter().max(1) }
        unsafe { *start = address & !0xFF_FFFF };
        unsafe { *bytes = 0x100_0000 };
        enter()
    }
    fn cuMemAllocManaged(address: *mut u64, _bytes: usize, _flags: c_uint) {
        unsafe { *address = 0x8000_0000 };
        enter()
    }
    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, _stream: usize) {
        let code = enter();
        if !is_slow() || code != 0 { return code }
        QUEUE.lock().unwrap().push_back((to, from, bytes));
        hold("copy");
        answer(COPIES).unwrap_or(0)
    }
    fn cuCtxSynchronize() { wait() }
    fn cuStreamSynchronize(_stream: usize) { wait() }
    fn cuEventSynchronize(_event: usize) { wait() }
    fn cuStreamQuery(_stream: usize) {
        let entered = enter();
        if entered == 0 && !QUEUE.lock().unwrap().is_empty() { NOT_READY } else { entered }
    }
    fn cuStreamCreateWithPriority(stream: *mut usize, _flags: c_uint, _priority: c_int) {
        unsafe { *stream = 0x51 };
        enter()
    }
    fn cuEventCreate(event: *mut usize, flags: c_uint) {
        unsafe { *event = 0xE0 + flags as usize };
        enter()
    }
    #[cfg(not(lacks_optional))]
    fn cuMemFreeAsync(address: u64, _stream: usize) { LAST_FREED.store(address, SeqCst); enter() }
    #[cfg(not(lacks_optional))]
    fn cuGetErrorName(code: c_uint, text: *mut *const u8) {
        if code != 77 { return 1 }
        unsafe { *text = c"STUB_ERROR".as_ptr().cast() };
        0
    }
    #[cfg(not(lacks_optional))]
    fn cuGetErrorString(code: c_uint, text: *mut *const u8) {
        if code != 77 { return 1 }
        unsafe { *text = c"as the stub puts it".as_ptr().cast() };
        0
    }
    #[cfg(not(lacks_optional))]
    fn cuDevicePrimaryCtxGetState(_device: c_int, flags: *mut c_uint, active: *mut c_int) {
        unsafe { *flags = 0 };
        unsafe { *active = (RETAINS.load(SeqCst) > 0 || std::env::var_os("STUB_ACTIVE").is_some()).into() };
        0
    }
    // The primary context, one of a stranger, or a green one: the second form says what is behind it, the first does not.
    fn cuStreamGetCtx(stream: usize, context: *mut usize) {
        unsafe { *context = if stream == 0x6E { 0x6E0 } else { stream_context(stream) } };
        enter()
    }
    #[cfg(not(lacks_optional))]
    fn cuStreamGetCtx_v2(stream: usize, context: *mut usize, green: *mut usize) {
        unsafe { *context = stream_context(stream) };
        unsafe { *green = if stream == 0x6E { 0x6E0 } else { 0 } };
        count()
    }
    #[cfg(not(lacks_optional))]
    fn cuStreamGetId(stream: usize, id: *mut u64) { unsafe { *id = stream as u64 + 1000 }; enter() }
    #[cfg(not(lacks_optional))]
    fn cuMemPrefetchAsync_v2() { LAST_PREFETCH.store(2, SeqCst); enter() }
    fn cuMemPrefetchAsync(_address: u64, _bytes: usize, device: c_int, _stream: usize) {
        // The host is device -1 to this call.
        LAST_PREFETCH.store(if device == -1 { 11 } else { 10 }, SeqCst);
        enter()
    }
}

#[cfg(not(lacks_optional))]
#[path = "libcuda/sharing.rs"]
mod sharing;

need_a_context! {
    cuStreamDestroy_v2 cuStreamWaitEvent
    cuEventDestroy_v2 cuEventRecord cuEventQuery
    cuMemFree_v2 cuMemHostRegister_v2 cuMemHostUnregister
    cuMemcpy cuMemsetD8Async cuMemsetD16Async cuMemsetD32Async
    #[cfg(not(lacks_optional))] cuMemAllocFromPoolAsync
    #[cfg(not(lacks_optional))] cuDeviceGetDefaultMemPool
}
