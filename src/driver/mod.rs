//! The seam between the crate and the hardware.
//!
//! [`Driver`] is the part of a machine that the crate needs. `cuda` implements it over the CUDA driver, `runtime` over
//! runtime libraries, `sim` over a simulated machine. The rooms above work with either.
//!
//! # The contract of every method
//!
//! - A call names its device by ordinal. Any thread may make it, whatever context is current there; the context that
//!   was current before is current again when it returns. [`Driver::set_context`] alone is there to change it.
//! - A call that fails has changed nothing, unless its code [is sticky](Code::is_sticky) or [unknown](Code::UNKNOWN). Any call may fail
//!   with a code of the driver's own; a wait, and a question whether work is done, with that of the work itself.
//! - No call panics, and none is made under a lock of this crate.
//! - In a child of the process that made the driver, and after the driver shut down, every call returns [`Code::NOT_INITIALIZED`] or
//!   [`Code::DEINITIALIZED`] at once.
//! - Calls marked *capture-unsafe* return [`Code::CAPTURE_UNSUPPORTED`], and invalidate the capture, while a capture
//!   forbids them on the calling thread; [`RelaxedCapture`] lifts that for a scope.
//!
//! # A driver of one's own
//!
//! It writes the methods without a body: what its devices are, their streams and events, memory of a device, and what moves bytes. The
//! others are abilities that a machine may lack: pinned and managed memory, pools, pages, captures, functions of the host in a stream,
//! contexts, the streams and addresses of others. Each has a body for a machine without it:
//!
//! - a call is refused with [`Code::NOT_SUPPORTED`], and a question about a stream or an address with [`Code::NOT_FOUND`];
//! - other questions get the answer that is true where the ability is not: no stream captures, no capture forbids anything, all
//!   streams have one priority, no context is current, no device reaches another.
//!
//! No body says that work is over or that memory is there. A driver that has an ability writes all of its methods, and
//! [`Driver::attribute`] says that the device has it.

mod attribute;
mod block_watch;
mod call;
mod code;
mod device_ptr;
#[expect(clippy::module_inception, reason = "file = type")]
mod driver;
#[cfg(any(feature = "cuda", feature = "runtime"))]
mod exit;
mod handle;
#[cfg(any(feature = "cuda", feature = "runtime"))]
mod library;
#[cfg(any(feature = "cuda", feature = "runtime"))]
mod load_error;
mod pointer;
mod process;
mod relaxed;
mod sharing;

#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "runtime")]
pub mod runtime;

pub use attribute::{
    Advice, CaptureId, CaptureMode, CaptureStatus, DeviceAttribute, FillValue, HandleType, Location,
    MapAccess, MemoryInfo, PinnedFlags, PoolAttribute, PoolKind, PoolProperties, StreamFlags,
};
pub use block_watch::BlockWatch;
#[cfg(feature = "sim")]
pub(crate) use block_watch::in_own_work;
pub(crate) use block_watch::own_work;
pub use call::Call;
pub use code::{Code, DriverError, DriverResult};
pub use device_ptr::DevicePtr;
pub use driver::Driver;
pub use handle::{ExportedMemory, RawEvent, RawGraph, RawMemory, RawPool, RawStream};
#[cfg(any(feature = "cuda", feature = "runtime"))]
pub use library::LibraryDriver;
#[cfg(any(feature = "cuda", feature = "runtime"))]
pub use load_error::LoadError;
pub use pointer::{AddressRange, MemoryKind, PointerInfo};
pub use relaxed::RelaxedCapture;
pub use sharing::{EventHandle, MemoryHandle, PointerHandle, Sharing};
