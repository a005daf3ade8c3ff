//! `EngineConfig`: what a suballocator can be told, and in which the suballocators differ.

use crate::relief::Handlers;
use crate::suballoc::snapshot::SnapshotFiles;
use crate::suballoc::{Growth, PageBudget, Reuse, SegmentHooks};

/// The least slack is this part of the peak, so that a page of a 16th of it is no shorter than 1/512 of the peak. That is as long as pages
/// were before they were held against the budget. A budget of 1.05 leaves more.
const LEAST_SLACK: u64 = 32;

/// The settings of an engine: in the configuration of each suballocator, and kept in its book.
#[derive(Clone, Debug)]
pub(in crate::suballoc) struct EngineConfig {
    /// The name of the suballocator, in errors, and for who is told of its blocks.
    pub(in crate::suballoc) name: &'static str,
    pub(in crate::suballoc) maximum_bytes: usize,
    /// All blocks have this one length, and no longer request is served.
    pub(in crate::suballoc) only_units: Option<u32>,
    /// Units of unowned memory that a stream reserves at once, to keep its small blocks contiguous.
    pub(in crate::suballoc) claim_units: u32,
    pub(in crate::suballoc) growth: Growth,
    pub(in crate::suballoc) reuse: Reuse,
    /// `None`: as the machine says.
    pub(in crate::suballoc) checked: Option<bool>,
    /// Each free asks whether its stream captures.
    pub(in crate::suballoc) watch_captures: bool,
    pub(in crate::suballoc) handlers: Handlers,
    pub(in crate::suballoc) snapshots: Option<SnapshotFiles>,
    /// Grows in place, if the upstream has pages.
    pub(in crate::suballoc) in_place: bool,
    pub(in crate::suballoc) page_budget: Option<PageBudget>,
    /// Segments never change while they live, and are as long as this at least. Over pages each is one page.
    pub(in crate::suballoc) segment_bytes: Option<usize>,
    pub(in crate::suballoc) segment_hooks: Option<SegmentHooks>,
}

impl Default for EngineConfig {
    /// A pool's.
    fn default() -> Self {
        Self {
            name: "Suballocator",
            maximum_bytes: usize::MAX,
            only_units: None,
            claim_units: 0,
            growth: Growth::Spare,
            reuse: Reuse::Wait,
            checked: None,
            watch_captures: false,
            handlers: Handlers::default(),
            snapshots: None,
            in_place: false,
            page_budget: None,
            segment_bytes: None,
            segment_hooks: None,
        }
    }
}

impl EngineConfig {
    /// The slack in which free pages move, where so many units were live at most: the units that the budget leaves beside them, and a 32nd of
    /// them at least, without which a budget of bytes that is passed would make every page as short as can be. Without a budget, all units.
    pub(super) fn slack_units(&self, peak_live: u64) -> u64 {
        let least = peak_live / LEAST_SLACK;
        self.page_budget.map_or(u64::MAX, |limit| limit.units(peak_live).saturating_sub(peak_live).max(least))
    }
}
