//! `Fence`: the bytes that a `Guard` writes around and into a block, and checks.

#![expect(unsafe_code, reason = "queues fills of blocks and copies of them")]

use smallvec::SmallVec;

use super::staging::Staging;
use super::{Damage, TrespassKind};
use crate::driver::{Code, DriverResult, FillValue, own_work};
use crate::error::Error;
use crate::error::OutOfMemory;
use crate::resource::{DevicePtr, Layout};
use crate::stream::StreamRef;

/// The byte of the redzones. None of the three bytes is a likely value, address or number.
const REDZONE: u8 = 0xFD;
/// The byte of a fresh block.
const FRESH: u8 = 0xCD;
/// The byte of a freed block.
const FREED: u8 = 0xDD;

/// A block within the one that the upstream gave: behind the redzone before it, in front of the one behind it.
///
/// ```text
/// origin          block                        block + bytes            origin + whole
///   | more, if the  |<-- redzone                       |                  |
///   | block is more |  before it |      the block      | the redzone      |
///   | aligned       |            |                     | behind it        |
/// ```
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    /// The address of the upstream's block.
    pub(super) origin: DevicePtr,
    pub(super) plan: FencePlan,
}

/// Where in the upstream's block a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FencePlan {
    /// The layout of the request.
    pub(super) layout: Layout,
    /// The layout for the upstream.
    pub(super) whole: Layout,
    /// How far in it begins: a multiple of its alignment.
    pub(super) front: usize,
    redzone_bytes: usize,
}

/// Bytes that should all have one value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zone {
    /// From the beginning of the block.
    offset: isize,
    bytes: usize,
    expected: u8,
    kind: fn(Damage) -> TrespassKind,
}

/// A zone, and how far into the staging it is copied.
pub(super) type Part = (Zone, usize);

impl FencePlan {
    pub(super) fn new(layout: Layout, redzone_bytes: usize) -> Result<Self, Error> {
        let too_large = || Error::from(OutOfMemory::too_large("Guard", layout.bytes(), layout.align()));
        let redzone_bytes =
            redzone_bytes.max(1).checked_next_multiple_of(Layout::MIN_ALIGN).ok_or_else(too_large)?;
        let front = redzone_bytes.checked_next_multiple_of(layout.block_align()).ok_or_else(too_large)?;
        let bytes = front.checked_add(layout.bytes()).and_then(|bytes| bytes.checked_add(redzone_bytes));
        let whole = bytes.and_then(|bytes| bytes.checked_next_multiple_of(Layout::MIN_ALIGN));
        let whole = whole.and_then(|bytes| Layout::new(bytes, layout.align()).ok()).ok_or_else(too_large)?;
        Ok(Self { layout, whole, front, redzone_bytes })
    }
}

impl Fence {
    pub(super) fn block(&self) -> DevicePtr {
        self.origin.offset(self.plan.front)
    }

    fn before(&self) -> Zone {
        let bytes = self.plan.redzone_bytes;
        Zone { offset: -(bytes as isize), bytes, expected: REDZONE, kind: TrespassKind::Before }
    }

    fn behind(&self) -> Zone {
        let FencePlan { layout, whole, front, .. } = self.plan;
        let bytes = whole.bytes() - front - layout.bytes();
        Zone { offset: layout.bytes() as isize, bytes, expected: REDZONE, kind: TrespassKind::Behind }
    }

    fn inside(&self, from: usize, bytes: usize, expected: u8) -> Zone {
        Zone { offset: from as isize, bytes, expected, kind: TrespassKind::AfterFree }
    }

    /// The zones that are checked when the block is freed: its redzones.
    pub(super) fn redzones(&self) -> [Zone; 2] {
        [self.before(), self.behind()]
    }

    /// What is looked at when it leaves the quarantine: so much of it, at its beginning and at its end.
    pub(super) fn poisoned(&self, verify_bytes: usize) -> SmallVec<[Zone; 2]> {
        let bytes = self.plan.layout.bytes();
        let mut zones = SmallVec::new();
        if bytes <= verify_bytes {
            zones.push(self.inside(0, bytes, FREED));
        } else {
            let tail = verify_bytes / 2;
            let head = verify_bytes - tail;
            zones.extend([self.inside(0, head, FREED), self.inside(bytes - tail, tail, FREED)]);
            zones.retain(|zone: &mut Zone| zone.bytes > 0);
        }
        zones
    }

    /// Queues writing the redzones, and that the block is fresh.
    ///
    /// # Safety
    ///
    /// The upstream's block is live until this has run, and no unordered work touches it.
    pub(super) unsafe fn raise(&self, stream: StreamRef<'_>) -> Result<(), Error> {
        for zone in [self.before(), self.behind(), self.inside(0, self.plan.layout.bytes(), FRESH)] {
            // SAFETY: the zone is in the upstream's block; the rest is the caller's promise.
            unsafe { self.fill(zone, stream) }?;
        }
        Ok(())
    }

    /// Queues writing over a block that is freed.
    ///
    /// # Safety
    ///
    /// As [`raise`](Self::raise).
    pub(super) unsafe fn poison(&self, stream: StreamRef<'_>) -> Result<(), Error> {
        // SAFETY: the zone is in the upstream's block; the rest is the caller's promise.
        unsafe { self.fill(self.inside(0, self.plan.layout.bytes(), FREED), stream) }.map_err(Error::from)
    }

    /// # Safety
    ///
    /// The zone is in the upstream's block; the rest as [`raise`](Self::raise).
    unsafe fn fill(&self, zone: Zone, stream: StreamRef<'_>) -> DriverResult<()> {
        let (ordinal, value) = (stream.device().ordinal(), FillValue::U8(zone.expected));
        // SAFETY:
        // - the range is live until the fill has run, and nothing conflicts: the caller's promise.
        // - the stream is live, because it is borrowed, and this is its device.
        own_work(|| unsafe {
            stream.driver().fill_async(ordinal, self.address(zone), value, zone.bytes, stream.raw())
        })
    }

    /// Queues copies of zones, one behind the other. Returns those that the driver took, and whether another may be under way.
    ///
    /// # Safety
    ///
    /// As [`raise`](Self::raise). The staging has as many bytes as the zones, and is not dropped before this point of the stream
    /// is over.
    pub(super) unsafe fn copy_out(
        &self,
        zones: &[Zone],
        staging: &Staging,
        stream: StreamRef<'_>,
    ) -> (SmallVec<[Part; 2]>, bool) {
        self.vouch_for(zones, stream);
        let (mut parts, mut offset, mut in_doubt) = (SmallVec::new(), 0, false);
        for &zone in zones {
            let (to, from, ordinal) =
                (staging.address(offset), self.address(zone), stream.device().ordinal());
            // SAFETY:
            // - both ranges stay live until the copy has run, and nothing conflicts: the caller's promise; what is copied to is
            //   this staging's alone, from its own offset on.
            // - the stream is live, because it is borrowed, and this is its device.
            let copied = own_work(|| unsafe {
                stream.driver().copy_async(ordinal, to, from, zone.bytes, stream.raw())
            });
            match copied {
                Ok(()) => parts.push((zone, offset)),
                // To memory that is pinned a copy is one piece: without memory to queue it with, there is none.
                Err(error) => in_doubt |= !error.code.is_refusal() && error.code != Code::OUT_OF_MEMORY,
            }
            offset += zone.bytes;
        }
        (parts, in_doubt)
    }

    pub(super) fn address(&self, zone: Zone) -> u64 {
        self.block().address().wrapping_add_signed(zone.offset as i64)
    }
}

impl Zone {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The damage in a copy of the zone, if any.
    pub(super) fn trespass(&self, copy: &[u8]) -> Option<TrespassKind> {
        Damage::in_bytes(copy, self.expected, self.offset).map(self.kind)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn fence(bytes: usize, align: usize, redzone: usize) -> Fence {
        let layout = Layout::new(bytes, align).expect("a small layout");
        let plan = FencePlan::new(layout, redzone).expect("there is room");
        Fence { origin: DevicePtr::new(1 << 30).expect("not null"), plan }
    }

    #[test]
    fn the_redzones_touch_the_block_and_fill_the_rest() {
        for (bytes, align, redzone) in
            [(1, 1, 256), (100, 256, 1), (256, 512, 300), (5000, 4096, 256), (1000, 8192, 10_000)]
        {
            let fence = fence(bytes, align, redzone);
            let FencePlan { whole, layout, .. } = fence.plan;
            assert!(fence.block().is_aligned_to(layout.block_align()));
            assert_eq!((whole.align(), whole.bytes() % 256), (align, 0));
            let [before, behind] = fence.redzones();
            assert!(before.bytes >= redzone && behind.bytes >= redzone);
            assert_eq!(fence.address(before) + before.bytes as u64, fence.block().address());
            assert!(fence.address(before) >= fence.origin.address());
            assert_eq!(fence.address(behind), fence.block().address() + bytes as u64);
            let end = fence.address(behind) + behind.bytes as u64;
            assert_eq!(end, fence.origin.address() + whole.bytes() as u64);
        }
    }

    #[test]
    fn a_freed_block_is_looked_at_from_both_ends() {
        let zones = |bytes: usize, verify: usize| -> Vec<(isize, usize)> {
            let zones = fence(bytes, 1, 256).poisoned(verify);
            zones.iter().map(|zone| (zone.offset, zone.bytes)).collect()
        };
        assert_eq!(zones(1000, 1000), [(0, 1000)]);
        assert_eq!(zones(1000, 101), [(0, 51), (950, 50)]);
        assert_eq!(zones(1000, 1), [(0, 1)]);
        assert_eq!(zones(1000, 0), []);
    }

    #[test]
    fn what_has_no_room_for_its_redzones_is_out_of_memory() {
        let largest = Layout::new(isize::MAX as usize - 255, 1).expect("the largest");
        assert!(FencePlan::new(largest, 256).unwrap_err().is_out_of_memory());
        assert!(
            FencePlan::new(Layout::new(1, 1).expect("a small layout"), usize::MAX)
                .unwrap_err()
                .is_out_of_memory()
        );
        let aligned = Layout::new(1, 1 << 62).expect("it fits");
        assert!(FencePlan::new(aligned, 256).unwrap_err().is_out_of_memory());
    }
}
