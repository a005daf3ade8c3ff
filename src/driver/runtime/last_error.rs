//! The code of a call, and the last error that a library keeps for each thread.

#![expect(unsafe_code, reason = "calls a vendor's library")]

use core::ffi::c_uint;

use super::RuntimeLibrary;
use crate::driver::library::abi;
use crate::driver::{Call, DriverError, DriverResult};

impl RuntimeLibrary {
    /// The code of a call, as CUDA numbers it. A code that the library remembers as the thread's last error is taken back there:
    /// unless it is another call's, which the program may want to see.
    pub(super) fn result_of(&self, call: Call, code: c_uint) -> DriverResult<()> {
        if code == abi::SUCCESS { Ok(()) } else { Err(self.failed(call, code, self.asks_driver(call))) }
    }

    /// The same, of a function of the driver behind the library, whose errors no thread remembers.
    pub(super) fn check_of_driver(&self, call: Call, code: c_uint) -> DriverResult<()> {
        if code == abi::SUCCESS { Ok(()) } else { Err(self.failed(call, code, true)) }
    }

    #[cold]
    fn failed(&self, call: Call, code: c_uint, is_of_driver: bool) -> DriverError {
        // An equal one that waits there is the program's, if the driver was asked.
        // SAFETY: neither function takes an argument.
        if !is_of_driver && unsafe { (self.symbols.peek_at_last_error)() } == code {
            // SAFETY: as above.
            unsafe { (self.symbols.get_last_error)() };
        }
        DriverError::new(call, self.table().code(code))
    }

    /// Whether a call asks the driver behind the library, and not the library: `symbols` has both names.
    fn asks_driver(&self, call: Call) -> bool {
        use Call::{
            AddressRange, ContextDevice, ContextEnter, DeviceName, DeviceUuid, DmaBuf, MemoryCreate,
            MemoryExport, MemoryImport, MemoryMap, MemoryRelease, MemorySetAccess, MemoryUnmap,
            StreamContext, VirtualFree, VirtualGranularity, VirtualReserve,
        };
        match call {
            ContextEnter | ContextDevice => self.has_contexts(),
            AddressRange | DeviceName | DmaBuf | DeviceUuid | StreamContext | VirtualGranularity
            | VirtualReserve | VirtualFree | MemoryCreate | MemoryRelease | MemoryExport | MemoryImport
            | MemoryMap | MemoryUnmap | MemorySetAccess => self.table().numbers_as_cuda,
            _ => false,
        }
    }
}
