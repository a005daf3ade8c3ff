//! The C functions that PyTorch's `CUDAPluggableAllocator` looks up by their names, in the file of this module.
//!
//! A block comes from the current resource of the device that is named, and goes back to the resource that it came from, whichever
//! is current by then: the [ledger](alluvion::Device::ledger) of the device remembers it by its address. The functions need no
//! interpreter, and are called by threads that have none.
//!
//! No function unwinds but `alluvion_torch_allocate_or_throw`, and that one for a C++ exception alone.

mod bounds;
mod calls;
mod symbols;
mod throw;

pub(crate) use calls::torch_last_error;
