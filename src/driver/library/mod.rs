//! What do all drivers over vendors' libraries say alike?
//!
//! The libraries copy one interface, CUDA's: its structures and numbers are in `abi`, and `answer`, `exported` and `plain_allocation` have
//! its oddities. The functions that have one type in all of them are one table, `functions`, with a name for each library.
//!
//! [`LibraryDriver`] is the driver over all of them: `calls` and `sharing` have each call of the contract once, and `pages`, `pools`,
//! `pinned`, `migration` and `address_range` what such a call is where it takes more than a line. What a library does as no other does it
//! says as an [`Interface`]: libcuda in [`cuda`](super::cuda), the runtime libraries in [`runtime`](super::runtime). After compilation
//! each has its own text, and a call of libcuda is a call through a pointer, with no question which library it is.

pub(super) mod abi;
pub(super) mod address_range;
pub(super) mod answer;
mod calls;
pub(super) mod exported;
pub(super) mod functions;
mod host_call;
mod interface;
mod migration;
pub(super) mod numa;
mod pages;
mod pinned;
pub(super) mod plain_allocation;
mod pools;
mod sharing;

pub(super) use interface::Interface;

use core::fmt::{self, Debug};

use super::{Call, Code, DriverError, DriverResult};

/// A driver over a vendor's library: [`CudaDriver`](super::cuda::CudaDriver) over libcuda, and
/// [`RuntimeDriver`](super::runtime::RuntimeDriver) over a runtime library.
pub struct LibraryDriver<L>(pub(super) L);

impl<L: Debug> Debug for LibraryDriver<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What the contract promises of memory, of a device or pinned.
const ALIGN: u64 = 256;

/// Memory as the contract promises it: aligned. What is not is given back, and the device refused: no document of HIP or MACA says how
/// their memory is aligned.
fn aligned<L: Interface>(
    call: Call,
    address: u64,
    give_back: impl FnOnce() -> DriverResult<()>,
) -> DriverResult<u64> {
    if L::ALIGNS || address.is_multiple_of(ALIGN) {
        return Ok(address);
    }
    // A failure leaks memory that could not be used.
    let _ = give_back();
    Err(DriverError::new(call, Code::NOT_SUPPORTED))
}

/// Methods of [`Driver`](super::Driver), or of [`Sharing`](super::Sharing), that a room answers: each by its function of the same name.
macro_rules! answered_in {
    ($room:ident:) => {};
    ($room:ident: fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty; $($rest:tt)*) => {
        fn $name(&self, $($argument: $type),*) -> DriverResult<$answer> {
            $room::$name(&self.0, $($argument),*)
        }
        answered_in! { $room: $($rest)* }
    };
    ($room:ident: unsafe fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty; $($rest:tt)*) => {
        unsafe fn $name(&self, $($argument: $type),*) -> DriverResult<$answer> {
            // SAFETY: the promises of the function are those of the method that it answers, which the caller makes.
            unsafe { $room::$name(&self.0, $($argument),*) }
        }
        answered_in! { $room: $($rest)* }
    };
}

use answered_in;
