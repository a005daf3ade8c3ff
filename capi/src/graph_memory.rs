//! What of a stack belongs to a captured graph?

#![expect(unsafe_code, reason = "exports functions, and gives the memory of graphs that are gone back")]

use alluvion::StreamRef;
use alluvion::compose::StackGraphMemory;

use crate::boundary;
use crate::handle::by_contract::{give_to, lend};
use crate::handle::{self, Handle};
use crate::resource::ResourceHandle;
use crate::status::Status;
use crate::stream::{self, CudaStream};

/// Memory of a stack that belongs to a captured graph.
#[derive(Debug)]
pub struct GraphMemoryHandle(StackGraphMemory);

impl Handle for GraphMemoryHandle {
    const NAME: &'static str = "memory";
}

/// Opens memory for the graph that `stream` captures: call it right after the capture has begun. A graph has the addresses of its memory for
/// as long as it can be launched. Until `alv_graph_memory_end`, what is allocated from the stack on the stream comes from memory of the
/// graph, and what is freed there serves later work of the same graph, and nobody else. The outermost suballocator of the stack is a
/// `pool`, and no `binning` is over it; `ALV_UNSUPPORTED` for another. `ALV_INVALID_ARGUMENT` for a stream that does not capture.
///
/// The caller keeps the memory beside the graph, gives it back by `alv_graph_memory_give_back` when the graph is gone, and releases the
/// handle. A handle that is released for good before leaves the memory with the graph for ever.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_capture_raw(
    stack: *const ResourceHandle,
    stream: CudaStream,
    out: *mut *mut GraphMemoryHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            let stack = lend!(stack);
            let open = |stream: StreamRef<'_>| stack.get().capture(stream);
            // SAFETY: a live stream of the device, by the function's text.
            let memory = unsafe { stream::with(stack.device(), stream, open) }?;
            Ok(GraphMemoryHandle(memory))
        };
        give_to!(out, make)
    })
}

/// Ends the allocations for this graph: when the capture has ended, or is given up. The memory stays the graph's. `ALV_INVALID_ARGUMENT` if
/// it has ended before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_graph_memory_end(memory: *const GraphMemoryHandle) -> Status {
    boundary::call(|| lend!(memory).0.end())
}

/// The bytes that a graph has of the pool; 0 once they are given back, and for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_graph_memory_bytes(memory: *const GraphMemoryHandle) -> usize {
    boundary::unanswered("alv_graph_memory_bytes", 0, || {
        // SAFETY: the contract of pointers.
        let memory = unsafe { handle::lend_or_null(memory) }?;
        Ok(memory.map_or(0, |memory| memory.0.reserved_bytes()))
    })
}

/// Gives the memory back to the pool; `given_back`, which may be null, gets its bytes: 0 if that was done before. The graph is gone, with
/// all that can be launched of it, and none of its launches is running or queued: that is the caller's promise. `ALV_IN_USE` while a block of
/// it is out, or while another thread gives it back: this call gives nothing back then, and can be made again. The allocations have ended in
/// any case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_graph_memory_give_back(
    memory: *const GraphMemoryHandle,
    given_back: *mut usize,
) -> Status {
    boundary::call(|| {
        let memory = lend!(memory);
        // SAFETY: the graph is gone and its launches are over, by the function's text.
        let bytes = unsafe { memory.0.release() }?;
        if !given_back.is_null() {
            // SAFETY: not null, so writable.
            unsafe { given_back.write(bytes) };
        }
        Ok(())
    })
}

/// One more count of the memory of a graph, which it returns; null for null. From any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_graph_memory_retain(memory: *mut GraphMemoryHandle) -> *mut GraphMemoryHandle {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_graph_memory_retain", std::ptr::null_mut(), || unsafe {
        handle::retain(memory)
    })
}

/// Takes a count of the memory of a graph; null is allowed. From any thread, but not from a host function of a stream, as
/// `alv_resource_release`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_graph_memory_release(memory: *mut GraphMemoryHandle) {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_graph_memory_release", (), || unsafe { handle::release(memory) });
}
