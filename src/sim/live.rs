//! `Live`: the live objects of a program.

use core::fmt;

use super::allocation::AllocationKind;
use super::hazard::{Hazard, HazardKind};
use super::machine::SimMachine;
use crate::driver::RawStream;

/// The number of live objects of each kind, for leak checks.
///
/// ```
/// use alluvion::driver::Driver;
/// use alluvion::sim::{SimConfig, SimDriver};
///
/// let driver = SimDriver::new(SimConfig::default());
/// let event = driver.event_create(0)?;
/// assert_eq!(driver.live().events, 1);
/// // SAFETY: the event was made above and is not used again.
/// unsafe { driver.event_destroy(0, event) }?;
/// assert!(driver.live().is_empty());
/// # Ok::<(), alluvion::driver::DriverError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Live {
    /// Allocations of `allocate_device`.
    pub device: usize,
    /// Allocations of `allocate_managed`.
    pub managed: usize,
    /// Allocations of `allocate_pinned`.
    pub pinned: usize,
    /// Ranges that are registered.
    pub registered: usize,
    /// Allocations of `allocate_async`, those of graphs and those that were imported included.
    pub pooled: usize,
    /// Allocations of other processes that are open.
    pub opened: usize,
    /// Bytes of all of these, as asked for.
    pub bytes: u64,
    /// Reservations of addresses.
    pub reservations: usize,
    /// Handles of physical memory.
    pub physical: usize,
    /// Mappings of physical memory.
    pub mappings: usize,
    /// Streams.
    pub streams: usize,
    /// Events.
    pub events: usize,
    /// Pools, the devices' own not counted.
    pub pools: usize,
}

impl Live {
    /// Returns `true` if there are no live objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Allocations of every kind, without virtual memory.
    #[must_use]
    pub const fn allocations(&self) -> usize {
        self.device + self.managed + self.pinned + self.registered + self.pooled + self.opened
    }
}

impl fmt::Display for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.device, "device"),
            (self.managed, "managed"),
            (self.pinned, "pinned"),
            (self.registered, "registered"),
            (self.pooled, "pooled"),
            (self.opened, "opened"),
            (self.reservations, "reservations"),
            (self.physical, "physical"),
            (self.mappings, "mappings"),
            (self.streams, "streams"),
            (self.events, "events"),
            (self.pools, "pools"),
        ];
        let mut separator = "";
        for (count, what) in counts.into_iter().filter(|&(count, _)| count > 0) {
            write!(f, "{separator}{count} {what}")?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("nothing") } else { Ok(()) }
    }
}

impl SimMachine {
    pub(super) fn live(&self) -> Live {
        let mut live = Live {
            reservations: self.process.virtual_memory.reservations().count(),
            physical: self.process.virtual_memory.handles().count(),
            mappings: self.process.virtual_memory.mappings(),
            streams: self.process.streams.live(),
            events: self.process.events.live(),
            pools: self.process.pools.live(),
            ..Live::default()
        };
        for (_, allocation) in self.process.allocations.iter() {
            live.bytes += allocation.bytes;
            match allocation.kind {
                AllocationKind::Device => live.device += 1,
                AllocationKind::Managed => live.managed += 1,
                AllocationKind::Pinned => live.pinned += 1,
                AllocationKind::Registered => live.registered += 1,
                AllocationKind::Pooled(_) | AllocationKind::Graph(_) => live.pooled += 1,
                AllocationKind::Opened => live.opened += 1,
                AllocationKind::Mapped | AllocationKind::Carved => {}
            }
        }
        live
    }

    /// A hazard for each live object.
    pub(super) fn leaks(&self) -> Vec<Hazard> {
        let leak = |words: String| Hazard::rule(HazardKind::Leak, words);
        let mut leaks: Vec<_> = self.block_leaks().collect();
        leaks.extend(self.graph_leaks());
        leaks.extend(self.virtual_leaks());
        leaks.extend(self.stream_leaks(&[]));
        for (handle, event) in self.process.events.iter_live() {
            leaks.push(leak(format!("event {:#x} of gpu {} was not destroyed", handle.0, event.ordinal)));
        }
        for handle in self.process.pools.iter_live() {
            leaks.push(leak(format!("pool {:#x} was not destroyed", handle.0)));
        }
        leaks
    }

    /// A hazard for each live allocation.
    pub(super) fn block_leaks(&self) -> impl Iterator<Item = Hazard> {
        self.process.allocations.iter().map(|(_, allocation)| {
            let made = Some(allocation.made.clone());
            let missing = format!("nobody called {}", allocation.kind.free_call().symbol());
            Hazard { kind: HazardKind::Leak, first: None, second: made, missing }
        })
    }

    /// A hazard for each reservation of addresses, each mapping, and each handle of physical memory.
    pub(super) fn virtual_leaks(&self) -> impl Iterator<Item = Hazard> {
        let leak = |words: String| Hazard::rule(HazardKind::Leak, words);
        let reserved = self.process.virtual_memory.reservations().map(move |(address, bytes)| {
            leak(format!("{bytes} bytes of addresses at {address:#x} are still reserved"))
        });
        let mapped = self.virtual_mappings().map(move |(handle, address, bytes)| {
            leak(format!("{bytes} bytes at {address:#x} are still mapped (handle {handle})"))
        });
        let held = self.process.virtual_memory.handles().map(move |(handle, bytes)| {
            leak(format!("{bytes} bytes of physical memory (handle {handle}) were not released"))
        });
        reserved.chain(mapped).chain(held)
    }

    /// A hazard for each live stream, except for `kept`.
    pub(super) fn stream_leaks(&self, kept: &[RawStream]) -> impl Iterator<Item = Hazard> {
        self.process.streams.iter_live().filter(|(handle, _)| !kept.contains(handle)).map(
            |(handle, stream)| {
                let (id, ordinal) = (stream.id, stream.ordinal);
                let missing = format!("stream {id} of gpu {ordinal} ({:#x}) was not destroyed", handle.0);
                Hazard::rule(HazardKind::Leak, missing)
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_prints_what_is_there() {
        assert_eq!(Live::default().to_string(), "nothing");
        let live = Live { pinned: 2, events: 1, ..Live::default() };
        assert_eq!(live.to_string(), "2 pinned, 1 events");
        assert_eq!(live.allocations(), 2);
    }
}
