//! What did the program choose?

use alluvion::{AnyResource, Device, Error, Recipe};

/// The options as C has them, `rmmOptions_t`: any bits are a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RmmOptions {
    /// 0, or 1 for a pool and 2 for managed memory, or-ed.
    pub allocation_mode: u32,
    /// The bytes that a pool takes at once; 0 for half of the device.
    pub initial_pool_size: usize,
    /// 0 for no log.
    pub enable_logging: u8,
}

const POOL: u32 = 1;
const MANAGED: u32 = 2;

/// Options that were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Options {
    is_pool: bool,
    is_managed: bool,
    initial_bytes: usize,
    pub(super) has_log: bool,
}

impl Options {
    /// Plain memory of the driver, without a log.
    pub(super) const DEFAULT: Self =
        Self { is_pool: false, is_managed: false, initial_bytes: 0, has_log: false };

    pub(super) fn of_c(options: RmmOptions) -> Result<Self, Error> {
        let mode = options.allocation_mode;
        if mode > (POOL | MANAGED) {
            let instead = "pass PoolAllocation, CudaManagedMemory, both or-ed, or CudaDefaultAllocation";
            return Err(Error::invalid_argument("allocation_mode", "it is no mode", instead));
        }
        Ok(Self {
            is_pool: mode & POOL != 0,
            is_managed: mode & MANAGED != 0,
            initial_bytes: options.initial_pool_size,
            has_log: options.enable_logging != 0,
        })
    }

    pub(super) fn to_c(self) -> RmmOptions {
        RmmOptions {
            allocation_mode: (u32::from(self.is_pool) * POOL) | (u32::from(self.is_managed) * MANAGED),
            initial_pool_size: self.initial_bytes,
            enable_logging: u8::from(self.has_log),
        }
    }

    /// The stack behind a mode. A pool takes memory at once on the `first` device, the one that was current; on others, which the
    /// program may never use, it grows as it needs.
    pub(super) fn stack(self, device: &Device, is_first: bool) -> Result<AnyResource, Error> {
        let source = if self.is_managed { "managed" } else { "cuda" };
        let recipe = if self.is_pool {
            // In place of faults page by page.
            let layer = if self.is_managed { "prefetch | " } else { "" };
            let initial = if is_first { self.initial(device)? } else { 0 };
            format!("{layer}pool(initial={initial}) | {source}")
        } else {
            source.to_owned()
        };
        recipe.parse::<Recipe>()?.build(device)
    }

    /// The bytes that a pool takes at once.
    fn initial(self, device: &Device) -> Result<usize, Error> {
        match self.initial_bytes {
            0 => Ok(device.memory_info()?.total_bytes / 2),
            bytes => Ok(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use alluvion::Sim;

    use super::*;

    #[test]
    fn each_mode_has_its_stack() {
        let sim = Sim::new();
        let total = sim.device(0).memory_info().expect("the machine is there").total_bytes;
        let described = |allocation_mode, initial_pool_size, is_first| {
            let options = RmmOptions { allocation_mode, initial_pool_size, enable_logging: 7 };
            let options = Options::of_c(options).expect("it is a mode");
            assert!(options.has_log);
            assert_eq!(options.to_c(), RmmOptions { allocation_mode, initial_pool_size, enable_logging: 1 });
            options.stack(&sim.device(0), is_first).expect("there is memory").describe().to_string()
        };
        assert_eq!(described(0, 4096, true), "Cuda(gpu 0)");
        assert_eq!(described(1, 4 << 20, true), "Pool(4 MiB) > Cuda(gpu 0)");
        assert_eq!(described(1, 4 << 20, false), "Pool(0 B) > Cuda(gpu 0)");
        assert_eq!(described(2, 4096, true), "Managed(gpu 0)");
        assert_eq!(described(3, 4 << 20, true), "Prefetch > Pool(4 MiB) > Managed(gpu 0)");
        let half = Options { is_pool: true, ..Options::DEFAULT };
        assert_eq!(half.initial(&sim.device(0)).ok(), Some(total / 2));
    }

    #[test]
    fn a_mode_that_is_none_is_refused() {
        for allocation_mode in [4, 7, 1 << 31, u32::MAX] {
            let options = RmmOptions { allocation_mode, initial_pool_size: 0, enable_logging: 0 };
            assert!(Options::of_c(options).is_err(), "{allocation_mode}");
        }
    }
}
