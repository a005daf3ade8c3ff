//! Every source keeps every clause of the contract, on the GPU of this computer, by the same code as on the simulated one.

use alluvion::resource_suite;
use alluvion::source::{Cuda, CudaAsync, Null};
use alluvion::testing::Bench;

resource_suite!(cuda on gpu(Bench::gpu()), |device| Cuda::new(device));
resource_suite!(cuda_async on gpu(Bench::gpu()), |device| CudaAsync::new(device).unwrap());
resource_suite!(null on gpu(Bench::gpu()), no_memory, |device| Null::new(device));
