//! The native module of the Python package `alluvion`.
//!
//! The rooms, from the ground up; each names those above it in this list and no other:
//!
//! | room | question |
//! |---|---|
//! | `ending` | What becomes of a thread that must not come back to an interpreter which is ending? |
//! | `attached` | Has this thread the interpreter? |
//! | `error` | Which Python exception says what went wrong? |
//! | `machine` | Which machine and which device does a call mean? |
//! | `gpu` | What does the driver say of itself, of devices and of its errors? |
//! | `argument` | What may a caller pass? |
//! | `tag` | What is an allocation for? |
//! | `call_site` | Which line of Python asked? |
//! | `stream` | What is a stream for Python? |
//! | `block` | Who frees a block, and when is the interpreter let go meanwhile? |
//! | `resource` | What is a memory resource for Python? |
//! | `scoped` | Which resource has a scope of this thread chosen? |
//! | `current` | What does a device allocate from? |
//! | `buffer`, `dlpack`, `share` | What is a buffer for Python, and how do other libraries and other processes take and lend them? |
//! | `metrics` | How is it doing now? |
//! | `door` | What do compiled doors call? |
//! | `pinned` | Which memory of the host does the device reach? |
//! | `segments` | Who hears of the segments of a stack? |
//! | `sleep` | What of a stack sleeps, and until when? |
//! | `allowance` | What of a limit is set aside, and who hears that it is nearly used up? |
//! | `graph_memory` | What of a stack belongs to a captured graph? |
//! | `violation` | What has a guard found, and who hears of it? |
//! | `stack` | What does a stack say of itself? |
//! | `program` | How does Python run the program `alluvion`? |
//! | `simulated` | What if there is no GPU? |
//! | `exploration` | What if a program runs under every schedule? |
//! | `torch`, `cupy` | What do PyTorch and CuPy call? |
//!
//! **The interpreter comes last.** No lock of this crate is waited for while a thread is attached to the interpreter, where the
//! thread that holds the lock may want the interpreter. A call that may wait, enter the driver or run foreign code detaches first.

#![allow(
    clippy::disallowed_types,
    clippy::needless_pass_by_value,
    clippy::type_complexity,
    reason = "no model of the scheduler covers this crate; arguments of Python come by value; rows for Python are tuples"
)]

mod allowance;
mod argument;
mod attached;
mod block;
mod buffer;
mod call_site;
mod cupy;
mod current;
mod debug_log;
mod dlpack;
mod door;
mod ending;
mod error;
mod exploration;
mod gpu;
mod graph_memory;
mod machine;
mod metrics;
mod pinned;
mod program;
mod resource;
mod scoped;
mod segments;
mod share;
mod simulated;
mod sleep;
mod stack;
mod stream;
mod tag;
mod torch;
mod violation;

use pyo3::prelude::*;

/// The native module: see the package's own documentation.
#[pymodule(gil_used = false)]
mod _alluvion {
    #[pymodule_export]
    use crate::allowance::Reservation;
    #[pymodule_export]
    use crate::argument::parse_bytes;
    #[pymodule_export]
    use crate::buffer::{
        DeviceBuffer, DeviceView, allocate_many, copy_device_to_ptr, copy_host_to_ptr, copy_ptr_to_host,
    };
    #[pymodule_export]
    use crate::buffer::{restore_blocks, save_blocks, saved_blocks};
    #[pymodule_export]
    use crate::call_site::set_stack_depth;
    #[pymodule_export]
    use crate::cupy::{CupyAllocator, rmm_cupy_allocator};
    #[pymodule_export]
    use crate::current::{current_resource, known_devices, reset_current_resource, set_current_resource};
    #[pymodule_export]
    use crate::debug_log::set_level;
    #[pymodule_export]
    use crate::dlpack::from_dlpack;
    #[pymodule_export]
    use crate::exploration::Exploration;
    #[pymodule_export]
    use crate::gpu::{
        driver_version, gpu_attribute, gpu_count, gpu_current, gpu_error, gpu_name, gpu_set_current,
    };
    #[pymodule_export]
    use crate::graph_memory::GraphMemory;
    #[pymodule_export]
    use crate::machine::{current_device, device_count, memory_info, set_current_device};
    #[pymodule_export]
    use crate::metrics::metrics;
    #[pymodule_export]
    use crate::pinned::{PinnedBlock, pinned_bytes, trim_pinned};
    #[pymodule_export]
    use crate::program::{draw_page, run_program};
    #[pymodule_export]
    use crate::resource::{
        ArenaMemoryResource, BinningMemoryResource, CallbackMemoryResource, CudaAsyncManagedMemoryResource,
        CudaAsyncMemoryResource, CudaAsyncViewMemoryResource, CudaMemoryResource, DeviceMemoryResource,
        FailureCallbackResourceAdaptor, FixedSizeMemoryResource, LimitingResourceAdaptor,
        LoggingResourceAdaptor, ManagedMemoryResource, PinnedHostMemoryResource, PoolMemoryResource,
        PrefetchResourceAdaptor, SamHeadroomMemoryResource, StatisticsResourceAdaptor, SystemMemoryResource,
        TrackingResourceAdaptor, UpstreamResourceAdaptor,
    };
    #[pymodule_export]
    use crate::scoped::follow_resources;
    #[pymodule_export]
    use crate::share::{Shared, open_shared, share_figures, sharing_devices, sweep_shared};
    #[pymodule_export]
    use crate::simulated::{SimGraph, Simulated};
    #[pymodule_export]
    use crate::sleep::Sleeper;
    #[pymodule_export]
    use crate::stack::{Stack, plain_recipe, recipe_help};
    #[pymodule_export]
    use crate::stream::{CudaStreamPool, Event, Stream};
    #[pymodule_export]
    use crate::tag::{Tag, follow_tags};
    #[pymodule_export]
    use crate::torch::torch_last_error;

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        crate::ending::refuse_other_interpreters(module.py())?;
        crate::call_site::begin();
        pyo3::types::PyModuleMethods::add(module, "_C_API", crate::door::table_capsule(module.py())?)
    }
}
