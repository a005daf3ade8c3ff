//! `Limiting`: a limit of the live bytes.

use super::Allowance;
use super::allowance::LimitWatch;
use super::watched::Watched;
use crate::resource::AnyResource;
use crate::resource::card::{ArgumentKind, Card, Parameter};

/// Limits the bytes that are live at a time.
///
/// Room is taken from its [`Allowance`] before the upstream is asked, and returned if the upstream fails. So the live
/// bytes never exceed the limit, and no request is refused because of one that fails itself. Blocks count in whole
/// units of 256 bytes; zero bytes do not count. To share a limit between resources, or to have limits within limits,
/// use a [`Budget`](super::Budget).
///
/// It limits the blocks of its callers. Over a [`Pool`](crate::Pool) these are the live blocks, without the free memory
/// of the pool. Under a pool they are its segments, and a pool that reaches the limit returns its empty segments before
/// it fails.
///
/// Over a resource with [`pages`](crate::Resource::pages) it has pages, too: a page counts from the call that creates it to the
/// call that releases it, and addresses count nothing. So `pool | limiting(1GiB) | mapped` limits the memory that the pool
/// holds.
///
/// # A snapshot of the live blocks
///
/// This layer has no blocks of its own to draw, and a pool under it has not run out, so no snapshot is written when it
/// refuses. A pool with a [`maximum`](crate::PoolConfig::maximum) and
/// [`snapshot_on_out_of_memory`](crate::PoolConfig::snapshot_on_out_of_memory) in its place writes one; over this layer
/// a [`FailureCallback`](super::FailureCallback) does:
///
/// ```
/// use std::sync::Arc;
/// use alluvion::source::Cuda;
/// use alluvion::relief::Relief;
/// use alluvion::{DeviceVec, PoolConfig, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let pool = Arc::new(Cuda::new(&sim.device(0)).pool(PoolConfig::default())?);
/// let path = std::env::temp_dir().join(format!("alluvion-doc-limiting-{}.json", std::process::id()));
/// let (seen, file) = (Arc::clone(&pool), path.clone());
/// let resource = pool.limiting(2 << 20).failure_callback(move |_report| {
///     let _ = std::fs::File::create(&file).and_then(|to| seen.snapshot().write_json(to));
///     Relief::None
/// });
/// let _live = DeviceVec::<u8, _>::zeroed_in(1 << 20, stream.as_ref(), &resource)?;
/// assert!(DeviceVec::<u8, _>::zeroed_in(2 << 20, stream.as_ref(), &resource).is_err());
/// assert!(std::fs::read_to_string(&path).is_ok_and(|json| json.contains("\"live_bytes\": 1048576")));
/// # let _ = std::fs::remove_file(path);
/// # Ok::<(), alluvion::Error>(())
/// ```
///
/// # Stream ordering
///
/// As the upstream's. A block counts until the call that frees it, whatever work is still before the free.
///
/// # Thread safety
///
/// As the upstream's, and as the [`Allowance`](Allowance#thread-safety)'s: the limit is exact, and all threads count in one
/// word. So put it under a pool where threads are many.
///
/// # Examples
///
/// ```
/// use alluvion::source::CudaAsync;
/// use alluvion::{DeviceVec, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let resource = CudaAsync::new(&sim.device(0))?.limiting(1 << 20);
/// let half = DeviceVec::<u8, _>::zeroed_in(512 << 10, &stream, &resource)?;
/// let error = DeviceVec::<u8, _>::zeroed_in(513 << 10, &stream, &resource).unwrap_err();
/// assert!(error.is_out_of_memory() && error.limit() == Some(1 << 20));
/// drop(half);
/// assert_eq!((resource.used_bytes(), resource.book().peak_bytes()), (0, 512 << 10));
/// assert_eq!(resource.describe().to_string(), "Limiting(1 MiB) > CudaAsync(gpu 0)");
/// # Ok::<(), alluvion::Error>(())
/// ```
pub type Limiting<U = AnyResource> = Watched<LimitWatch<false>, U>;

static_assertions::assert_impl_all!(Limiting<crate::source::Cuda>: Send, Sync, crate::resource::DeviceAccessible);
static_assertions::assert_not_impl_any!(Limiting<crate::source::Cuda>: Clone, crate::resource::HostAccessible);
static_assertions::assert_impl_all!(Limiting<crate::source::Pinned>: crate::resource::HostAccessible);

impl Limiting {
    pub(crate) const CARD: Card = Card {
        name: "limiting",
        about: "Refuses requests that would make more bytes live than its limit.",
        parameters: &[Parameter::needed("bytes", ArgumentKind::Size, "the limit")],
    };
}

impl<U> Limiting<U> {
    /// At most `bytes` of `upstream`.
    #[must_use]
    pub fn new(upstream: U, bytes: usize) -> Self {
        Self::over(upstream, LimitWatch(Allowance::new("Limiting", bytes)))
    }

    /// The limit.
    #[must_use]
    pub fn limit_bytes(&self) -> usize {
        self.book().limit_bytes()
    }

    /// The live bytes.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.book().used_bytes()
    }
}

#[cfg(all(test, feature = "sim", not(loom)))]
mod tests {
    #![expect(unsafe_code, reason = "frees what it allocates")]

    use super::*;
    use crate::compose::ResourceExt;
    use crate::device::Sim;
    use crate::resource::{Layout, Resource};
    use crate::source::Null;
    use crate::stream::Stream;

    const MIB: usize = 1 << 20;

    fn limited(mib: usize) -> (Limiting<Null>, Stream) {
        let sim = Sim::new();
        (Null::new(&sim.device(0)).limiting(mib * MIB), sim.device(0).stream().expect("it has streams"))
    }

    fn layout(mib: usize) -> Layout {
        Layout::from_bytes(mib * MIB).expect("it is small")
    }

    #[test]
    fn the_limit_is_inclusive() {
        let (resource, stream) = limited(10);
        let counts: Vec<usize> = [4, 4]
            .map(|mib| {
                resource.allocate(layout(mib), stream.as_ref()).expect("it fits");
                resource.used_bytes() / MIB
            })
            .into();
        assert_eq!(counts, [4, 8]);
        let error = resource.allocate(layout(3), stream.as_ref()).expect_err("it does not fit");
        assert_eq!((error.limit(), error.requested_bytes()), (Some(10 * MIB), Some(3 * MIB)));
        assert_eq!((resource.used_bytes(), resource.book().refusals()), (8 * MIB, 1));
        let block = Null::new(resource.device()).allocate_sync(layout(4)).expect("it has no end");
        // SAFETY: it is no memory, and a block of this size is out.
        unsafe { resource.deallocate(block, layout(4), stream.as_ref()) };
        resource.allocate(layout(6), stream.as_ref()).expect("it fits exactly");
        assert_eq!((resource.used_bytes(), resource.book().free_bytes()), (10 * MIB, 0));
    }

    #[test]
    fn blocks_count_in_whole_units_and_zero_bytes_do_not() {
        let (resource, stream) = limited(1);
        resource.allocate(Layout::from_bytes(0).unwrap(), stream.as_ref()).unwrap();
        assert_eq!(resource.used_bytes(), 0);
        resource.allocate(Layout::from_bytes(1).unwrap(), stream.as_ref()).unwrap();
        assert_eq!(resource.used_bytes(), 256);
        let none = Null::new(resource.device()).limiting(0);
        none.allocate_sync(Layout::from_bytes(0).unwrap()).expect("nothing is within every limit");
        assert!(none.allocate_sync(Layout::from_bytes(1).unwrap()).is_err());
    }

    #[test]
    fn what_is_wrong_is_said_before_what_is_lacking() {
        let sim = Sim::with_config(crate::sim::SimConfig::default().devices(2));
        let resource = Null::new(&sim.device(0)).limiting(0);
        let (here, there) = (sim.device(0).stream().unwrap(), sim.device(1).stream().unwrap());
        let coarse = Layout::new(1, 512).unwrap();
        assert!(resource.allocate(layout(1), there.as_ref()).unwrap_err().is_device_mismatch());
        assert!(resource.allocate(coarse, here.as_ref()).unwrap_err().is_alignment());
        assert!(resource.allocate_sync(coarse).unwrap_err().is_alignment());
        assert!(resource.allocate(layout(1), here.as_ref()).unwrap_err().is_out_of_memory());
    }

    #[test]
    fn the_memory_is_no_larger_than_the_limit() {
        let (resource, stream) = limited(8);
        let info = |resource: &Limiting<Null>| {
            let info = resource.memory_info().expect("the device knows");
            (info.free_bytes / MIB, info.total_bytes / MIB)
        };
        assert_eq!(info(&resource), (8, 8));
        resource.allocate(layout(3), stream.as_ref()).unwrap();
        assert_eq!(info(&resource), (5, 8));
        let wide = Null::new(resource.device()).limiting(usize::MAX);
        assert_eq!(wide.memory_info().unwrap(), resource.upstream().memory_info().unwrap());
    }
}
