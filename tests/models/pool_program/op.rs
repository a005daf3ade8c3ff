//! `Op`: what a program does, and how programs are made up.

use alluvion::Layout;
use proptest::prelude::*;

/// Streams that are open at a time.
pub(crate) const SLOTS: usize = 4;
pub(crate) const THREADS: usize = 3;

/// How a stream comes about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Owned,
    Legacy,
    /// Of the thread that the step runs on; used later from any.
    PerThread,
}

/// A block is named by its place among the live ones, counted round.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// A stream takes the place of the one in the slot.
    Make(usize, Kind),
    Drop(usize),
    Allocate {
        slot: usize,
        layout: Layout,
    },
    AllocateSync {
        slot: usize,
        layout: Layout,
    },
    AllocateMany {
        slot: usize,
        layout: Layout,
        count: usize,
    },
    /// All that the pool says it has in one piece.
    Largest {
        slot: usize,
    },
    Use {
        block: usize,
        slot: usize,
    },
    /// On the stream of another slot, behind a wait.
    Free {
        block: usize,
        slot: usize,
    },
    /// In the slot that used it last.
    FreeAtHome {
        block: usize,
    },
    FreeSync {
        block: usize,
    },
    FreeMany {
        slot: usize,
        count: usize,
    },
    Trim {
        keep_bytes: usize,
    },
    Merge {
        slot: usize,
    },
    Defragment,
    Synchronize(usize),
    SynchronizeDevice,
    Query(usize),
    Wait {
        slot: usize,
        on: usize,
    },
    /// Ends a thread; another takes its place.
    EndThread,
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![5 => Just(Kind::Owned), 1 => Just(Kind::Legacy), 2 => Just(Kind::PerThread)]
}

/// Sizes that are classes of the caches or just beside, odd ones, and large ones that caches keep one by one; a few alignments
/// above the least.
pub(crate) fn layouts() -> impl Strategy<Value = Layout> {
    let bytes = prop_oneof![
        1 => Just(0_usize),
        3 => 1..2_000_usize,
        6 => (0..12_u32, 0..8_usize, -1..=1_i32).prop_map(|(doubling, eighth, beside)| {
            let class = (256 << doubling) + (32 << doubling) * eighth;
            (class as i64 + i64::from(beside)).max(1) as usize
        }),
        2 => 100_000..1_000_000_usize,
        1 => 1_000_000..4_500_000_usize,
    ];
    let align = prop_oneof![12 => Just(256_usize), 1 => Just(1_usize), 1 => Just(4096_usize), 1 => Just(1_usize << 18)];
    (bytes, align).prop_map(|(bytes, align)| Layout::new(bytes, align).expect("it is small"))
}

/// Sizes of which few are different, so that caches are hit and holes fit.
fn few_layouts() -> impl Strategy<Value = Layout> {
    let bytes = prop_oneof![Just(300_usize), Just(4096_usize), Just(300_000_usize), Just(1_500_000_usize)];
    bytes.prop_map(|bytes| Layout::from_bytes(bytes).expect("it is small"))
}

pub(crate) fn ops() -> impl Strategy<Value = Op> {
    let slot = || 0..SLOTS;
    let block = || 0..64_usize;
    prop_oneof![
        3 => (slot(), kinds()).prop_map(|(slot, kind)| Op::Make(slot, kind)),
        2 => slot().prop_map(Op::Drop),
        12 => (slot(), few_layouts()).prop_map(|(slot, layout)| Op::Allocate { slot, layout }),
        12 => (slot(), layouts()).prop_map(|(slot, layout)| Op::Allocate { slot, layout }),
        3 => (slot(), layouts()).prop_map(|(slot, layout)| Op::AllocateSync { slot, layout }),
        2 => (slot(), few_layouts(), 0..6_usize)
            .prop_map(|(slot, layout, count)| Op::AllocateMany { slot, layout, count }),
        2 => slot().prop_map(|slot| Op::Largest { slot }),
        5 => (block(), slot()).prop_map(|(block, slot)| Op::Use { block, slot }),
        8 => (block(), slot()).prop_map(|(block, slot)| Op::Free { block, slot }),
        10 => block().prop_map(|block| Op::FreeAtHome { block }),
        2 => block().prop_map(|block| Op::FreeSync { block }),
        1 => (slot(), 0..8_usize).prop_map(|(slot, count)| Op::FreeMany { slot, count }),
        1 => prop_oneof![Just(0_usize), 0..3_000_000_usize].prop_map(|keep_bytes| Op::Trim { keep_bytes }),
        1 => slot().prop_map(|slot| Op::Merge { slot }),
        1 => Just(Op::Defragment),
        1 => slot().prop_map(Op::Synchronize),
        1 => Just(Op::SynchronizeDevice),
        1 => slot().prop_map(Op::Query),
        2 => (slot(), slot()).prop_map(|(slot, on)| Op::Wait { slot, on }),
        1 => Just(Op::EndThread),
    ]
}
