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
    /// Bytes up to this many cost nothing more than the call.
    flat_bytes: [u64; KINDS],
    /// For a call about a range: each handle of physical memory in it but the first.
    handle_ns: [u64; KINDS],
}

impl CostModel {
    /// Calls that cost nothing.
    #[must_use]
    pub const fn free() -> Self {
        Self { call_ns: [0; KINDS], mib_ns: [0; KINDS], flat_bytes: [0; KINDS], handle_ns: [0; KINDS] }
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
    /// | `cuMemCreate` | 14,000 | 119 above 64 MiB | 13.8 µs for 2 MiB; 14.0 for 64; 34.7 for 256; 128 for 1 GiB |
    /// | `cuMemMap` | 1,050 | 2 | 1.1 µs for 2 MiB; 2.9 for 1 GiB |
    /// | `cuMemSetAccess` | 44,000 | 52 | 45.4 µs for 2 MiB; 52.1 for 256; 97.9 for 1 GiB |
    /// | …, each further handle in the range | 31,500 | | 8,299 µs for 256 handles of 2 MiB |
    /// | `cuMemUnmap` | 26,000 | 16 | 25.9 µs for 2 MiB; 28.2 for 256; 42.8 for 1 GiB |
    /// | …, each further handle in the range | 21,000 | | 5,365 µs for 256 handles of 2 MiB |
    /// | `cuMemRelease` | 14,000 | 535 | 13.7 µs for 2 MiB; 60.6 for 64; 146 for 256; 561 for 1 GiB |
    ///
    /// The calls for pages were measured with an idle device, one handle of each size nine times, and with 1 to 512 handles that one
    /// call opened and one unmapped, seven times. Beside a busy stream they take up to twice as long for one handle, and no longer for many.
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
            .with(Call::MemoryCreate, 14_000, 119)
            .flat_up_to(Call::MemoryCreate, 64 << 20)
            .with(Call::MemoryMap, 1_050, 2)
            .with(Call::MemorySetAccess, 44_000, 52)
            .more_handles(Call::MemorySetAccess, 31_500)
            .with(Call::MemoryUnmap, 26_000, 16)
            .more_handles(Call::MemoryUnmap, 21_000)
            .with(Call::MemoryRelease, 14_000, 535)
    }

    /// Replaces the cost of one call: `call_ns` each, `mib_ns` per MiB on top.
    #[must_use]
    pub const fn with(mut self, call: Call, call_ns: u64, mib_ns: u64) -> Self {
        self.call_ns[call as usize] = call_ns;
        self.mib_ns[call as usize] = mib_ns;
        self
    }

    /// Up to `bytes` the size costs nothing; above, each MiB costs as [`with`](Self::with) says.
    #[must_use]
    pub const fn flat_up_to(mut self, call: Call, bytes: u64) -> Self {
        self.flat_bytes[call as usize] = bytes;
        self
    }

    /// For `cuMemSetAccess` and `cuMemUnmap`: the cost of each handle of physical memory in the range but the first.
    #[must_use]
    pub const fn more_handles(mut self, call: Call, handle_ns: u64) -> Self {
        self.handle_ns[call as usize] = handle_ns;
        self
    }

    /// What a call costs more for a range with `handles` handles of physical memory beside the first.
    pub(super) fn more_handles_ns(&self, call: Call, handles: u64) -> u64 {
        self.handle_ns[call as usize].saturating_mul(handles)
    }

    /// The cost of a call for `bytes`, with one handle at most.
    #[must_use]
    pub fn cost_ns(&self, call: Call, bytes: u64) -> u64 {
        let counted = bytes.saturating_sub(self.flat_bytes[call as usize]);
        let size_ns = u128::from(self.mib_ns[call as usize]) * u128::from(counted) / (1 << 20);
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
        assert_eq!(model.cost_ns(Call::EventRecord, 4 << 30), 129);
        assert_eq!(CostModel::free().cost_ns(Call::AllocatePinned, u64::MAX), 0);
    }
    /// Within a third of what was measured, at every size.
    #[test]
    fn the_calls_for_pages_cost_what_they_did() {
        let model = CostModel::h200();
        // MiB; create, map, access, unmap and release in ns.
        let measured: [(u64, [u64; 5]); 9] = [
            (2, [13_800, 1_100, 45_400, 25_900, 13_700]),
            (4, [13_200, 1_100, 43_400, 25_400, 15_900]),
            (8, [13_200, 1_100, 44_100, 25_900, 19_900]),
            (16, [14_100, 1_100, 46_700, 25_800, 27_400]),
            (32, [14_000, 1_100, 47_000, 26_100, 38_900]),
            (64, [14_000, 1_000, 45_500, 26_500, 60_600]),
            (128, [18_700, 1_500, 52_400, 28_200, 85_700]),
            (256, [34_700, 1_500, 52_100, 28_200, 145_500]),
            (1024, [128_400, 2_900, 97_900, 42_800, 561_300]),
        ];
        let calls = [
            Call::MemoryCreate,
            Call::MemoryMap,
            Call::MemorySetAccess,
            Call::MemoryUnmap,
            Call::MemoryRelease,
        ];
        for (mib, costs) in measured {
            for (call, cost) in calls.into_iter().zip(costs) {
                let said = model.cost_ns(call, mib << 20);
                assert!(said.abs_diff(cost) <= cost / 3, "{call:?} of {mib} MiB: {said} for {cost}");
            }
        }
    }

    /// Microseconds for 1 to 256 handles of 2 MiB, opened and unmapped by one call.
    #[test]
    fn one_call_for_many_handles_saves_nothing() {
        let model = CostModel::h200();
        for (handles, access, unmap) in
            [(1, 43, 27), (4, 124, 82), (16, 486, 325), (64, 1906, 1289), (256, 8299, 5365)]
        {
            for (call, us) in [(Call::MemorySetAccess, access), (Call::MemoryUnmap, unmap)] {
                let cost = us * 1000;
                let said =
                    model.cost_ns(call, handles * (2 << 20)) + model.more_handles_ns(call, handles - 1);
                assert!(said.abs_diff(cost) <= cost / 8, "{call:?} of {handles}: {said} for {cost}");
            }
        }
    }
}
