//! `Cubecl`: the memory management of cubecl.

use std::sync::Arc;

use cubecl_ir::MemoryDeviceProperties;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{
    Cleanup, ErrorGraph, ManagedMemoryHandle, MemoryConfiguration, MemoryManagement, MemoryManagementOptions,
    PageUpdate,
};
use cubecl_server::server::IoError;
use cubecl_server::storage::ComputeStorage;
use cudarc::driver::CudaContext;

use crate::peer::{Peer, Refusal};
use crate::storage::{ALIGNMENT, Tally};

/// A memory management for each stream, as cubecl's runtime has it. A block is free once its handle is dropped.
pub(crate) struct Cubecl<S> {
    streams: Vec<(MemoryManagement<S>, ErrorGraph)>,
    tally: Tally,
    /// None where nothing is on a device.
    context: Option<Arc<CudaContext>>,
}

impl<S: ComputeStorage> Cubecl<S> {
    /// `storage` makes one for each stream, of a device with so many bytes.
    pub(crate) fn new(
        storage: impl Fn(&Tally) -> S,
        total_bytes: u64,
        streams: usize,
        context: Option<&Arc<CudaContext>>,
    ) -> Self {
        // As the runtime for CUDA has it: a page is a quarter of the device at most.
        let properties =
            MemoryDeviceProperties::new(total_bytes / 4, ALIGNMENT as u64).with_max_memory(total_bytes);
        let (tally, logger) = (Tally::default(), Arc::new(ServerLogger::default()));
        let make = |stream| {
            let memory = MemoryManagement::from_configuration(
                storage(&tally),
                &properties,
                MemoryConfiguration::default(),
                Arc::clone(&logger),
                MemoryManagementOptions::new(format!("stream {stream}")),
            );
            (memory, ErrorGraph::default())
        };
        let streams = (0..streams).map(make).collect();
        Self { streams, tally, context: context.cloned() }
    }
}

impl<S: ComputeStorage> Peer for Cubecl<S> {
    type Block = ManagedMemoryHandle;

    const NAME: &'static str = "cubecl";

    fn allocate(&mut self, bytes: usize, stream: usize) -> Result<ManagedMemoryHandle, Refusal> {
        let (memory, failures) = &mut self.streams[stream];
        match memory.reserve(bytes as u64, PageUpdate::Allow, failures) {
            // Its server gives back what nobody uses and asks again.
            Err(IoError::OutOfMemory { .. }) => {
                for (memory, failures) in &mut self.streams {
                    memory.cleanup(Cleanup::Explicit, failures);
                }
                let (memory, failures) = &mut self.streams[stream];
                memory.reserve(bytes as u64, PageUpdate::Allow, failures)
            }
            answer => answer,
        }
        .map_err(|error| match error {
            IoError::OutOfMemory { .. } => Refusal::OutOfMemory,
            error => Refusal::Other(error.to_string()),
        })
    }

    fn synchronize(&mut self) -> Result<(), String> {
        self.context
            .as_ref()
            .map_or(Ok(()), |context| context.synchronize().map_err(|error| format!("{error:?}")))
    }

    fn peak_bytes(&mut self) -> Result<u64, String> {
        Ok(self.tally.peak_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Counting;

    #[test]
    fn a_block_that_is_dropped_is_used_again_and_streams_share_nothing() {
        let mut peer = Cubecl::new(Counting::new, 1 << 30, 2, None);
        for _ in 0..100 {
            drop(peer.allocate(64 << 20, 0).expect("there is room"));
        }
        let one = peer.peak_bytes().expect("it counts");
        assert!((64 << 20..128 << 20).contains(&one), "{one}");
        let kept = peer.allocate(64 << 20, 1).expect("there is room");
        assert!(peer.peak_bytes().expect("it counts") >= one + (64 << 20));
        drop(kept);
    }
}
