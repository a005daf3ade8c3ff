//! Markers for the accesses that a resource's blocks allow, forwarded by each layer.

#![expect(unsafe_code, reason = "declares the markers that the host door and the containers rely on")]

use crate::resource::Resource;

/// A resource whose blocks the device may read and write. Containers require it.
///
/// For a container over a resource of erased type, use [`AnyResource`](crate::AnyResource) or `Box<dyn DeviceAccessible>`.
/// `Box<dyn Resource>` does not work, because it does not promise that the device may access the blocks. A struct that has a
/// resource beside containers of it holds an `Arc` and gives each container a clone:
///
/// ```
/// use alluvion::{DeviceAccessible, DeviceVec, Pool, PoolConfig, ResourceExt, Sim, source::CudaAsync};
/// use std::sync::Arc;
///
/// struct Trainer {
///     weights: DeviceVec<f32, Arc<Pool<CudaAsync>>>,
///     pool: Arc<Pool<CudaAsync>>,
/// }
///
/// let sim = Sim::new();
/// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
/// let pool = Arc::new(CudaAsync::new(&device)?.pool(PoolConfig::default())?);
/// let weights = DeviceVec::zeroed_in(1000, &stream, Arc::clone(&pool))?;
/// let trainer = Trainer { weights, pool };
///
/// let forgotten: Box<dyn DeviceAccessible + Send + Sync> = Box::new(trainer.pool.clone());
/// let bias = DeviceVec::filled_in(10, 0.5_f32, &stream, forgotten)?;
/// assert_eq!(bias.len() + trainer.weights.len(), 1010);
/// # Ok::<(), alluvion::Error>(())
/// ```
///
/// # Safety
///
/// Every live block of the resource may be read and written by work on its device that is ordered after the allocation.
#[diagnostic::on_unimplemented(
    message = "the device may not touch the blocks of `{Self}`",
    label = "not memory that a device reads and writes",
    note = "`dyn Resource` does not say that the device may touch its blocks: a resource whose type is forgotten is an `AnyResource`, or a `Box<dyn DeviceAccessible + Send + Sync>`",
    note = "a container that is to own its resource along with others takes a clone of an `Arc` of it"
)]
pub unsafe trait DeviceAccessible: Resource {}

static_assertions::assert_obj_safe!(DeviceAccessible, HostAccessible, Shareable);

/// A resource whose blocks the host may read and write. [`OnHost`](crate::OnHost) requires it.
///
/// # Safety
///
/// Every live block of the resource is memory that the host may read and write through a pointer to the block's address,
/// whose provenance was exposed, as soon as [`Resource::allocate_sync`] has returned it, from any thread, at any time that
/// no work of the device touches it. A context that is lost ends no block: safe code goes on with what it has.
#[diagnostic::on_unimplemented(
    message = "the host may not touch the blocks of `{Self}`",
    label = "not memory that the host reads and writes",
    note = "device memory is filled by copies: `DeviceVec` makes them; `PinnedAlloc` is memory that both sides reach"
)]
pub unsafe trait HostAccessible: Resource {}

/// A resource whose blocks other processes may be able to open: [`share`](crate::share) requires it.
///
/// Memory of `Cuda`, `CudaAsync` and `Mapped` is, and what a layer hands out of it. Whether a block really is shared the resource says
/// when it is [asked](Resource::export): a source may have been made without handle types. A resource whose type is forgotten says all
/// of it then.
///
/// ```compile_fail,E0277
/// use alluvion::{DeviceVec, Sim, source::Managed};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream().unwrap();
/// let vector = DeviceVec::from_slice_in(&[1_u8], &stream, Managed::new(&sim.device(0)).unwrap()).unwrap();
/// let _ = vector.share(&stream);
/// ```
#[diagnostic::on_unimplemented(
    message = "no other process can open the blocks of `{Self}`",
    label = "not memory that processes share",
    note = "`source::Cuda` has memory that can be shared, and so have `CudaAsync` and `Mapped` if they are made with `handle_types`, and pools over them"
)]
pub trait Shareable: DeviceAccessible {}
