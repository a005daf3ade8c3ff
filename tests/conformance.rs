//! Every source keeps every clause of the contract, on the simulated machine.

use alluvion::resource_suite;
use alluvion::source::{Cuda, CudaAsync, Null};

resource_suite!(cuda, |device| Cuda::new(device));
resource_suite!(cuda_async, |device| CudaAsync::new(device).unwrap());
resource_suite!(null, no_memory, |device| Null::new(device));
