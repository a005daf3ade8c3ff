//! The seam between the crate and the hardware.
//!
//! [`Driver`] is the part of a machine that the crate needs. `cuda` implements it over the CUDA driver, `runtime` over
//! runtime libraries, `sim` over a simulated machine. The rooms above work with either.
//!
//! # The contract of every method
//!
//! - A call names its device by ordinal. Any thread may make it, whatever context is current there; the context that
//!   was current before is current again when it returns. [`Driver::set_context`] alone is there to change it.
//! - A call that fails has changed nothing, unless its code [is sticky](Code::is_sticky) or [unknown](Code::UNKNOWN).
//! - No call panics, and none is made under a lock of this crate.
//! - In a child of the process that made the driver, and after the driver shut down, every call returns [`Code::NOT_INITIALIZED`] or
//!   [`Code::DEINITIALIZED`] at once.
//! - Calls marked *capture-unsafe* return [`Code::CAPTURE_UNSUPPORTED`], and invalidate the capture, while a capture
//!   forbids them on the calling thread; [`RelaxedCapture`] lifts that for a scope.

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
pub use load_error::LoadError;
pub use pointer::{AddressRange, MemoryKind, PointerInfo};
pub use relaxed::RelaxedCapture;
pub use sharing::{EventHandle, MemoryHandle, PointerHandle, Sharing};
