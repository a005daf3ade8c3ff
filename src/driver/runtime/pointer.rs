//! What a library knows about an address.

#![expect(unsafe_code, reason = "asks a vendor's library about addresses")]

use super::{Runtime, RuntimeLibrary};
use crate::driver::library::Interface;
use crate::driver::library::abi;
use crate::driver::library::plain_allocation::plain_allocation;
use crate::driver::{AddressRange, Call, Code, DriverError, DriverResult, MemoryKind, PointerInfo};

/// Words of 8 bytes for the answer: cudart 13 writes 88 bytes, HIP 32, cudart 12 24. Nobody may write more without another name.
const ANSWER_WORDS: usize = 32;

impl RuntimeLibrary {
    /// As [`Driver::pointer_attributes`](crate::driver::Driver::pointer_attributes).
    ///
    /// The answer begins with the kind and the device, an enum and an `int`. HIP and MACA have a flag behind two pointers that says
    /// whether the memory is managed. An address that a library does not know is an answer to some and an error to others.
    pub(super) fn known_of(&self, address: u64) -> DriverResult<Option<PointerInfo>> {
        const CALL: Call = Call::PointerAttributes;
        let Some(get) = self.symbols.pointer_get_attributes else {
            return Err(DriverError::new(CALL, Code::NOT_FOUND));
        };
        let mut answer = [0_u64; ANSWER_WORDS];
        let asked = self.on_any_device(CALL, || {
            // SAFETY: the answer is as long as any library's, and aligned as one; any address may be asked about.
            unsafe { get(answer.as_mut_ptr(), address) }
        });
        match asked {
            Ok(()) => {}
            Err(DriverError { code: Code::INVALID_VALUE | Code::NOT_FOUND, .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
        let [number, ordinal] = halves(answer[0]);
        let is_managed = !self.table().numbers_as_cuda && halves(answer[3])[0] != 0;
        let kind = match (self.table().memory_kind)(self.major, number) {
            None => return Ok(None),
            Some(_) if is_managed => MemoryKind::Managed,
            Some(kind) => kind,
        };
        // -1 and -2 stand for the host and for none.
        Ok(Some(PointerInfo { kind, ordinal: u32::try_from(ordinal as i32).ok() }))
    }

    /// As [`Driver::plain_allocation`](crate::driver::Driver::plain_allocation).
    ///
    /// cudart does not say, and the driver behind it does. HIP and MACA are not asked: no tool is there that would be told.
    pub(super) fn plain_range(&self, address: u64) -> DriverResult<Option<AddressRange>> {
        const CALL: Call = Call::PointerAttributes;
        if self.runtime != Runtime::Cudart {
            return Ok(None);
        }
        let Some(get) = self.symbols.pointer_get_attributes_of_driver else {
            return Err(DriverError::new(CALL, Code::NOT_FOUND));
        };
        plain_allocation(|count, attributes, places| {
            let mut code = abi::SUCCESS;
            self.on_any_device(CALL, || {
                // SAFETY:
                // - both lists are `count` long, and each place is writable and as wide as its attribute: `plain_allocation` says so.
                // - any address may be asked about.
                code = unsafe { get(count, attributes, places, address) };
                abi::SUCCESS
            })?;
            // By this call's name the library is asked elsewhere.
            self.check_of_driver(CALL, code)
        })
    }
}

/// The two members of a structure that lie in one word: the first one is at the lower address.
fn halves(word: u64) -> [u32; 2] {
    let bytes = word.to_ne_bytes();
    [0, 4].map(|at| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]))
}
