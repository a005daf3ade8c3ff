//! Each clause about adaptors fails where it should, and names the method: one adaptor for each way to forget one.

#![expect(unsafe_code, reason = "breaks the contract of resources, on a machine that can be broken")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use alluvion::resource::{Export, LayerBook, Sleeping};
use alluvion::source::Cuda;
use alluvion::testing::{Bench, Delayed, Faulty, Shadow, Upstream, suite};
use alluvion::{
    AnyResource, Device, DeviceAccessible, DevicePtr, Error, HostAccessible, Layout, MemoryInfo, Resource,
    ResourceExt, StreamRef,
};

/// What an adaptor forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forgets {
    Nothing,
    MaxAlign,
    Trim,
    MemoryInfo,
    Upstream,
    Device,
    AllocateSync,
    DeallocateSync,
    Frees,
    TheIdOfItsBlocks,
    ThatTheBookIsNotIts,
    HostAccess,
    Sleeping,
    Export,
}

struct Forgetful<U> {
    upstream: U,
    forgets: Forgets,
    another: Device,
}

impl<U: Resource> Forgetful<U> {
    fn new(upstream: U, forgets: Forgets) -> Self {
        let another = upstream.device().machine().device(1).expect("the bench has two");
        Self { upstream, forgets, another }
    }

    fn moved(&self, block: DevicePtr, down: bool) -> DevicePtr {
        match self.forgets {
            Forgets::TheIdOfItsBlocks if down => DevicePtr::new(block.address() - 256).unwrap(),
            Forgets::TheIdOfItsBlocks => block.offset(256),
            _ => block,
        }
    }

    /// What is asked of the upstream: a unit more where blocks are moved by one.
    fn outer(&self, layout: Layout) -> Layout {
        match self.forgets {
            Forgets::TheIdOfItsBlocks if !layout.is_empty() => {
                Layout::from_bytes(layout.bytes() + 256).unwrap()
            }
            _ => layout,
        }
    }
}

// SAFETY: it does not keep the contract, but for `Forgets::Nothing`. The suite uses its blocks on a simulated machine, which finds
// every wrong access and does none outside of its own memory.
unsafe impl<U: Resource> Resource for Forgetful<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        Ok(self.moved(self.upstream.allocate(self.outer(layout), stream)?, false))
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        if self.forgets != Forgets::Frees {
            // SAFETY: the caller's promises; what is wrong is the flaw, and the pool below checks it.
            unsafe { self.upstream.deallocate(self.moved(block, true), self.outer(layout), stream) };
        }
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        if self.forgets != Forgets::AllocateSync {
            return Ok(self.moved(self.upstream.allocate_sync(self.outer(layout))?, false));
        }
        let stream = self.device().stream()?;
        let block = self.allocate(layout, stream.as_ref())?;
        stream.synchronize()?;
        Ok(block)
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        if self.forgets != Forgets::DeallocateSync {
            // SAFETY: as in `deallocate`.
            return unsafe { self.upstream.deallocate_sync(self.moved(block, true), self.outer(layout)) };
        }
        let stream = self.device().stream().unwrap();
        // SAFETY: as in `deallocate`.
        unsafe { self.deallocate(block, layout, stream.as_ref()) };
        stream.synchronize().unwrap();
    }

    fn device(&self) -> &Device {
        if self.forgets == Forgets::Device { &self.another } else { self.upstream.device() }
    }

    fn max_align(&self) -> usize {
        if self.forgets == Forgets::MaxAlign { Layout::MIN_ALIGN } else { self.upstream.max_align() }
    }

    fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
        if self.forgets == Forgets::Trim { Ok(0) } else { self.upstream.trim(keep_bytes) }
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        if self.forgets == Forgets::MemoryInfo {
            self.device().memory_info()
        } else {
            self.upstream.memory_info()
        }
    }

    fn upstream(&self) -> Option<&dyn Resource> {
        (self.forgets != Forgets::Upstream).then_some(&self.upstream as &dyn Resource)
    }

    fn host_access(&self) -> bool {
        self.forgets != Forgets::HostAccess && self.upstream.host_access()
    }

    fn sleeping(&self) -> Option<&dyn Sleeping> {
        if self.forgets == Forgets::Sleeping { None } else { self.upstream.sleeping() }
    }

    unsafe fn export(&self, block: DevicePtr, layout: Layout) -> Result<Export, Error> {
        if self.forgets == Forgets::Export {
            return Err(Error::foreign("forgotten"));
        }
        // SAFETY: as in `deallocate`.
        unsafe { self.upstream.export(self.moved(block, true), self.outer(layout)) }
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        if self.forgets == Forgets::ThatTheBookIsNotIts { self.upstream.layer() } else { None }
    }

    alluvion::forward_resource!(
        upstream,
        except allocate, deallocate, device, max_align, trim, memory_info, upstream
    );
}

/// What the clause says, if it fails.
fn says(clause: impl Fn(&Bench)) -> Option<String> {
    let payload = catch_unwind(AssertUnwindSafe(|| clause(&Bench::sim()))).err()?;
    let words = payload.downcast_ref::<String>().cloned();
    words.or_else(|| payload.downcast_ref::<&str>().map(|words| (*words).to_owned()))
}

macro_rules! clauses {
    ($($clause:ident catches $($forgets:ident as $words:literal),+;)+) => { $(
        #[test]
        fn $clause() {
            let clause = |forgets| {
                says(|bench| suite::$clause(bench, |upstream| Forgetful::new(upstream, forgets)))
            };
            assert_eq!(clause(Forgets::Nothing), None, "the clause fails an adaptor that forgets nothing");
            $(
                let said = clause(Forgets::$forgets).expect("the clause finds what was forgotten");
                assert!(said.contains("`Forgetful`") && said.contains($words), "{said}");
            )+
        }
    )+ };
}

clauses! {
    forwards_max_align catches MaxAlign as "does not forward `max_align`: it says 256, and its upstream honours 2097152";
    forwards_trim catches Trim as "does not forward `trim`: it says that 0 bytes were given back, and its upstream gives";
    forwards_memory_info catches MemoryInfo as "does not forward `memory_info`";
    forwards_upstream catches
        Upstream as "its description is \"Forgetful\"",
        ThatTheBookIsNotIts as "returns the book of its upstream from `layer`";
    forwards_device catches Device as "does not forward `device`";
    forwards_synchronous_calls catches
        AllocateSync as "does not forward `allocate_sync`: its upstream got 1 calls of `allocate`",
        DeallocateSync as "does not forward `deallocate_sync`";
    forwards_frees catches
        Frees as "does not forward `deallocate`: 1 blocks are still out",
        TheIdOfItsBlocks as "has the `id` of its upstream";
    forwards_host_access catches HostAccess as "does not forward `host_access`";
    forwards_sleeping catches Sleeping as "does not forward `sleeping`";
    forwards_export catches Export as "does not forward `export`: it answers Err(";
}

/// Every clause about adaptors.
fn forwards_all<R: Resource>(wrap: impl Fn(Upstream) -> R) {
    let bench = Bench::sim;
    suite::forwards_max_align(&bench(), &wrap);
    suite::forwards_trim(&bench(), &wrap);
    suite::forwards_memory_info(&bench(), &wrap);
    suite::forwards_upstream(&bench(), &wrap);
    suite::forwards_device(&bench(), &wrap);
    suite::forwards_synchronous_calls(&bench(), &wrap);
    suite::forwards_frees(&bench(), &wrap);
}

// For those of the crate `adaptors.rs` has the suite.
#[test]
fn the_layers_for_tests_forward_all() {
    forwards_all(Shadow::new);
    forwards_all(|upstream| Delayed::new(upstream, std::time::Duration::ZERO));
    forwards_all(|upstream| Faulty::nth(upstream, usize::MAX));
}

// One line stamps the whole suite over an adaptor.
alluvion::resource_suite!(an_adaptor, unchanged adaptor | upstream | Forgetful::new(upstream, Forgets::Nothing));

// SAFETY: the blocks are the upstream's.
unsafe impl<U: DeviceAccessible> DeviceAccessible for Forgetful<U> {}
// SAFETY: the blocks are the upstream's.
unsafe impl<U: HostAccessible> HostAccessible for Forgetful<U> {}

/// An upstream may be erased in any of the ways that there are.
#[test]
fn adaptors_stand_over_erased_resources() {
    fn is_whole(resource: impl Resource, expected: &str) {
        let layout = Layout::from_bytes(1000).unwrap();
        let stream = resource.device().stream().unwrap();
        let block = resource.allocate(layout, stream.as_ref()).unwrap();
        // SAFETY: the block came from this resource with this layout, and nothing uses it.
        unsafe { resource.deallocate(block, layout, stream.as_ref()) };
        let block = resource.allocate_sync(layout).unwrap();
        // SAFETY: as above.
        unsafe { resource.deallocate_sync(block, layout) };
        assert_eq!(resource.describe().to_string(), expected);
        assert!(resource.find::<Cuda>().is_some());
    }
    let bench = Bench::sim();
    let cuda = || Cuda::new(&bench.device());
    let mine = |upstream| Forgetful::new(upstream, Forgets::Nothing);
    is_whole(mine(Box::new(cuda()) as Box<dyn Resource>), "Forgetful > Cuda(gpu 0)");
    let shared: std::sync::Arc<dyn Resource + Send + Sync> = std::sync::Arc::new(cuda());
    is_whole(shared.clone().stats(), "Stats(0 B) > Cuda(gpu 0)");
    is_whole(Forgetful::new(shared, Forgets::Nothing), "Forgetful > Cuda(gpu 0)");
    let borrowed = cuda();
    is_whole(
        Forgetful::new(&borrowed as &dyn Resource, Forgets::Nothing).stats(),
        "Stats(0 B) > Forgetful > Cuda(gpu 0)",
    );
    is_whole(Forgetful::new(AnyResource::new(cuda()), Forgets::Nothing), "Forgetful > Cuda(gpu 0)");
    bench.check();
}
