//! What is a stream for Python?
//!
//! A handle, and who keeps it alive. The handles 0, 1 and 2 mean the default stream, the legacy one and the thread's own, of
//! whatever device they are used on. Any other is a stream of one device: it is told to the library at its first use, so that a
//! stream can be wrapped where there is no driver.

mod argument;
mod class;
mod event;
mod handle;
pub(crate) mod pending;
mod pool;

pub(crate) use argument::StreamArgument;
pub(crate) use class::Stream;
pub(crate) use event::Event;
pub(crate) use handle::StreamHandle;
pub(crate) use pool::CudaStreamPool;
