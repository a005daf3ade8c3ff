//! `CostModel`: the cost of driver calls.
//!
//! Figures of one H200 machine (driver 580.159.04, CUDA 13.0, 16 vCPU Intel Xeon, Linux VM), one thread, medians.
//! *Pair* figures of an allocation and its free are split where only the pair was measured.

use crate::driver::Call;

const KINDS: usize = Call::ALL.len();

/// Nanoseconds per call, and per MiB where the size matters.
///
/// The simulator adds them to a clock of its own and waits for nothing.
///
/// ```
/// use alluvion::sim::{CostModel, SimConfig, SimDriver};
/// use alluvion::driver::{Call, Driver};
///
/// let driver = SimDriver::new(SimConfig::default().cost(CostModel::h200()));
/// driver.event_create(0)?;
/// assert_eq!(driver.clock_ns(), CostModel::h200().cost_ns(Call::EventCreate, 0));
/// # Ok::<(), alluvion::driver::DriverError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostModel {
    call_ns: [u64; KINDS],
    mib_ns: [u64; KINDS],
}

impl CostModel {
    /// Calls that cost nothing.
    #[must_use]
    pub const fn free() -> Self {
        Self { call_ns: [0; KINDS], mib_ns: [0; KINDS] }
    }

    /// The costs measured on an H200.
    ///
    /// | call | ns | ns per MiB | measured as |
    /// |---|---|---|---|
    /// | event record, query, wait | 129, 133, 106 | | p50 of the call |
    /// | event create, destroy | 72, 72 | | 144 for the pair |
    /// | stream id, capture status | 50, 34 | | p50 of the call |
    /// | stream query | 133 | | as an event query |
    /// | `cuMemAlloc`, `cuMemFree` | 23,448 | 160 | 46,896 for the pair of 256 B; 67,166 of 64 MiB |
    /// | `cuMemAllocManaged` | 5,597 | | 11,194 for the pair, its free being a `cuMemFree` |
    /// | `cuMemHostAlloc` | 259,977 | 289,670 | pair of 256 B; 1,187 ms for 4 GiB |
    /// | `cuMemFreeHost` | 259,977 | 64,770 | pair of 256 B; 265 ms for 4 GiB |
    /// | `cuMemHostRegister` | 22,000 | 15,970 | 65 ms for 4 GiB of huge pages |
    /// | `cuMemAllocFromPoolAsync`, `cuMemFreeAsync` | 242, 242 | | 484 for the pair |
    /// | `cuMemAddressReserve` | 21,171 | | 1 TiB |
    /// | `cuMemCreate` | 5,400 | 50 | 5,499 for 2 MiB; 30,513 for 512 MiB |
    /// | `cuMemMap` | 496 | 1 | 496 for 2 MiB; 611 for 512 MiB |
    /// | `cuMemSetAccess` | 16,400 | 42 | 16,454 for 2 MiB; 38,069 for 512 MiB |
    /// | `cuMemUnmap` | 11,300 | 17 | 11,328 for 2 MiB; 19,937 for 512 MiB |
    /// | `cuMemRelease` | 7,000 | 237 | 7,351 for 2 MiB; 128,470 for 512 MiB |
    ///
    /// Calls that were not measured cost nothing, because a guess would look like a measurement.
    #[must_use]
    pub const fn h200() -> Self {
        Self::free()
            .with(Call::EventRecord, 129, 0)
            .with(Call::EventQuery, 133, 0)
            .with(Call::StreamQuery, 133, 0)
            .with(Call::StreamWaitEvent, 106, 0)
            .with(Call::EventCreate, 72, 0)
            .with(Call::EventDestroy, 72, 0)
            .with(Call::StreamId, 50, 0)
            .with(Call::StreamCaptureStatus, 34, 0)
            .with(Call::AllocateDevice, 23_448, 160)
            .with(Call::FreeDevice, 23_448, 160)
            .with(Call::AllocateManaged, 5_597, 0)
            .with(Call::AllocatePinned, 259_977, 289_670)
            .with(Call::FreePinned, 259_977, 64_770)
            .with(Call::RegisterHost, 22_000, 15_970)
            .with(Call::AllocateAsync, 242, 0)
            .with(Call::FreeAsync, 242, 0)
            .with(Call::VirtualReserve, 21_171, 0)
            .with(Call::MemoryCreate, 5_400, 50)
            .with(Call::MemoryMap, 496, 1)
            .with(Call::MemorySetAccess, 16_400, 42)
            .with(Call::MemoryUnmap, 11_300, 17)
            .with(Call::MemoryRelease, 7_000, 237)
    }

    /// Replaces the cost of one call: `call_ns` each, `mib_ns` per MiB on top.
    #[must_use]
    pub const fn with(mut self, call: Call, call_ns: u64, mib_ns: u64) -> Self {
        self.call_ns[call as usize] = call_ns;
        self.mib_ns[call as usize] = mib_ns;
        self
    }

    /// The cost of a call for `bytes`.
    #[must_use]
    pub fn cost_ns(&self, call: Call, bytes: u64) -> u64 {
        let size_ns = u128::from(self.mib_ns[call as usize]) * u128::from(bytes) / (1 << 20);
        self.call_ns[call as usize].saturating_add(u64::try_from(size_ns).unwrap_or(u64::MAX))
    }
}

impl Default for CostModel {
    fn default() -> Self {
        Self::free()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_counts_where_it_was_measured() {
        let model = CostModel::h200();
        // Measured: 1,187 ms for 4 GiB.
        let pinned = model.cost_ns(Call::AllocatePinned, 4 << 30);
        assert!((1_186_000_000..1_188_000_000).contains(&pinned), "{pinned}");
        // Measured: 128,470 ns for 512 MiB.
        let release = model.cost_ns(Call::MemoryRelease, 512 << 20);
        assert!((128_000..129_000).contains(&release), "{release}");
        assert_eq!(model.cost_ns(Call::EventRecord, 4 << 30), 129);
        assert_eq!(CostModel::free().cost_ns(Call::AllocatePinned, u64::MAX), 0);
    }
}
