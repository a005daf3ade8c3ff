//! A machine without a driver, with a stub, with an old one, with a broken one: an error value each, and no panic. And
//! what the driver owes its callers whatever libcuda does: contexts, forks, exits, closures that panic. And which addresses
//! cudarc is given, and when a transfer ends. And parts of a GPU, which lack some of it.
//!
//! Each test runs its body in a child process, with a libcuda of its own on the library path. A panic of the child,
//! caught or not, ends it at once, so these tests hold for programs that are built with `panic = "abort"` too.

#![cfg(unix)]
#![expect(unsafe_code, reason = "calls the driver, and asks the library that it loaded")]

#[cfg(target_os = "linux")]
mod ends;
mod handed_over;
#[cfg(target_os = "linux")]
mod heap;
mod libraries;
#[cfg(target_os = "linux")]
mod parts;
#[path = "../support/plain_environment.rs"]
mod plain_environment;
#[path = "../support/rerun.rs"]
mod rerun;
mod sharing;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::{env, panic, process, thread};

use alluvion::driver::cuda::CudaDriver;
use alluvion::driver::{
    AddressRange, Call, Code, DeviceAttribute, Driver, DriverError, Location, MemoryKind, PinnedFlags,
    PointerInfo, PoolKind, RawStream,
};
use alluvion::{Error, ErrorKind};
use cudarc::driver::sys;
use rerun::{Ended, is_child, run_child};

/// What a child prints when its body has run to the end.
const DONE: &str = "the body has run";

static WHOLE: LazyLock<PathBuf> = LazyLock::new(|| build("whole", &[]));
static NO_REQUIRED: LazyLock<PathBuf> = LazyLock::new(|| build("no_required", &["lacks_required"]));
static NO_OPTIONAL: LazyLock<PathBuf> = LazyLock::new(|| build("no_optional", &["lacks_optional"]));
static NOTHING: LazyLock<PathBuf> =
    LazyLock::new(|| libraries::nothing(libraries::directory("cuda_load-nothing")));

fn build(name: &str, cfgs: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda_load/libcuda.rs");
    libraries::build(&source, libraries::directory(&format!("cuda_load-{name}")), cfgs)
}

/// Runs `body` in a child that finds libcuda in `library` first.
fn in_child(test: &str, library: &LazyLock<PathBuf>, variables: &[(&str, &str)], body: fn()) {
    if is_child(test) {
        panic::set_hook(Box::new(|panic| {
            eprintln!("{panic}");
            process::abort();
        }));
        body();
        println!("{DONE}");
        return;
    }
    let library: &OsStr = library.as_os_str();
    let variables: Vec<(&str, &OsStr)> = variables
        .iter()
        .map(|&(name, value)| (name, OsStr::new(value)))
        .chain([("LD_LIBRARY_PATH", library)])
        .collect();
    let Ended { status, printed, said } = run_child(test, &variables);
    let text = format!("{status}\n{printed}{said}");
    assert!(status.success() && text.contains(DONE), "{text}");
}

fn load_error() -> Error {
    CudaDriver::load().expect_err("there is no driver to load").into()
}

/// Calls, pushes, pops, retains, frees of pinned memory, last prefetch: what the stub has counted.
fn counters() -> [u64; 6] {
    // SAFETY: the library is loaded: each caller has loaded the driver.
    let library = unsafe { sys::culib() };
    // SAFETY: the stub's function has this type.
    let get = unsafe { library.get::<extern "C" fn() -> [u64; 6]>(b"stub_counters\0") };
    get.expect("the stub is what was loaded")()
}

/// The stack of contexts of this thread, as an application moves it.
fn push_context(context: usize) {
    // SAFETY: the library is loaded.
    let library = unsafe { sys::culib() };
    // SAFETY: a context is a pointer.
    let push = unsafe { library.get::<unsafe extern "C" fn(usize) -> u32>(b"cuCtxPushCurrent_v2\0") };
    // SAFETY: the stub takes any number for a context.
    assert_eq!(unsafe { push.expect("the stub has it")(context) }, 0);
}

fn current_context() -> usize {
    // SAFETY: the library is loaded.
    let library = unsafe { sys::culib() };
    // SAFETY: the function takes a pointer to a context.
    let get = unsafe { library.get::<unsafe extern "C" fn(*mut usize) -> u32>(b"cuCtxGetCurrent\0") };
    let mut context = 0;
    // SAFETY: `context` is writable.
    assert_eq!(unsafe { get.expect("the stub has it")(&raw mut context) }, 0);
    context
}

#[test]
fn no_library_is_no_driver() {
    in_child("no_library_is_no_driver", &NOTHING, &[], || {
        let error = load_error();
        assert_eq!(error.kind(), ErrorKind::NoDriver);
        assert!(error.is_no_device());
        assert!(error.to_string().contains("libcuda is not installed"), "{error}");
        // And again: nothing is poisoned.
        assert_eq!(load_error().kind(), ErrorKind::NoDriver);
    });
}

#[test]
fn a_stub_is_no_driver() {
    in_child("a_stub_is_no_driver", &WHOLE, &[("STUB_CODE", "34")], || {
        let error = load_error();
        assert_eq!(error.kind(), ErrorKind::NoDriver);
        assert!(error.to_string().contains("stub (34)"), "{error}");
    });
}

#[test]
fn a_library_without_a_required_function_is_no_driver() {
    in_child("a_library_without_a_required_function_is_no_driver", &NO_REQUIRED, &[], || {
        let error = load_error();
        assert_eq!(error.kind(), ErrorKind::NoDriver);
        assert!(error.to_string().contains("no function cuMemAlloc_v2"), "{error}");
    });
}

#[test]
fn an_old_driver_is_no_driver() {
    in_child("an_old_driver_is_no_driver", &NO_REQUIRED, &[("STUB_VERSION", "11080")], || {
        let error = load_error();
        assert_eq!(error.kind(), ErrorKind::NoDriver);
        assert!(error.to_string().contains("older than CUDA 12.0"), "{error}");
    });
}

#[test]
fn a_driver_without_a_gpu_is_no_device() {
    in_child("a_driver_without_a_gpu_is_no_device", &WHOLE, &[("STUB_CODE", "100")], || {
        let error = load_error();
        assert_eq!(error.kind(), ErrorKind::NoDevice);
        assert_eq!(error.code(), Some(Code::NO_DEVICE));
        assert_eq!(error.call(), Some(Call::Init));
    });
}

#[test]
fn a_driver_without_its_kernel_module_is_no_driver() {
    in_child("a_driver_without_its_kernel_module_is_no_driver", &WHOLE, &[("STUB_CODE", "999")], || {
        assert_eq!(load_error().kind(), ErrorKind::NoDriver);
    });
    in_child("a_driver_without_its_kernel_module_is_no_driver", &WHOLE, &[("STUB_CODE", "803")], || {
        assert_eq!(load_error().kind(), ErrorKind::NoDriver);
    });
}

#[test]
fn a_failure_is_forgotten_and_a_success_is_kept() {
    in_child("a_failure_is_forgotten_and_a_success_is_kept", &WHOLE, &[("STUB_CODE", "100")], || {
        assert_eq!(load_error().kind(), ErrorKind::NoDevice);
        // SAFETY: no other thread of this child reads or writes the environment.
        unsafe { env::remove_var("STUB_CODE") };
        let first = CudaDriver::load().expect("the stub starts now");
        assert!(Arc::ptr_eq(&first, &CudaDriver::load().expect("it is loaded")));
        assert_eq!((first.name(), first.version(), first.device_count()), ("cuda", 12080, Ok(1)));
        assert_eq!(first.device_name(0).as_deref(), Ok("Stub"));
    });
}

#[test]
fn a_device_that_is_not_there_is_refused_without_a_call() {
    in_child("a_device_that_is_not_there_is_refused_without_a_call", &WHOLE, &[], || {
        let driver = CudaDriver::load().expect("the stub starts");
        let before = counters();
        let absent = |call| Some(DriverError::new(call, Code::INVALID_DEVICE));
        assert_eq!(driver.device_name(1).err(), absent(Call::DeviceName));
        assert_eq!(driver.allocate_device(u32::MAX, 1).err(), absent(Call::AllocateDevice));
        assert_eq!(driver.memory_info(1).err(), absent(Call::MemoryInfo));
        assert_eq!(counters(), before);
    });
}

#[test]
fn an_attribute_that_the_driver_does_not_know_has_a_neutral_value() {
    in_child("an_attribute_that_the_driver_does_not_know_has_a_neutral_value", &WHOLE, &[], || {
        let driver = CudaDriver::load().expect("the stub starts");
        // The stub answers each attribute with its number.
        assert_eq!(driver.attribute(0, DeviceAttribute::ComputeMajor), Ok(75));
        assert_eq!(driver.attribute(0, DeviceAttribute::VirtualMemory), Ok(102));
        // It knows no node, and its PCI address does not exist.
        assert_eq!(driver.attribute(0, DeviceAttribute::HostNumaNode), Ok(-1));
    });
}

#[test]
fn a_missing_optional_function_is_an_error_when_it_is_called() {
    in_child("a_missing_optional_function_is_an_error_when_it_is_called", &NO_OPTIONAL, &[], || {
        let driver = CudaDriver::load().expect("what is missing is optional");
        // SAFETY: the stub takes any number for a stream.
        let error = unsafe { driver.stream_id(0, RawStream(7)) }.unwrap_err();
        assert_eq!(error, DriverError::new(Call::StreamId, Code::NOT_FOUND));
        assert_eq!(Error::from(error).kind(), ErrorKind::Unsupported);
        let error = driver.pool_default(0, PoolKind::Device).unwrap_err();
        assert_eq!(error, DriverError::new(Call::PoolDefault, Code::NOT_FOUND));
        let error = driver.pointer_attributes(7).unwrap_err();
        assert_eq!(error, DriverError::new(Call::PointerAttributes, Code::NOT_FOUND));
        let error = driver.address_range(7).unwrap_err();
        assert_eq!(error, DriverError::new(Call::AddressRange, Code::NOT_FOUND));
        let error = driver.plain_allocation(7).unwrap_err();
        assert_eq!(error, DriverError::new(Call::PointerAttributes, Code::NOT_FOUND));
        assert_eq!(driver.virtual_granularity(0).unwrap_err().code, Code::NOT_FOUND);

        // The older form of a prefetch knows devices and the host, and no nodes of the host.
        // SAFETY: the stub takes any number for an address or a stream.
        let prefetch = |to| unsafe { driver.prefetch_async(0, 0x8000_0000, 1, to, RawStream(7)) };
        assert_eq!(prefetch(Location::Device(0)), Ok(()));
        assert_eq!(counters()[5], 10);
        assert_eq!(prefetch(Location::Host), Ok(()));
        assert_eq!(counters()[5], 11);
        assert_eq!(prefetch(Location::HostNuma(0)).unwrap_err().code, Code::NOT_FOUND);
        assert_eq!(prefetch(Location::Device(1)).unwrap_err().code, Code::INVALID_DEVICE);
    });
}

#[test]
fn optional_functions_are_called_where_they_exist() {
    in_child("optional_functions_are_called_where_they_exist", &WHOLE, &[], || {
        let driver = CudaDriver::load().expect("the stub starts");
        // SAFETY: the stub takes any number for a stream.
        assert_eq!(unsafe { driver.stream_id(0, RawStream(7)) }, Ok(1007));
        // SAFETY: the stub takes any number for an address or a stream.
        let prefetch = |to| unsafe { driver.prefetch_async(0, 0x8000_0000, 1, to, RawStream(7)) };
        assert_eq!(prefetch(Location::Device(0)), Ok(()));
        assert_eq!(counters()[5], 2);
        // A managed pool needs a driver that this one is not.
        let error = driver.pool_default(0, PoolKind::Managed).unwrap_err();
        assert_eq!(error, DriverError::new(Call::PoolDefault, Code::NOT_SUPPORTED));
    });
}

#[test]
fn the_context_that_was_current_is_current_again() {
    in_child("the_context_that_was_current_is_current_again", &WHOLE, &[], || {
        let driver = CudaDriver::load().expect("the stub starts");
        // None was current. The stub refuses calls without the primary one, so these make it current.
        assert_eq!(driver.allocate_device(0, 256), Ok(0x7000_0000));
        assert_eq!(current_context(), 0);
        // A stranger's was current; and a call that fails cleans up too.
        push_context(0xF0);
        assert!(driver.memory_info(0).is_ok());
        assert_eq!(driver.allocate_device(0, 1 << 50).unwrap_err().code, Code::OUT_OF_MEMORY);
        assert_eq!(current_context(), 0xF0);
        let [_, pushes, pops, ..] = counters();
        assert_eq!((pushes, pops), (4, 3), "three of ours, one of the test's");
        // The primary one was: nothing is pushed.
        push_context(0xC0);
        assert!(driver.memory_info(0).is_ok());
        assert_eq!(current_context(), 0xC0);
        let [_, pushes, pops, retains, ..] = counters();
        assert_eq!((pushes, pops, retains), (5, 3, 1));
        // Each thread has a stack of its own.
        thread::spawn(move || {
            assert!(driver.memory_info(0).is_ok());
            assert_eq!(current_context(), 0);
        })
        .join()
        .expect("it ended");
        assert_eq!(counters()[3], 1, "the context is retained once");
    });
}

#[test]
fn a_context_that_is_set_is_the_one_that_calls_come_back_to() {
    in_child("a_context_that_is_set_is_the_one_that_calls_come_back_to", &WHOLE, &[], || {
        let driver = CudaDriver::load().expect("the stub starts");
        // The question makes no context.
        assert_eq!((driver.context_device(), counters()[3]), (Ok(None), 0));
        assert_eq!(driver.set_context(1), Err(DriverError::new(Call::ContextSet, Code::INVALID_DEVICE)));
        assert_eq!((current_context(), counters()[3]), (0, 0));
        assert_eq!(driver.set_context(0), Ok(()));
        assert_eq!((current_context(), counters()[3]), (0xC0, 1));
        assert_eq!(driver.context_device(), Ok(Some(0)));
        // A context of somebody's own has a device too, and is replaced, not buried.
        push_context(0xF0);
        assert_eq!(driver.context_device(), Ok(Some(0)));
        assert!(driver.memory_info(0).is_ok());
        assert_eq!(current_context(), 0xF0);
        assert_eq!(driver.set_context(0), Ok(()));
        assert_eq!((current_context(), counters()[3]), (0xC0, 1), "it is retained once");
    });
}

#[test]
fn libcuda_is_asked_about_addresses() {
    in_child("libcuda_is_asked_about_addresses", &WHOLE, &[], || {
        let driver = CudaDriver::load().expect("the stub starts");
        let info = |kind, ordinal| Ok(Some(PointerInfo { kind, ordinal }));
        // The stub refuses the question without a context: the driver's own is made current for it.
        assert_eq!(driver.pointer_attributes(0x7000_0123), info(MemoryKind::Device, Some(0)));
        assert_eq!(driver.pointer_attributes(0x8000_0123), info(MemoryKind::Managed, Some(0)));
        assert_eq!(driver.pointer_attributes(0x8100_0123), info(MemoryKind::PinnedHost, None));
        // An array is no memory that an address can reach; and the stub does not know this one.
        assert_eq!(driver.pointer_attributes(0x7100_0123), Ok(None));
        assert_eq!(driver.pointer_attributes(7), Ok(None));
        let range = AddressRange { start: 0x7000_0000, bytes: 0x100_0000 };
        assert_eq!(driver.address_range(0x7000_0123), Ok(Some(range)));
        assert_eq!(driver.address_range(0x8100_0123), Ok(None), "libcuda does not say");
        assert_eq!(driver.address_range(7), Ok(None));
        assert_eq!(driver.plain_allocation(0x7000_0123), Ok(Some(range)));
        let managed = AddressRange { start: 0x8000_0000, ..range };
        assert_eq!(driver.plain_allocation(0x8000_0123), Ok(Some(managed)));
        let pinned = AddressRange { start: 0x8100_0000, ..range };
        assert_eq!(driver.plain_allocation(0x8100_0123), Ok(Some(pinned)));
        // Mapped memory, and memory of pools, also managed or the host's; an array, and what the stub does not know.
        for address in [0x7040_0123, 0x7080_0123, 0x8080_0123, 0x8180_0123, 0x7100_0123, 7] {
            assert_eq!(driver.plain_allocation(address), Ok(None), "{address:x}");
        }
        assert_eq!(current_context(), 0);
        // With a stranger's context the answer is the same.
        push_context(0xF0);
        assert_eq!(driver.pointer_attributes(0x7000_0123), info(MemoryKind::Device, Some(0)));
        assert_eq!(current_context(), 0xF0);
    });
}

#[test]
fn code_of_others_runs_in_the_context_of_the_device() {
    in_child("code_of_others_runs_in_the_context_of_the_device", &WHOLE, &[], || {
        let driver = CudaDriver::load().expect("the stub starts");
        let mut seen = Vec::new();
        let mut look = || seen.push(current_context());
        assert_eq!(driver.in_context(0, &mut look), Ok(()));
        assert_eq!(current_context(), 0);
        // A stranger's context is current again behind it.
        push_context(0xF0);
        assert_eq!(driver.in_context(0, &mut look), Ok(()));
        assert_eq!(current_context(), 0xF0);
        let refused = driver.in_context(1, &mut look);
        assert_eq!(refused, Err(DriverError::new(Call::ContextEnter, Code::INVALID_DEVICE)));
        assert_eq!(seen, [0xC0, 0xC0]);
    });
}

#[test]
fn libcuda_is_asked_about_streams_and_codes() {
    in_child("libcuda_is_asked_about_streams_and_codes", &WHOLE, &[], || {
        let driver = CudaDriver::load().expect("the stub starts");
        // SAFETY: the stub takes any number for a stream.
        let ask = |stream| unsafe { driver.stream_context_device(RawStream(stream)) };
        // Nobody has made the primary context, and the question does not.
        assert_eq!((ask(0xF5), counters()[3]), (Ok(None), 0));
        assert!(driver.memory_info(0).is_ok());
        push_context(0xF0);
        assert_eq!((ask(7), ask(0x6E), ask(0xF5)), (Ok(Some(0)), Ok(Some(0)), Ok(None)));
        assert_eq!((current_context(), counters()[3]), (0xF0, 1));
        assert_eq!(ask(0), Err(DriverError::new(Call::StreamContext, Code::INVALID_HANDLE)));
        assert_eq!(driver.code_name(Code(77)).as_deref(), Some("STUB_ERROR"));
        assert_eq!(driver.code_text(Code(77)).as_deref(), Some("as the stub puts it"));
        // What the stub does not know, the crate may.
        assert_eq!(driver.code_name(Code(2)).as_deref(), Some("CUDA_ERROR_OUT_OF_MEMORY"));
        assert_eq!(driver.code_text(Code(78)), None);
        // The stub answers each attribute with its number, and knows one not.
        assert_eq!(driver.attribute_by_number(0, 10), Ok(10));
        let unknown = DriverError::new(Call::Attribute, Code::INVALID_VALUE);
        assert_eq!(driver.attribute_by_number(0, 134), Err(unknown));
    });
}

#[test]
fn a_primary_context_of_somebody_else_is_found() {
    let variables = [("STUB_ACTIVE", "1")];
    in_child("a_primary_context_of_somebody_else_is_found", &WHOLE, &variables, || {
        let driver = CudaDriver::load().expect("the stub starts");
        // SAFETY: the stub takes any number for a stream.
        assert_eq!(unsafe { driver.stream_context_device(RawStream(7)) }, Ok(Some(0)));
    });
}

#[test]
fn a_context_is_made_current_where_none_is() {
    in_child("a_context_is_made_current_where_none_is", &WHOLE, &[("STUB_DEVICES", "2")], || {
        let driver = CudaDriver::load().expect("the stub starts");
        assert_eq!(current_context(), 0);
        assert_eq!(driver.ensure_context(), Ok(()));
        let primary = current_context();
        assert!(primary != 0 && driver.context_device() == Ok(Some(0)));
        // A context of somebody's own, and the primary one of another device, stay.
        for other in [0xF0, primary + 1] {
            push_context(other);
            assert_eq!(driver.ensure_context(), Ok(()));
            assert_eq!(current_context(), other);
        }
        // Another thread has nothing current, whatever this one has.
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(current_context(), 0);
                assert_eq!(driver.ensure_context(), Ok(()));
                assert_eq!(current_context(), primary);
            });
        });
    });
}

#[test]
fn an_older_driver_knows_no_green_contexts() {
    in_child("an_older_driver_knows_no_green_contexts", &NO_OPTIONAL, &[], || {
        let driver = CudaDriver::load().expect("what is missing is optional");
        // SAFETY: the stub takes any number for a stream.
        let ask = |stream| unsafe { driver.stream_context_device(RawStream(stream)) };
        assert_eq!((ask(7), ask(0x6E), ask(0xF5)), (Ok(Some(0)), Ok(None), Ok(None)));
        assert_eq!(driver.code_name(Code(2)).as_deref(), Some("CUDA_ERROR_OUT_OF_MEMORY"));
    });
}

#[test]
fn zero_bytes_never_reach_libcuda() {
    in_child("zero_bytes_never_reach_libcuda", &WHOLE, &[], || {
        let driver = CudaDriver::load().expect("the stub starts");
        let before = counters();
        assert_eq!(driver.allocate_device(0, 0).unwrap_err().code, Code::INVALID_VALUE);
        assert_eq!(driver.allocate_managed(0, 0).unwrap_err().code, Code::INVALID_VALUE);
        assert_eq!(
            driver.allocate_pinned(0, 0, PinnedFlags::default()).unwrap_err().code,
            Code::INVALID_VALUE
        );
        assert_eq!(counters(), before);
    });
}

#[test]
fn pinned_memory_with_two_addresses_is_refused_and_freed() {
    let variables = [("STUB_SPLIT_ADDRESSES", "4096")];
    in_child("pinned_memory_with_two_addresses_is_refused_and_freed", &WHOLE, &variables, || {
        let driver = CudaDriver::load().expect("the stub starts");
        let error = driver.allocate_pinned(0, 4096, PinnedFlags::default()).unwrap_err();
        assert_eq!(error, DriverError::new(Call::AllocatePinned, Code::NOT_SUPPORTED));
        assert_eq!(counters()[4], 1, "it was freed");
        let unmapped = PinnedFlags { mapped: false, ..PinnedFlags::default() };
        assert!(driver.allocate_pinned(0, 4096, unmapped).is_ok(), "what is not mapped has one address only");
    });
}

#[test]
fn a_host_call_that_panics_ends_there() {
    in_child("a_host_call_that_panics_ends_there", &WHOLE, &[], || {
        static PANICS: AtomicUsize = AtomicUsize::new(0);
        let driver = CudaDriver::load().expect("the stub starts");
        panic::set_hook(Box::new(|_| {
            PANICS.fetch_add(1, Ordering::SeqCst);
        }));
        // SAFETY: the stub takes any number for a stream.
        let result =
            unsafe { driver.stream_host_call(0, RawStream(7), Box::new(|| panic!("in a host call"))) };
        assert_eq!((result, PANICS.load(Ordering::SeqCst)), (Ok(()), 1));
    });
}

#[test]
fn a_host_call_that_is_refused_is_dropped_without_being_called() {
    in_child("a_host_call_that_is_refused_is_dropped_without_being_called", &WHOLE, &[], || {
        struct Flag<'a>(&'a AtomicBool);
        impl Drop for Flag<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        static CALLED: AtomicBool = AtomicBool::new(false);
        static DROPPED: AtomicBool = AtomicBool::new(false);
        let driver = CudaDriver::load().expect("the stub starts");
        let queue = |stream| {
            DROPPED.store(false, Ordering::SeqCst);
            let flag = Flag(&DROPPED);
            let function = Box::new(move || {
                let _flag = &flag;
                CALLED.store(true, Ordering::SeqCst);
            });
            // SAFETY: the stub takes any number for a stream.
            unsafe { driver.stream_host_call(0, RawStream(stream), function) }
        };
        // No stream at all, and one that captures: a graph would run the function more than once.
        assert_eq!(queue(0xBAD), Err(DriverError::new(Call::StreamHostCall, Code::INVALID_HANDLE)));
        assert!(DROPPED.load(Ordering::SeqCst));
        assert_eq!(queue(0xCA), Err(DriverError::new(Call::StreamHostCall, Code::CAPTURE_UNSUPPORTED)));
        assert!(DROPPED.load(Ordering::SeqCst));
        assert!(!CALLED.load(Ordering::SeqCst));
        assert_eq!(queue(7), Ok(()));
        assert!(CALLED.load(Ordering::SeqCst) && DROPPED.load(Ordering::SeqCst));
    });
}

#[test]
fn a_fork_is_answered_without_a_call() {
    in_child("a_fork_is_answered_without_a_call", &WHOLE, &[], || {
        let driver = CudaDriver::load().expect("the stub starts");
        assert!(driver.memory_info(0).is_ok());
        let before = counters();
        // SAFETY: the child calls nothing but the driver, which must cope, and `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let gone = |code: Code| code == Code::NOT_INITIALIZED;
            let refused = driver.memory_info(0).is_err_and(|error| gone(error.code))
                && driver.device_count().is_err_and(|error| gone(error.code))
                && driver.allocate_device(0, 1).is_err_and(|error| gone(error.code))
                && CudaDriver::load().is_err_and(|error| Error::from(error).is_shut_down())
                && counters() == before;
            // SAFETY: it does not return.
            unsafe { libc::_exit(if refused { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: `status` is writable and `child` is ours.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(driver.memory_info(0).is_ok(), "the parent goes on");
    });
}

#[test]
fn an_exit_is_answered_without_a_call() {
    extern "C" fn last() {
        let refused = CudaDriver::load().is_err_and(|error| Error::from(error).is_shut_down())
            && KEPT.get().is_some_and(|driver| {
                let before = counters();
                driver.memory_info(0).is_err_and(|error| error.code == Code::DEINITIALIZED)
                    && driver.allocate_device(0, 1).is_err_and(|error| error.code == Code::DEINITIALIZED)
                    && counters() == before
            });
        if !refused {
            // SAFETY: it does not return. The status tells the parent.
            unsafe { libc::_exit(3) };
        }
    }
    static KEPT: std::sync::OnceLock<Arc<CudaDriver>> = std::sync::OnceLock::new();
    in_child("an_exit_is_answered_without_a_call", &WHOLE, &[], || {
        // Handlers run in reverse order: this one, registered before the driver is loaded, runs after the driver's own.
        // SAFETY: `last` does not unwind.
        assert_eq!(unsafe { libc::atexit(last) }, 0);
        let driver = CudaDriver::load().expect("the stub starts");
        assert!(driver.memory_info(0).is_ok());
        assert!(KEPT.set(driver).is_ok());
    });
}
