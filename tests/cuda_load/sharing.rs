//! Memory for other processes and devices: what libcuda is given, and what becomes of what it answers.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use alluvion::driver::cuda::CudaDriver;
use alluvion::driver::{
    Call, Code, Driver, DriverError, DriverResult, EventHandle, ExportedMemory, HandleType, MapAccess,
    MemoryHandle, PointerHandle, RawEvent, RawMemory, RawPool, Sharing,
};
use cudarc::driver::sys;

use super::{NO_OPTIONAL, WHOLE, counters, in_child};

const THREE_DEVICES: [(&str, &str); 1] = [("STUB_DEVICES", "3")];
/// What the stub gives for memory that it imports, and for a pool.
const IMPORTED: RawMemory = RawMemory(0x1234_5678_9ABC_DEF0);
const POOL: RawPool = RawPool(0x9001);
/// The kind of calls, as the stub numbers them.
const LOANS: usize = 4;

/// The driver, with methods that are safe to call: the stub takes any number for an address, an event or a pool, and touches nothing.
struct Lender(Arc<CudaDriver>);

macro_rules! safe {
    ($(fn $name:ident(self $(, $argument:ident: $type:ty)*) -> $result:ty;)+) => {
        $(fn $name(&self, ordinal: u32 $(, $argument: $type)*) -> DriverResult<$result> {
            // SAFETY: see the type.
            unsafe { self.seam().$name(ordinal $(, $argument)*) }
        })+
    };
}

impl Lender {
    fn new() -> Self {
        Self(CudaDriver::load().expect("the stub starts"))
    }

    fn seam(&self) -> &dyn Sharing {
        self.0.sharing().expect("libcuda has these calls")
    }

    safe! {
        fn memory_handle(self, address: u64) -> MemoryHandle;
        fn memory_open(self, handle: MemoryHandle) -> u64;
        fn memory_close(self, address: u64) -> ();
        fn event_handle(self, event: RawEvent) -> EventHandle;
        fn event_open(self, handle: EventHandle) -> RawEvent;
        fn pool_export(self, pool: RawPool, handle_type: HandleType) -> ExportedMemory;
        fn pool_export_pointer(self, address: u64) -> PointerHandle;
        fn pool_import_pointer(self, pool: RawPool, handle: PointerHandle) -> u64;
        fn pool_set_access(self, pool: RawPool, accessor: u32, access: MapAccess) -> ();
    }

    fn memory_export(&self, memory: RawMemory, handle_type: HandleType) -> DriverResult<ExportedMemory> {
        // SAFETY: see the type.
        unsafe { self.0.memory_export(0, memory, handle_type) }
    }
}

/// What the stub's last call of these was given, and the device whose context was current.
fn given() -> [u64; 5] {
    // SAFETY: the library is loaded: each caller has loaded the driver.
    let library = unsafe { sys::culib() };
    // SAFETY: the stub's function has this type.
    let get = unsafe { library.get::<extern "C" fn() -> [u64; 5]>(b"stub_given\0") };
    get.expect("the stub is what was loaded")()
}

/// Has the stub's next `times` calls of these return `code`.
fn answer(code: Code, times: usize) {
    // SAFETY: the library is loaded: each caller has loaded the driver.
    let library = unsafe { sys::culib() };
    // SAFETY: the stub's function has this type.
    let tell = unsafe { library.get::<extern "C" fn(usize, u32, usize)>(b"stub_answer\0") };
    tell.expect("the stub is what was loaded")(LOANS, code.0, times);
}

/// 64 bytes from 0 on, the last eight of which are a number: what the stub takes for a handle.
fn bytes_of(number: u64) -> [u8; 64] {
    let mut bytes = std::array::from_fn(|at| at as u8);
    bytes[56..].copy_from_slice(&number.to_ne_bytes());
    bytes
}

fn descriptor() -> OwnedFd {
    File::open("/dev/null").expect("it is there").into()
}

/// Every call, each with its name.
fn every_call(lender: &Lender, ordinal: u32) -> [(Call, DriverResult<()>); 13] {
    let fabric = ExportedMemory::Fabric(Box::new(bytes_of(5)));
    let (address, event, pool) = (0x7000_0000, RawEvent(0xE6), POOL);
    [
        (Call::MemoryHandle, lender.memory_handle(ordinal, address).map(drop)),
        (Call::MemoryOpen, lender.memory_open(ordinal, MemoryHandle(bytes_of(1))).map(drop)),
        (Call::MemoryClose, lender.memory_close(ordinal, address)),
        (Call::EventHandle, lender.event_handle(ordinal, event).map(drop)),
        (Call::EventOpen, lender.event_open(ordinal, EventHandle(bytes_of(1))).map(drop)),
        (Call::PoolExport, lender.pool_export(ordinal, pool, HandleType::FABRIC).map(drop)),
        (Call::PoolExportPointer, lender.pool_export_pointer(ordinal, address).map(drop)),
        (
            Call::PoolImportPointer,
            lender.pool_import_pointer(ordinal, pool, PointerHandle(bytes_of(1))).map(drop),
        ),
        (Call::PoolSetAccess, lender.pool_set_access(ordinal, pool, 0, MapAccess::Read)),
        (Call::DeviceUuid, lender.seam().device_uuid(ordinal).map(drop)),
        (Call::PoolImport, lender.seam().pool_import(ordinal, &fabric).map(drop)),
        (Call::MemoryImport, lender.seam().memory_import(ordinal, &fabric).map(drop)),
        (Call::CanReach, lender.seam().can_reach(ordinal, 1).map(drop)),
    ]
}

#[test]
fn libcuda_is_given_what_the_caller_gave() {
    in_child("sharing::libcuda_is_given_what_the_caller_gave", &WHOLE, &THREE_DEVICES, || {
        let lender = Lender::new();
        assert_eq!(lender.seam().device_uuid(1), Ok(std::array::from_fn(|at| at as u8 + 16)));
        let handle = lender.memory_handle(1, 0x7000_0100).expect("it is taken");
        assert_eq!((handle.0, given()), (bytes_of(0x7000_0100), [0x7000_0100, 0, 0, 0, 1]));
        // By value, with the flag that must be given.
        assert_eq!(lender.memory_open(0, handle), Ok(0x7000_0101));
        assert_eq!(given(), [0x7000_0100, 1, 0, 0, 0]);
        assert_eq!(lender.memory_close(0, 0x7000_0101), Ok(()));
        assert_eq!(given(), [0x7000_0101, 0, 0, 0, 0]);

        // The stub names an event by its flags: those of processes, and no timing.
        assert_eq!(lender.seam().event_create_shared(0), Ok(RawEvent(0xE6)));
        let handle = lender.event_handle(2, RawEvent(0xE6)).expect("it is taken");
        assert_eq!((handle.0, given()), (bytes_of(0xE6), [0xE6, 0, 0, 0, 2]));
        assert_eq!((lender.event_open(1, handle), given()), (Ok(RawEvent(0xE7)), [0xE6, 0, 0, 0, 1]));

        let handle = lender.pool_export_pointer(0, 0x7000_0200).expect("it is taken");
        assert_eq!((handle.0, given()), (bytes_of(0x7000_0200), [0x7000_0200, 0, 0, 0, 0]));
        assert_eq!(lender.pool_import_pointer(1, POOL, handle), Ok(0x7000_0201));
        assert_eq!(given(), [0x9001, 0x7000_0200, 0, 0, 1]);

        for (access, flags) in [(MapAccess::None, 0), (MapAccess::Read, 1), (MapAccess::ReadWrite, 3)] {
            assert_eq!(lender.pool_set_access(0, POOL, 2, access), Ok(()));
            assert_eq!(given(), [0x9001, 2, flags, 0, 0]);
        }
    });
}

#[test]
fn descriptors_and_fabric_handles_travel_as_libcuda_wants_them() {
    let test = "sharing::descriptors_and_fabric_handles_travel_as_libcuda_wants_them";
    in_child(test, &WHOLE, &THREE_DEVICES, || {
        let lender = Lender::new();
        let pool = |handle_type| lender.pool_export(0, RawPool(0xF001), handle_type);
        let memory = |handle_type| lender.memory_export(RawMemory(0xF001), handle_type);
        let exports = [
            [pool(HandleType::POSIX_FILE_DESCRIPTOR), pool(HandleType::FABRIC)],
            [memory(HandleType::POSIX_FILE_DESCRIPTOR), memory(HandleType::FABRIC)],
        ];
        assert_eq!(given(), [0xF001, 8, 0, 0, 0]);
        for [descriptor, fabric] in exports {
            let (Ok(ExportedMemory::FileDescriptor(descriptor)), Ok(ExportedMemory::Fabric(fabric))) =
                (descriptor, fabric)
            else {
                panic!("each is what was asked for");
            };
            // SAFETY: the descriptor is open.
            let flags = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETFD) };
            assert_eq!(flags, libc::FD_CLOEXEC, "no program that this one starts has it");
            assert_eq!(*fabric, bytes_of(0xF001));
        }
        // One type, and one of those that there are here.
        for handle_type in [HandleType::NONE, HandleType::WIN32, HandleType(9)] {
            let error = pool(handle_type).unwrap_err();
            assert_eq!(error, DriverError::new(Call::PoolExport, Code::INVALID_VALUE));
        }

        // The descriptor itself is the pointer. It stays the caller's.
        let descriptor = descriptor();
        let number = descriptor.as_raw_fd() as u64;
        let exported = ExportedMemory::FileDescriptor(descriptor);
        assert_eq!(
            (lender.seam().pool_import(1, &exported).ok(), given()),
            (Some(POOL), [number, 1, 0, 0, 1])
        );
        assert_eq!(
            (lender.seam().memory_import(0, &exported).ok(), given()),
            (Some(IMPORTED), [number, 1, 0, 0, 0])
        );
        let ExportedMemory::FileDescriptor(descriptor) = exported else { unreachable!() };
        File::from(descriptor).metadata().expect("it is open");
        let exported = ExportedMemory::Fabric(Box::new(bytes_of(77)));
        assert_eq!((lender.seam().pool_import(2, &exported).ok(), given()), (Some(POOL), [77, 8, 0, 0, 2]));
        assert_eq!(
            (lender.seam().memory_import(0, &exported).ok(), given()),
            (Some(IMPORTED), [77, 8, 0, 0, 0])
        );
    });
}

#[test]
fn memory_of_a_device_out_of_reach_is_given_back() {
    let variables = [("STUB_DEVICES", "3"), ("STUB_HOME", "1")];
    in_child("sharing::memory_of_a_device_out_of_reach_is_given_back", &WHOLE, &variables, || {
        let lender = Lender::new();
        let exported = ExportedMemory::FileDescriptor(descriptor());
        assert_eq!(lender.seam().memory_import(1, &exported), Ok(IMPORTED));
        assert_eq!(lender.seam().memory_import(0, &exported), Ok(IMPORTED), "its peer's");
        let refused = DriverError::new(Call::MemoryImport, Code::INVALID_VALUE);
        assert_eq!(lender.seam().memory_import(2, &exported), Err(refused));
        assert_eq!(given(), [IMPORTED.0, 0, 0, 0, 2], "it was released");
        // What is no memory of a device after all. The first answer is the import's.
        answer(Code(0), 1);
        answer(Code::INVALID_VALUE, 1);
        assert_eq!(lender.seam().memory_import(1, &exported), Err(refused));
        assert_eq!(given(), [IMPORTED.0, 0, 0, 0, 1], "it was released");
    });
}

#[test]
fn memory_of_a_device_that_is_not_seen_is_taken() {
    let variables = [("STUB_DEVICES", "3"), ("STUB_HOME", "7")];
    in_child("sharing::memory_of_a_device_that_is_not_seen_is_taken", &WHOLE, &variables, || {
        let lender = Lender::new();
        // Only libcuda can say whether it can be mapped.
        let exported = ExportedMemory::FileDescriptor(descriptor());
        assert_eq!(lender.seam().memory_import(0, &exported), Ok(IMPORTED));
    });
}

#[test]
fn devices_reach_those_that_libcuda_says() {
    in_child("sharing::devices_reach_those_that_libcuda_says", &WHOLE, &THREE_DEVICES, || {
        let lender = Lender::new();
        assert_eq!([0, 1, 2].map(|peer| lender.seam().can_reach(0, peer)), [Ok(false), Ok(true), Ok(false)]);
        assert_eq!(counters()[3], 0, "a question makes no context");
        // In the context of the one, with the context of the other.
        assert_eq!((lender.seam().reach(0, 1), given()), (Ok(()), [0xC1, 0, 0, 0, 0]));
        assert_eq!((lender.seam().reach(1, 0), given()), (Ok(()), [0xC0, 0, 0, 0, 1]));
        answer(Code(0), 1);
        answer(Code::PEER_ACCESS_ALREADY_ENABLED, 1);
        assert_eq!(lender.seam().reach(1, 0), Ok(()), "somebody has asked before");
        let before = given();
        let refused = Err(DriverError::new(Call::Reach, Code::PEER_ACCESS_UNSUPPORTED));
        assert_eq!(
            (lender.seam().reach(0, 2), lender.seam().reach(1, 1), given()),
            (refused, refused, before)
        );
        let absent = |call| DriverError::new(call, Code::INVALID_DEVICE);
        assert_eq!(lender.seam().can_reach(0, 3), Err(absent(Call::CanReach)));
        assert_eq!(lender.seam().can_reach(3, 0), Err(absent(Call::CanReach)));
        let set = lender.pool_set_access(0, POOL, 3, MapAccess::Read);
        assert_eq!((set, given()), (Err(absent(Call::PoolSetAccess)), before));
    });
}

#[test]
fn an_error_of_any_of_these_calls_is_told() {
    in_child("sharing::an_error_of_any_of_these_calls_is_told", &WHOLE, &THREE_DEVICES, || {
        let lender = Lender::new();
        assert!(every_call(&lender, 0).into_iter().all(|(_, result)| result.is_ok()));
        for code in [Code::NOT_SUPPORTED, Code::OUT_OF_MEMORY, Code::INVALID_HANDLE, Code(205), Code(4242)] {
            // None of them makes a second call after one that has failed.
            answer(code, every_call(&lender, 0).len());
            for (call, result) in every_call(&lender, 0) {
                assert_eq!(result, Err(DriverError::new(call, code)));
            }
            assert!(every_call(&lender, 0).into_iter().all(|(_, result)| result.is_ok()));
            // Of two calls, the second.
            answer(Code(0), 1);
            answer(code, 1);
            assert_eq!(lender.seam().reach(0, 1), Err(DriverError::new(Call::Reach, code)));
        }
        let absent = Code::INVALID_DEVICE;
        for (call, result) in every_call(&lender, 3) {
            assert_eq!(result, Err(DriverError::new(call, absent)));
        }
    });
}

#[test]
fn bytes_of_elsewhere_are_refused() {
    in_child("sharing::bytes_of_elsewhere_are_refused", &WHOLE, &[], || {
        let lender = Lender::new();
        for bytes in [[0; 64], [0xFF; 64]] {
            let refused = [
                lender.memory_open(0, MemoryHandle(bytes)).err(),
                lender.event_open(0, EventHandle(bytes)).err(),
                lender.pool_import_pointer(0, POOL, PointerHandle(bytes)).err(),
            ];
            assert_eq!(refused.map(|error| error.map(|error| error.code)), [Some(Code::INVALID_VALUE); 3]);
        }
    });
}

#[test]
fn a_driver_that_lacks_these_calls_says_so() {
    in_child("sharing::a_driver_that_lacks_these_calls_says_so", &NO_OPTIONAL, &THREE_DEVICES, || {
        let lender = Lender::new();
        for (call, result) in every_call(&lender, 0) {
            assert_eq!(result, Err(DriverError::new(call, Code::NOT_FOUND)));
        }
        assert_eq!(lender.seam().reach(0, 1).unwrap_err().code, Code::NOT_FOUND);
        assert_eq!(lender.seam().can_reach(0, 0), Ok(false));
    });
}
