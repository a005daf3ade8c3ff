//! The classes that take large pieces from an upstream and carve them up.
//!
//! They are checked: whoever frees by an address may be mistaken.

use std::fs::OpenOptions;
use std::io::Write;

use alluvion::suballoc::{ArenaConfig, FixedSizeConfig, Growth};
use alluvion::{AnyResource, Arena, Error, FixedSize, Layout, Pool, PoolConfig, Resource, ResourceExt};
use pyo3::prelude::*;

use super::UpstreamResourceAdaptor;
use super::base::{layer, owner_of};
use crate::argument::Bytes;
use crate::error::named;

/// The smallest arena: what a stream takes of it at a time.
const LEAST_ARENA_BYTES: usize = 1 << 20;

/// From this size on no suballocator can hold a piece of memory, and no device has it.
const TOO_LARGE_BYTES: usize = 1 << 40;

/// A pool that grows up to a maximum, and serves every size.
///
/// It takes `initial_pool_size` bytes from its upstream at once, half of the free memory if that is left out, and never has more
/// than `maximum_pool_size`. Sizes are integers or text such as `"1.5 GiB"`, rounded up to whole units of 256 bytes.
#[pyclass(extends = UpstreamResourceAdaptor, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct PoolMemoryResource;

#[pymethods]
impl PoolMemoryResource {
    #[new]
    #[pyo3(signature = (upstream_mr, initial_pool_size=None, maximum_pool_size=None))]
    fn new(
        upstream_mr: &Bound<'_, PyAny>,
        initial_pool_size: Option<Bytes>,
        maximum_pool_size: Option<Bytes>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let py = upstream_mr.py();
        let (initial, maximum) = (initial_pool_size.map(|size| size.0), maximum_pool_size.map(|size| size.0));
        if let (Some(initial), Some(maximum)) = (initial, maximum)
            && initial > maximum
        {
            let message = format!(
                "Initial pool size exceeds the maximum pool size: {initial} bytes are more than {maximum}"
            );
            return Err(named(py, "ConstructionFailed", &message));
        }
        if initial.is_some_and(|initial| initial >= TOO_LARGE_BYTES) {
            return Err(too_large(py, initial));
        }
        let base = layer(upstream_mr, |upstream| {
            let initial = match initial {
                Some(initial) => initial,
                None => half_of_free(&upstream)?.min(maximum.unwrap_or(usize::MAX)),
            };
            let mut config = PoolConfig::default().initial(initial).growth(Growth::Spare).checked(true);
            if let Some(maximum) = maximum {
                config = config.maximum(Layout::from_bytes(maximum)?.rounded_bytes());
            }
            Pool::new(upstream, config)
        })?;
        Ok(base.add_subclass(Self))
    }

    /// The bytes that it has from its upstream.
    fn pool_size(slf: &Bound<'_, Self>) -> PyResult<usize> {
        Ok(owner_of(slf)?.find::<Pool>().map_or(0, |book| book.reserved_bytes()))
    }
}

/// Half of what is free, in whole units: of the device, or of an upstream that may have less.
fn half_of_free(upstream: &AnyResource) -> Result<usize, Error> {
    let device = upstream.device().memory_info()?.free_bytes;
    let free = upstream.memory_info().map_or(device, |info| info.free_bytes.min(device));
    Ok(free / 2 / Layout::MIN_ALIGN * Layout::MIN_ALIGN)
}

fn too_large(py: Python<'_>, bytes: Option<usize>) -> PyErr {
    let bytes = bytes.unwrap_or(usize::MAX);
    named(
        py,
        "OutOfMemory",
        &format!("out of memory: {bytes} bytes wanted in one piece, and no device has as much"),
    )
}

/// A fixed amount of memory, of which streams take large parts.
///
/// It takes `arena_size` bytes from its upstream at once, half of the free memory if that is left out, and 1 MiB at least. With
/// `dump_log_on_failure` each request that fails is described in `rmm_arena_memory_dump.log` in the working directory.
#[pyclass(extends = UpstreamResourceAdaptor, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct ArenaMemoryResource;

#[pymethods]
impl ArenaMemoryResource {
    #[new]
    #[pyo3(signature = (upstream_mr, arena_size=None, dump_log_on_failure=false))]
    fn new(
        upstream_mr: &Bound<'_, PyAny>,
        arena_size: Option<Bytes>,
        dump_log_on_failure: bool,
    ) -> PyResult<PyClassInitializer<Self>> {
        let size = arena_size.map(|size| size.0);
        if size.is_some_and(|size| size >= TOO_LARGE_BYTES) {
            return Err(too_large(upstream_mr.py(), size));
        }
        let base = layer(upstream_mr, |upstream| {
            let bytes = match size {
                Some(size) => size,
                None => half_of_free(&upstream)?,
            };
            let mut config = ArenaConfig::default().bytes(bytes.max(LEAST_ARENA_BYTES)).checked(true);
            if dump_log_on_failure {
                config = config.dump_on_failure(|report| {
                    // A request that fails is answered in any case: where the file cannot be written, nobody reads it.
                    let file = OpenOptions::new().append(true).create(true).open("rmm_arena_memory_dump.log");
                    let _ = file.and_then(|mut file| writeln!(file, "{report}"));
                });
            }
            Arena::new(upstream, config)
        })?;
        Ok(base.add_subclass(Self))
    }
}

/// Blocks of one size. Larger requests are `MemoryError`.
///
/// `blocks_to_preallocate` blocks are taken from the upstream at once, and as many whenever there is none left.
#[pyclass(extends = UpstreamResourceAdaptor, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct FixedSizeMemoryResource;

#[pymethods]
impl FixedSizeMemoryResource {
    #[new]
    #[pyo3(signature = (upstream_mr, block_size=Bytes(1 << 20), blocks_to_preallocate=128), text_signature = "(upstream_mr, block_size=1048576, blocks_to_preallocate=128)")]
    fn new(
        upstream_mr: &Bound<'_, PyAny>,
        block_size: Bytes,
        blocks_to_preallocate: usize,
    ) -> PyResult<PyClassInitializer<Self>> {
        let base = layer(upstream_mr, |upstream| {
            let config =
                FixedSizeConfig::default().block(block_size.0).blocks(blocks_to_preallocate).checked(true);
            FixedSize::new(upstream, config)
        })?;
        Ok(base.add_subclass(Self))
    }
}
