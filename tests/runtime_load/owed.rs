//! What the driver owes its callers whatever a library does: current devices, the last error, what is missing, forks, exits.

use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use alluvion::Error;
use alluvion::driver::runtime::{Runtime, RuntimeDriver};
use alluvion::driver::{
    Call, CaptureMode, Code, DeviceAttribute, Driver, DriverError, FillValue, HandleType, Location,
    MemoryKind, PinnedFlags, PointerInfo, PoolKind, PoolProperties, RawStream, StreamFlags,
};
use alluvion::sim::{Fault, SimConfig, SimDriver};

use crate::child::in_child;
use crate::machine;
use crate::stand_in::StandIn;

const CUDART: StandIn = StandIn::new(Runtime::Cudart, 13);
const HIP: StandIn = StandIn::new(Runtime::Hip, 7);
const MACA: StandIn = StandIn::new(Runtime::Maca, 3);
const EVERY: [StandIn; 3] = [CUDART, HIP, MACA];

/// A machine of two devices behind the library, and the driver over it.
pub(crate) fn start(stand_in: StandIn) -> (Arc<SimDriver>, Arc<RuntimeDriver>) {
    let sim = SimDriver::new(stand_in.config().devices(2).panic_on_unseen_hazards(false));
    stand_in.put_behind(&sim, 2);
    (sim, RuntimeDriver::load(stand_in.runtime).expect("the stand-in starts"))
}

/// The library's own function with this stem.
fn own<F: Copy>(stand_in: StandIn, stem: &str) -> F {
    let prefix = match stand_in.runtime {
        Runtime::Cudart => "cuda",
        Runtime::Hip => "hip",
        _ => "mc",
    };
    stand_in.function(&format!("{prefix}{stem}\0"))
}

type Code0 = unsafe extern "C" fn() -> u32;
type Set = unsafe extern "C" fn(i32) -> u32;

#[test]
fn every_attribute_has_its_own_number() {
    for stand_in in [CUDART, HIP, StandIn::new(Runtime::Hip, 5), MACA] {
        in_child("owed::every_attribute_has_its_own_number", stand_in, &[], || {
            // Each attribute of the machine is a number that no other one is.
            let config = DeviceAttribute::ALL.iter().fold(SimConfig::default(), |config, &attribute| {
                config.attribute(attribute, 1000 + attribute.number())
            });
            stand_in.put_behind(&SimDriver::new(config), 1);
            let driver = RuntimeDriver::load(stand_in.runtime).expect("the stand-in starts");
            let mut unknown = Vec::new();
            for &attribute in DeviceAttribute::ALL {
                match driver.attribute_by_number(0, attribute.number()) {
                    Ok(value) => assert_eq!(value, 1000 + attribute.number(), "{attribute:?}"),
                    Err(error) => {
                        assert_eq!(error, DriverError::new(Call::Attribute, Code::INVALID_VALUE));
                        unknown.push(attribute);
                    }
                }
            }
            use DeviceAttribute::{
                DmaBuf, HostNumaNode, HostRegister, MemoryDescriptors, MemoryFabricHandles, PageRdma,
                PoolHandleTypes, SharedEvents,
            };
            match (stand_in.runtime, stand_in.major) {
                (Runtime::Cudart, _) => assert_eq!(unknown, []),
                (Runtime::Hip, 5) => {
                    let [pools, fabric] = [PoolHandleTypes, MemoryFabricHandles];
                    let of_cards = [HostRegister, MemoryDescriptors, PageRdma];
                    assert_eq!(unknown[..3], of_cards);
                    assert_eq!(unknown[3..], [pools, DmaBuf, SharedEvents, fabric, HostNumaNode]);
                }
                (Runtime::Hip, _) => assert_eq!(unknown, [MemoryDescriptors, PageRdma, DmaBuf, SharedEvents]),
                _ => {
                    let [registers, cards] = [HostRegister, PageRdma];
                    assert_eq!(unknown[..2], [registers, cards]);
                    assert_eq!(unknown[2..], [DmaBuf, SharedEvents, MemoryFabricHandles, HostNumaNode]);
                }
            }
            // Where the library does not say, registering is tried; and the kernel is asked for the node.
            if unknown.contains(&HostRegister) {
                assert_eq!(driver.attribute(0, HostRegister), Ok(1));
            }
            if unknown.contains(&HostNumaNode) {
                assert_eq!(
                    driver.attribute(0, HostNumaNode),
                    Ok(-1),
                    "no device has such a number on the bus"
                );
            }
        });
    }
}

#[test]
fn a_library_without_contexts_has_its_current_device_back() {
    for stand_in in [HIP, MACA] {
        in_child("owed::a_library_without_contexts_has_its_current_device_back", stand_in, &[], || {
            let (_sim, driver) = start(stand_in);
            let current: unsafe extern "C" fn() -> i32 = stand_in.function("stand_in_current\0");
            // SAFETY: the functions are the stand-in's.
            let current = || unsafe { current() };
            let set: Set = own(stand_in, "SetDevice");
            for before in [0, 1] {
                // SAFETY: the library has two devices.
                assert_eq!(unsafe { set(before) }, 0);
                for ordinal in [0, 1] {
                    let address = driver.allocate_device(ordinal, 256).expect("there is memory");
                    let of = PointerInfo { kind: MemoryKind::Device, ordinal: Some(ordinal) };
                    assert_eq!(driver.pointer_attributes(address), Ok(Some(of)));
                    // A call that fails cleans up, too.
                    let refused = driver.allocate_device(ordinal, 1 << 50).map_err(|error| error.code);
                    assert_eq!(refused, Err(Code::OUT_OF_MEMORY));
                    // SAFETY: it was allocated above, and nobody uses it.
                    assert_eq!(unsafe { driver.free_device(ordinal, address) }, Ok(()));
                    assert_eq!(current(), before);
                    assert_eq!(driver.context_device(), Ok(Some(before as u32)));
                }
            }
            assert_eq!(driver.set_context(0), Ok(()));
            assert_eq!(current(), 0);
            assert_eq!(driver.set_context(2), Err(DriverError::new(Call::ContextSet, Code::INVALID_DEVICE)));
        });
    }
}

#[test]
fn a_strangers_context_is_current_again() {
    in_child("owed::a_strangers_context_is_current_again", CUDART, &[], || {
        let (_sim, driver) = start(CUDART);
        let current: unsafe extern "C" fn() -> usize = CUDART.function("stand_in_current\0");
        let push: unsafe extern "C" fn(usize) = CUDART.function("stand_in_push\0");
        // SAFETY: the functions are the stand-in's.
        let current = || unsafe { current() };
        let calls = || {
            assert!(driver.memory_info(1).is_ok());
            assert!(driver.pointer_attributes(7).is_ok());
            assert!(driver.allocate_device(0, 1 << 50).is_err());
        };
        calls();
        assert_eq!((current(), driver.context_device()), (0, Ok(None)), "no device is made current for good");
        // SAFETY: the stand-in takes any number for a context.
        unsafe { push(0xF0) };
        calls();
        assert_eq!(current(), 0xF0);
        // Streams of a context of somebody's own are not ours; those of a green context are.
        // SAFETY: the stand-in takes these numbers for streams.
        let ask = |stream| unsafe { driver.stream_context_device(RawStream(stream)) };
        assert_eq!((ask(0xF5), ask(0x6E)), (Ok(None), Ok(Some(0))));
        assert_eq!(current(), 0xF0);
    });
}

#[test]
fn an_error_of_ours_is_taken_back_and_a_programs_is_left() {
    for stand_in in EVERY {
        in_child("owed::an_error_of_ours_is_taken_back_and_a_programs_is_left", stand_in, &[], || {
            let (sim, driver) = start(stand_in);
            let (peek, take): (Code0, Code0) =
                (own(stand_in, "PeekAtLastError"), own(stand_in, "GetLastError"));
            // SAFETY: neither takes an argument.
            let (peek, take) = (|| unsafe { peek() }, || unsafe { take() });
            assert!(driver.allocate_device(0, 1 << 50).is_err());
            assert_eq!(peek(), 0, "running out is not a program's error");
            let stream = driver.stream_create(0, StreamFlags::default()).expect("a stream can be made");
            sim.inject(Fault::nth(Call::StreamQuery, 1, Code::NOT_READY));
            // SAFETY: the stream is live.
            assert_eq!(unsafe { driver.stream_query(0, stream) }, Ok(false));
            assert_eq!(peek(), 0, "neither is work that is not done");
            // A program's own error, which it has not asked for yet.
            let set: Set = own(stand_in, "SetDevice");
            // SAFETY: the library refuses a device that is not there.
            assert_eq!(unsafe { set(77) }, 101);
            assert!(driver.memory_info(0).is_ok());
            // SAFETY: the stream is live.
            assert_eq!(unsafe { driver.stream_query(0, stream) }, Ok(true));
            assert_eq!((peek(), take(), peek()), (101, 101, 0));
            // SAFETY: the stream was made above.
            assert_eq!(unsafe { driver.stream_destroy(0, stream) }, Ok(()));
        });
    }
}

/// The driver behind cudart sets no last error, so that one that waits there is the program's, whatever its number is.
#[test]
fn an_error_of_the_driver_behind_the_library_takes_no_programs_back() {
    in_child("owed::an_error_of_the_driver_behind_the_library_takes_no_programs_back", CUDART, &[], || {
        let (sim, driver) = start(CUDART);
        let (peek, take): (Code0, Code0) = (own(CUDART, "PeekAtLastError"), own(CUDART, "GetLastError"));
        // SAFETY: neither takes an argument.
        let (peek, take) = (|| unsafe { peek() }, || unsafe { take() });
        let malloc: unsafe extern "C" fn(*mut usize, usize) -> u32 = own(CUDART, "Malloc");
        let stream = driver.stream_create(0, StreamFlags::default()).expect("a stream can be made");
        let out = |call| DriverError::new(call, Code::OUT_OF_MEMORY);
        let calls = [Call::MemoryCreate, Call::VirtualReserve, Call::FillAsync, Call::PointerAttributes];
        for call in calls {
            // A program has run out of memory, and has not asked yet.
            assert!(driver.set_context(0).is_ok());
            // SAFETY: the place is writable.
            assert_eq!(unsafe { malloc(&mut 0, 1 << 50) }, 2);
            sim.inject(Fault::nth(call, 1, Code::OUT_OF_MEMORY));
            let refused = match call {
                Call::MemoryCreate => driver.memory_create(0, 2 << 20, HandleType::NONE).err(),
                Call::VirtualReserve => driver.virtual_reserve(0, 2 << 20, 0).err(),
                Call::PointerAttributes => driver.plain_allocation(7).err(),
                // SAFETY: the stream is live, and the call is refused before anybody looks at the range.
                _ => unsafe { driver.fill_async(0, 512, FillValue::U32(1), 1, stream) }.err(),
            };
            assert_eq!(refused, Some(out(call)));
            assert_eq!((peek(), take(), peek()), (2, 2, 0), "{call:?}");
        }
        // The fill of single bytes is the library's, and so is the question about the kind of memory.
        sim.inject(Fault::nth(Call::FillAsync, 1, Code::OUT_OF_MEMORY));
        // SAFETY: as above.
        let refused = unsafe { driver.fill_async(0, 512, FillValue::U8(1), 1, stream) };
        assert_eq!((refused, peek()), (Err(out(Call::FillAsync)), 0));
        sim.inject(Fault::nth(Call::PointerAttributes, 1, Code::OUT_OF_MEMORY));
        let refused = driver.pointer_attributes(7);
        assert_eq!((refused, peek()), (Err(out(Call::PointerAttributes)), 0));
        // SAFETY: the stream was made above.
        assert_eq!(unsafe { driver.stream_destroy(0, stream) }, Ok(()));
    });
}

#[test]
fn what_is_missing_is_refused_and_the_device_does_not_have_it() {
    for stand_in in EVERY.map(|stand_in| stand_in.lacking("LACKS_OPTIONAL")) {
        in_child("owed::what_is_missing_is_refused_and_the_device_does_not_have_it", stand_in, &[], || {
            let (sim, driver) = start(stand_in);
            assert!(driver.missing().len() > 20, "{:?}", driver.missing());
            use DeviceAttribute as A;
            for attribute in [
                A::MemoryPools,
                A::ManagedMemory,
                A::ConcurrentManagedAccess,
                A::VirtualMemory,
                A::HostRegister,
            ] {
                assert_eq!(driver.attribute(0, attribute), Ok(0), "{attribute:?}");
            }
            let unsupported = |call| Some(DriverError::new(call, Code::NOT_SUPPORTED));
            let not_found = |call| Some(DriverError::new(call, Code::NOT_FOUND));
            assert_eq!(driver.pool_create(0, PoolProperties::default()).err(), unsupported(Call::PoolCreate));
            assert_eq!(driver.pool_default(0, PoolKind::Device).err(), unsupported(Call::PoolDefault));
            assert_eq!(driver.allocate_managed(0, 1).err(), unsupported(Call::AllocateManaged));
            assert_eq!(driver.virtual_granularity(0).err(), unsupported(Call::VirtualGranularity));
            assert_eq!(driver.memory_create(0, 1, HandleType::NONE).err(), unsupported(Call::MemoryCreate));
            assert_eq!(driver.pointer_attributes(7).err(), not_found(Call::PointerAttributes));
            assert_eq!(driver.stream_priority_range(0), Ok((0, 0)));
            let stream = driver.stream_create(0, StreamFlags::default()).expect("a stream can be made");
            // SAFETY: the stream is live; the ranges are refused before anybody looks at them.
            unsafe {
                assert_eq!(driver.stream_id(0, stream).err(), not_found(Call::StreamId));
                assert_eq!(driver.stream_context_device(stream).err(), not_found(Call::StreamContext));
                assert_eq!(
                    driver.prefetch_async(0, 0, 1, Location::Host, stream).err(),
                    unsupported(Call::PrefetchAsync)
                );
                assert_eq!(
                    driver.fill_async(0, 0, FillValue::U16(1), 1, stream).err(),
                    unsupported(Call::FillAsync)
                );
                // Without captures, none is under way.
                assert_eq!(
                    driver.stream_begin_capture(0, stream, CaptureMode::Relaxed).err(),
                    unsupported(Call::BeginCapture)
                );
                let dropped = Arc::new(());
                let held = Arc::clone(&dropped);
                let refused = driver.stream_host_call(0, stream, Box::new(move || drop(held)));
                assert_eq!(refused.err(), unsupported(Call::StreamHostCall));
                assert_eq!(Arc::strong_count(&dropped), 1, "it is dropped without being called");
            }
            // What is required works, on both devices: the current device stands for contexts.
            for ordinal in [0, 1] {
                let address = driver.allocate_device(ordinal, 256).expect("there is memory");
                let (mut from, mut to) = ([0xAB_u8; 256], [0_u8; 256]);
                let [from, to] =
                    [&mut from, &mut to].map(|bytes| bytes.as_mut_ptr().expose_provenance() as u64);
                // SAFETY: all ranges are live, and nobody else uses them.
                unsafe {
                    assert_eq!(driver.copy(ordinal, address, from, 256), Ok(()));
                    assert_eq!(driver.copy(ordinal, to, address, 256), Ok(()));
                    assert_eq!(driver.free_device(ordinal, address), Ok(()));
                    assert_eq!(*std::ptr::with_exposed_provenance::<u8>(to as usize + 255), 0xAB);
                }
            }
            assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
            // SAFETY: the stream was made above.
            assert_eq!(unsafe { driver.stream_destroy(0, stream) }, Ok(()));
        });
    }
}

#[test]
fn memory_that_is_not_aligned_is_refused_and_given_back() {
    for stand_in in EVERY {
        in_child(
            "owed::memory_that_is_not_aligned_is_refused_and_given_back",
            stand_in,
            &[("STAND_IN_SHIFT", "64")],
            || {
                let (sim, driver) = start(stand_in);
                let before = driver.memory_info(0).expect("it can be asked for").free_bytes;
                let refused = DriverError::new(Call::AllocateDevice, Code::NOT_SUPPORTED);
                assert_eq!(driver.allocate_device(0, 1 << 20), Err(refused));
                assert_eq!(driver.memory_info(0).expect("it can be asked for").free_bytes, before);
                assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
            },
        );
    }
}

#[test]
fn pinned_memory_with_two_addresses_is_refused_and_freed() {
    for stand_in in EVERY {
        in_child(
            "owed::pinned_memory_with_two_addresses_is_refused_and_freed",
            stand_in,
            &[("STAND_IN_SPLIT_ADDRESSES", "4096")],
            || {
                let (sim, driver) = start(stand_in);
                let refused = DriverError::new(Call::AllocatePinned, Code::NOT_SUPPORTED);
                assert_eq!(driver.allocate_pinned(0, 4096, PinnedFlags::default()), Err(refused));
                let unmapped = PinnedFlags { mapped: false, ..PinnedFlags::default() };
                let pinned = driver.allocate_pinned(0, 4096, unmapped).expect("it has one address only");
                // SAFETY: it was just made, and nobody uses it.
                assert_eq!(unsafe { driver.free_pinned(0, pinned) }, Ok(()));
                assert!(sim.leaks().is_empty(), "{:?}", sim.leaks());
            },
        );
    }
}

#[test]
fn zero_bytes_never_reach_a_library() {
    for stand_in in EVERY {
        in_child("owed::zero_bytes_never_reach_a_library", stand_in, &[], || {
            let (sim, driver) = start(stand_in);
            let empty = |call| Some(DriverError::new(call, Code::INVALID_VALUE));
            assert_eq!(driver.allocate_device(0, 0).err(), empty(Call::AllocateDevice));
            assert_eq!(driver.allocate_managed(0, 0).err(), empty(Call::AllocateManaged));
            assert_eq!(
                driver.allocate_pinned(0, 0, PinnedFlags::default()).err(),
                empty(Call::AllocatePinned)
            );
            assert_eq!(sim.calls().total(), 0);
        });
    }
}

#[test]
fn a_host_call_that_panics_ends_there() {
    for stand_in in EVERY {
        in_child("owed::a_host_call_that_panics_ends_there", stand_in, &[], || {
            static PANICS: AtomicUsize = AtomicUsize::new(0);
            let (_sim, driver) = start(stand_in);
            let stream = driver.stream_create(0, StreamFlags::default()).expect("a stream can be made");
            panic::set_hook(Box::new(|_| {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }));
            // SAFETY: the stream is live; the panic is caught.
            unsafe {
                assert_eq!(driver.stream_host_call(0, stream, Box::new(|| panic!("in a host call"))), Ok(()));
                assert_eq!(driver.stream_synchronize(0, stream), Ok(()));
                assert_eq!(driver.stream_destroy(0, stream), Ok(()));
            }
            assert_eq!(PANICS.load(Ordering::SeqCst), 1);
        });
    }
}

#[test]
fn a_copy_that_is_refused_goes_from_device_to_device() {
    for stand_in in EVERY {
        in_child("owed::a_copy_that_is_refused_goes_from_device_to_device", stand_in, &[], || {
            let (sim, driver) = start(stand_in);
            let [from, to] =
                [0, 1].map(|ordinal| driver.allocate_device(ordinal, 256).expect("there is memory"));
            let stream = driver.stream_create(0, StreamFlags::default()).expect("a stream can be made");
            let fault = Fault::nth(Call::CopyAsync, 1, Code::INVALID_VALUE);
            sim.inject(fault);
            let before = sim.calls()[Call::CopyAsync];
            // SAFETY: all is live until the stream is synchronised.
            unsafe {
                assert_eq!(driver.fill_async(0, from, FillValue::U8(5), 256, stream), Ok(()));
                assert_eq!(
                    driver.copy_async(0, to, from, 256, stream),
                    Ok(()),
                    "by the call that names both"
                );
                assert_eq!(driver.stream_synchronize(0, stream), Ok(()));
            }
            assert_eq!(sim.calls()[Call::CopyAsync], before + 2);
            // On one device, a refusal is one.
            sim.inject(Fault::nth(Call::CopyAsync, 1, Code::INVALID_VALUE));
            // SAFETY: as above.
            let refused = unsafe { driver.copy_async(0, from, from + 128, 64, stream) };
            assert_eq!(refused, Err(DriverError::new(Call::CopyAsync, Code::INVALID_VALUE)));
            // SAFETY: no work is left, and nobody uses them again.
            unsafe {
                assert_eq!(driver.stream_destroy(0, stream), Ok(()));
                assert_eq!((driver.free_device(0, from), driver.free_device(1, to)), (Ok(()), Ok(())));
            }
        });
    }
}

#[test]
fn a_fork_is_answered_without_a_call() {
    for stand_in in EVERY {
        in_child("owed::a_fork_is_answered_without_a_call", stand_in, &[], || {
            let (_sim, driver) = start(stand_in);
            assert!(driver.memory_info(0).is_ok());
            let before = machine::questions();
            // SAFETY: the child calls nothing but the driver, which must cope, and `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let gone = |error: DriverError| error.code == Code::NOT_INITIALIZED;
                let refused = driver.memory_info(0).is_err_and(gone)
                    && driver.device_count().is_err_and(gone)
                    && driver.allocate_device(0, 1).is_err_and(gone)
                    && RuntimeDriver::load(stand_in.runtime)
                        .is_err_and(|error| Error::from(error).is_shut_down())
                    && machine::questions() == before;
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
}

/// Where there is no library, a child of a fork is told the same as its parent.
#[test]
fn a_fork_without_a_library_is_told_so() {
    in_child("owed::a_fork_without_a_library_is_told_so", HIP, &[], || {
        let load = || {
            // SAFETY: there is no such file.
            let loaded =
                unsafe { RuntimeDriver::load_from(Runtime::Hip, "/nonexistent/libamdhip64.so".as_ref()) };
            loaded.is_err_and(|error| Error::from(error).is_no_device())
        };
        assert!(load());
        // SAFETY: the child calls nothing but the driver, and `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: it does not return.
            unsafe { libc::_exit(if load() { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: `status` is writable and `child` is ours.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    });
}

/// A library that is loaded later shuts itself down earlier.
#[test]
fn an_exit_is_answered_without_a_call_of_a_second_library() {
    static KEPT: OnceLock<Arc<RuntimeDriver>> = OnceLock::new();
    extern "C" fn between() {
        let refused = KEPT.get().is_some_and(|driver| {
            let before = machine::questions();
            driver.memory_info(0).is_err_and(|error| error.code == Code::DEINITIALIZED)
                && machine::questions() == before
        });
        if !refused {
            // SAFETY: it does not return. The status tells the parent.
            unsafe { libc::_exit(3) };
        }
    }
    let second = StandIn::new(Runtime::Hip, 6);
    in_child("owed::an_exit_is_answered_without_a_call_of_a_second_library", HIP, &[], || {
        let (sim, _first) = start(HIP);
        // It runs before what the first library has registered, and after what the second one does.
        // SAFETY: `between` does not unwind.
        assert_eq!(unsafe { libc::atexit(between) }, 0);
        second.put_behind(&sim, 2);
        let driver = second.load();
        assert!(driver.memory_info(0).is_ok());
        std::mem::forget(sim);
        assert!(KEPT.set(driver).is_ok());
    });
}

#[test]
fn an_exit_is_answered_without_a_call() {
    static KEPT: OnceLock<(Runtime, Arc<RuntimeDriver>)> = OnceLock::new();
    extern "C" fn last() {
        let refused = KEPT.get().is_some_and(|(runtime, driver)| {
            let before = machine::questions();
            RuntimeDriver::load(*runtime).is_err_and(|error| Error::from(error).is_shut_down())
                && driver.memory_info(0).is_err_and(|error| error.code == Code::DEINITIALIZED)
                && driver.allocate_device(0, 1).is_err_and(|error| error.code == Code::DEINITIALIZED)
                && machine::questions() == before
        });
        if !refused {
            // SAFETY: it does not return. The status tells the parent.
            unsafe { libc::_exit(3) };
        }
    }
    for stand_in in EVERY {
        in_child("owed::an_exit_is_answered_without_a_call", stand_in, &[], || {
            // Handlers run in reverse order: this one, registered before the library is loaded, runs after the driver's own.
            // SAFETY: `last` does not unwind.
            assert_eq!(unsafe { libc::atexit(last) }, 0);
            let (sim, driver) = start(stand_in);
            assert!(driver.memory_info(0).is_ok());
            // The machine is behind the stand-in until the end.
            std::mem::forget(sim);
            assert!(KEPT.set((stand_in.runtime, driver)).is_ok());
        });
    }
}
