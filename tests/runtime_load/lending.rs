//! What the driver owes to those that lend and borrow memory, whatever a library does or lacks.

use std::sync::Arc;

use alluvion::driver::runtime::Runtime;
use alluvion::driver::{
    Call, Code, DeviceAttribute, Driver, DriverError, DriverResult, EventHandle, HandleType, MapAccess,
    MemoryHandle, PointerHandle, PoolProperties, RawPool, Sharing,
};
use alluvion::sim::{SimConfig, SimDriver};

use crate::child::in_child;
use crate::stand_in::StandIn;

const CUDART: StandIn = StandIn::new(Runtime::Cudart, 13);
const HIP: StandIn = StandIn::new(Runtime::Hip, 7);
const MACA: StandIn = StandIn::new(Runtime::Maca, 3);
const EVERY: [StandIn; 3] = [CUDART, HIP, MACA];

const DESCRIPTOR: HandleType = HandleType::POSIX_FILE_DESCRIPTOR;
const PAGE: usize = 2 << 20;

/// A driver with that simulated process behind it.
fn start(stand_in: StandIn, config: SimConfig, devices: i32) -> (Arc<SimDriver>, Arc<dyn Driver>) {
    let sim = SimDriver::new(config);
    let driver = stand_in.load_for_thread(Arc::clone(&sim), devices);
    (sim, driver)
}

fn of(driver: &dyn Driver) -> &dyn Sharing {
    driver.sharing().expect("it lends memory")
}

fn code<T>(result: DriverResult<T>) -> Result<T, Code> {
    result.map_err(|error| error.code)
}

/// What is tried where one function is missing: the code of each call, and the attributes that go with them.
fn tried(driver: &dyn Driver) -> Vec<(&'static str, Result<u64, Code>)> {
    let sharing = of(driver);
    let attribute = |attribute| driver.attribute(0, attribute).map(|value| value as u64);
    let memory = driver.allocate_device(0, PAGE).expect("there is memory");
    let pages = driver.memory_create(0, PAGE, DESCRIPTOR).expect("there is memory");
    let pool = driver.pool_create(0, PoolProperties { handle_types: DESCRIPTOR, max_bytes: 0 });
    let pool = pool.expect("there are pools");
    // SAFETY: what is asked about is live; bytes that are no handle are refused, and no memory is opened.
    let tried = unsafe {
        let exported = driver.memory_export(0, pages, DESCRIPTOR).expect("they were made for it");
        let imported = sharing.memory_import(0, &exported);
        let released = imported.and_then(|memory| driver.memory_release(0, memory));
        vec![
            ("uuid", code(sharing.device_uuid(0).map(|_| 1))),
            ("handle", code(sharing.memory_handle(0, memory).map(|_| 1))),
            ("open", code(sharing.memory_open(0, MemoryHandle([0; 64])))),
            (
                "event",
                code(
                    sharing
                        .event_create_shared(0)
                        .and_then(|event| driver.event_destroy(0, event).map(|()| 1)),
                ),
            ),
            ("events", code(attribute(DeviceAttribute::SharedEvents))),
            ("import", code(released.map(|()| 1))),
            ("pages", code(attribute(DeviceAttribute::MemoryDescriptors))),
            ("pool access", code(sharing.pool_set_access(0, pool, 0, MapAccess::ReadWrite).map(|()| 1))),
            ("pool export", code(sharing.pool_export(0, pool, DESCRIPTOR).map(|_| 1))),
            ("pool import", code(sharing.pool_import(0, &exported).map(|_| 1))),
            ("block export", code(sharing.pool_export_pointer(0, memory).map(|_| 1))),
            ("block import", code(sharing.pool_import_pointer(0, RawPool(pool.0), PointerHandle([0; 64])))),
            ("pools", code(attribute(DeviceAttribute::PoolHandleTypes))),
        ]
    };
    // SAFETY: all of it was made above, and nobody else has it.
    unsafe {
        assert_eq!(driver.pool_destroy(0, pool), Ok(()));
        assert_eq!(driver.memory_release(0, pages), Ok(()));
        assert_eq!(driver.free_device(0, memory), Ok(()));
    }
    tried
}

/// The stems of the functions, and what is not there without each.
const EACH: [(&str, &[&str]); 10] = [
    ("IpcGetMemHandle", &["handle"]),
    ("IpcOpenMemHandle", &["open"]),
    ("IpcCloseMemHandle", &["open"]),
    ("IpcGetEventHandle", &["event", "events"]),
    ("IpcOpenEventHandle", &["event", "events"]),
    ("MemPoolSetAccess", &["pool access"]),
    ("MemImportFromShareableHandle", &["import", "pages"]),
    ("DeviceGetUuid", &["uuid"]),
    // Without the properties nobody knows where pages are from: the library says so when they are mapped.
    ("MemGetAllocationPropertiesFromHandle", &[]),
    ("DeviceCanAccessPeer", &[]),
];

/// The same of pools, which cudart alone lends.
const EACH_OF_POOLS: [(&str, &[&str]); 4] = [
    ("MemPoolExportToShareableHandle", &["pool export", "pools"]),
    ("MemPoolImportFromShareableHandle", &["pool import", "pools"]),
    ("MemPoolExportPointer", &["block export", "pools"]),
    ("MemPoolImportPointer", &["block import", "pools"]),
];

#[test]
fn each_function_that_is_missing_is_refused_alone() {
    for (stand_in, prefix) in EVERY.into_iter().zip(["cuda", "hip", "mc"]) {
        let expected = {
            let config = stand_in.config().panic_on_unseen_hazards(false);
            let (_sim, driver) = start(stand_in, config, 1);
            tried(&*driver)
        };
        let pools = if stand_in == CUDART { &EACH_OF_POOLS[..] } else { &[] };
        for (stem, gone) in EACH.iter().chain(pools) {
            let is_of_driver =
                ["MemImportFromShareableHandle", "DeviceGetUuid", "MemGetAllocationPropertiesFromHandle"]
                    .contains(stem);
            let prefix = if is_of_driver && stand_in == CUDART { "cu" } else { prefix };
            let name = format!("{prefix}{stem}");
            let sim = SimDriver::new(stand_in.config().panic_on_unseen_hazards(false));
            let driver = stand_in.without(&name).load_for_thread(Arc::clone(&sim), 1);
            assert_eq!(driver.missing(), [name.as_str()]);
            for ((what, result), (_, with_it)) in tried(&*driver).into_iter().zip(&expected) {
                let is_attribute = ["events", "pages", "pools"].contains(&what);
                let without_it = if is_attribute { Ok(0) } else { Err(Code::NOT_SUPPORTED) };
                let expected = if gone.contains(&what) { without_it } else { *with_it };
                assert_eq!(result, expected, "{what}, without {name}");
            }
            let live = sim.live();
            assert!(live.is_empty(), "without {name}: {live:?}");
        }
    }
}

#[test]
fn what_is_no_name_of_an_event_never_reaches_hip() {
    let (sim, driver) = start(HIP, HIP.config(), 1);
    let named = |name: &[u8]| {
        let mut bytes = [b'x'; 64];
        bytes[..name.len()].copy_from_slice(name);
        // SAFETY: there is no exporter that could destroy anything.
        code(unsafe { of(&*driver).event_open(0, EventHandle(bytes)) })
    };
    for name in [&b"/hip_1_2"[..], b"/other_1_2\0", b"\0/hip_1_2\0", b"hip_1_2\0"] {
        assert_eq!(named(name), Err(Code::MAP_FAILED), "{name:?}");
    }
    assert_eq!(sim.calls()[Call::EventOpen], 0);
    // A name is asked for, and nothing else.
    assert!(named(b"/hip_1_4095\0").is_err());
    assert_eq!(sim.calls()[Call::EventOpen], 1);
}

#[test]
fn devices_with_one_number_are_told_apart_from_none() {
    const TEST: &str = "lending::devices_with_one_number_are_told_apart_from_none";
    for stand_in in EVERY {
        in_child(TEST, stand_in, &[("STAND_IN_NO_UUID", "1")], || {
            let (_sim, two) = start(stand_in, stand_in.config().devices(2), 2);
            for ordinal in [0, 1] {
                let refused = DriverError::new(Call::DeviceUuid, Code::NOT_SUPPORTED);
                assert_eq!(of(&*two).device_uuid(ordinal), Err(refused));
            }
            let (_sim, one) = start(stand_in, stand_in.config(), 1);
            assert!(of(&*one).device_uuid(0).is_ok(), "it is the only one");
        });
    }
}

#[test]
fn pages_of_a_device_out_of_reach_are_refused_and_given_back() {
    const TEST: &str = "lending::pages_of_a_device_out_of_reach_are_refused_and_given_back";
    for stand_in in EVERY {
        in_child(TEST, stand_in, &[("STAND_IN_HOME", "1")], || {
            for peers in [false, true] {
                let (sim, driver) = start(stand_in, stand_in.config().devices(2).peers(peers), 2);
                let pages = driver.memory_create(0, PAGE, DESCRIPTOR).expect("there is memory");
                // SAFETY: the pages are live.
                let exported = unsafe { driver.memory_export(0, pages, DESCRIPTOR) }.expect("made for it");
                let imported = of(&*driver).memory_import(0, &exported);
                if peers {
                    // SAFETY: it was just imported, and is not used.
                    let released = unsafe { driver.memory_release(0, imported.expect("it is in reach")) };
                    assert_eq!(released, Ok(()));
                } else {
                    let refused = DriverError::new(Call::MemoryImport, Code::INVALID_VALUE);
                    assert_eq!(imported, Err(refused));
                }
                // SAFETY: the pages are live, and not used.
                assert_eq!(unsafe { driver.memory_release(0, pages) }, Ok(()));
                drop(exported);
                assert!(sim.live().is_empty() && sim.hazards().is_empty(), "{:?}", sim.live());
            }
        });
    }
}

#[test]
fn memory_that_is_opened_where_it_is_not_aligned_is_closed() {
    const TEST: &str = "lending::memory_that_is_opened_where_it_is_not_aligned_is_closed";
    for stand_in in EVERY {
        in_child(TEST, stand_in, &[("STAND_IN_SHIFT", "64")], || {
            let (sim, driver) = start(stand_in, stand_in.config(), 1);
            let lender = sim.process();
            let memory = lender.allocate_device(0, PAGE).expect("there is memory");
            // SAFETY: the memory is live.
            let handle = unsafe { of(&*lender).memory_handle(0, memory) }.expect("it can be lent");
            // SAFETY: it is freed below.
            let opened = unsafe { of(&*driver).memory_open(0, handle) };
            assert_eq!(opened, Err(DriverError::new(Call::MemoryOpen, Code::NOT_SUPPORTED)));
            assert_eq!(sim.calls()[Call::MemoryClose], 1);
            // SAFETY: nobody has it.
            assert_eq!(unsafe { lender.free_device(0, memory) }, Ok(()));
            for process in [&sim, &lender] {
                assert!(process.hazards().is_empty() && process.live().is_empty());
            }
        });
    }
}

#[test]
fn a_device_is_let_in_once_and_may_ask_again() {
    const TEST: &str = "lending::a_device_is_let_in_once_and_may_ask_again";
    for stand_in in EVERY {
        in_child(TEST, stand_in, &[], || {
            let (sim, driver) = start(stand_in, stand_in.config().devices(2), 2);
            let sharing = of(&*driver);
            assert_eq!((sharing.can_reach(0, 1), sharing.can_reach(1, 1)), (Ok(true), Ok(false)));
            let before = driver.context_device();
            assert_eq!((sharing.reach(0, 1), sharing.reach(0, 1)), (Ok(()), Ok(())));
            assert_eq!(sim.calls()[Call::Reach], 2, "the library says that it has been, which is no error");
            assert_eq!(driver.context_device(), before);
            let itself = DriverError::new(Call::Reach, Code::PEER_ACCESS_UNSUPPORTED);
            assert_eq!(sharing.reach(1, 1), Err(itself));
            assert_eq!(code(sharing.can_reach(0, 2)), Err(Code::INVALID_DEVICE));
        });
        for stem in ["DeviceCanAccessPeer", "DeviceEnablePeerAccess"] {
            let prefix = ["cuda", "hip", "mc"][stand_in.runtime as usize];
            let lacking = stand_in.without(&format!("{prefix}{stem}"));
            in_child(TEST, lacking, &[], || {
                let (_sim, driver) = start(lacking, stand_in.config().devices(2), 2);
                assert_eq!(of(&*driver).can_reach(0, 1), Ok(false));
                let refused = DriverError::new(Call::Reach, Code::PEER_ACCESS_UNSUPPORTED);
                assert_eq!(of(&*driver).reach(0, 1), Err(refused));
            });
        }
    }
}
