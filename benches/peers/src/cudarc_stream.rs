//! `Cudarc`: `CudaStream::alloc` of cudarc.

#![expect(
    unsafe_code,
    reason = "asks the driver's default pool what it held, and allocates memory that is not set"
)]

use std::sync::Arc;

use cudarc::driver::sys::{CUmemPool_attribute, CUmemoryPool, CUresult, is_culib_present};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError, result};

use crate::peer::{Peer, Refusal};

/// The context of device 0.
pub(crate) fn context() -> Result<Arc<CudaContext>, String> {
    // SAFETY: it looks for the library, and calls nothing of it.
    if !unsafe { is_culib_present() } {
        return Err("no CUDA driver: libcuda.so.1 was not found".into());
    }
    CudaContext::new(0).map_err(|error| format!("no CUDA device: {error:?}"))
}

/// Streams of cudarc. Its blocks come from the default pool of the device, which gives all back at a synchronisation.
pub(crate) struct Cudarc {
    streams: Vec<Arc<CudaStream>>,
    context: Arc<CudaContext>,
}

impl Cudarc {
    pub(crate) fn new(context: &Arc<CudaContext>, streams: usize) -> Result<Self, String> {
        let streams = (0..streams).map(|_| context.new_stream()).collect::<Result<_, _>>().map_err(words)?;
        let peer = Self { streams, context: Arc::clone(context) };
        let mut zero = 0_u64;
        let pool = peer.pool()?;
        let value = (&raw mut zero).cast();
        // SAFETY: the pool is live as long as its device, and the attribute is a number of 64 bits, which may be set to 0.
        unsafe {
            result::mem_pool::set_attribute(
                pool,
                CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
                value,
            )
        }
        .map_err(words)?;
        Ok(peer)
    }

    fn pool(&self) -> Result<CUmemoryPool, String> {
        // SAFETY: the device is that of a context.
        unsafe { result::device::get_default_mem_pool(self.context.cu_device()) }.map_err(words)
    }
}

#[cold]
fn words(error: DriverError) -> String {
    format!("cudarc: {error:?}")
}

#[cold]
fn refusal(error: DriverError) -> Refusal {
    if error.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        Refusal::OutOfMemory
    } else {
        Refusal::Other(words(error))
    }
}

impl Peer for Cudarc {
    type Block = CudaSlice<u8>;

    const NAME: &'static str = "cudarc";

    fn allocate(&mut self, bytes: usize, stream: usize) -> Result<CudaSlice<u8>, Refusal> {
        // The driver's pools have no blocks of no bytes.
        let bytes = bytes.max(1);
        // SAFETY: nobody reads the memory.
        unsafe { self.streams[stream].alloc(bytes) }.map_err(refusal)
    }

    fn synchronize(&mut self) -> Result<(), String> {
        self.context.synchronize().map_err(words)
    }

    fn peak_bytes(&mut self) -> Result<u64, String> {
        let mut bytes = 0_u64;
        let pool = self.pool()?;
        let value = (&raw mut bytes).cast();
        // SAFETY: the pool is live as long as its device, and `bytes` is writable, a number of 64 bits as the attribute is.
        unsafe {
            result::mem_pool::get_attribute(
                pool,
                CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
                value,
            )
        }
        .map_err(words)?;
        Ok(bytes)
    }
}
