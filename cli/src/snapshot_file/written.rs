//! A snapshot as it stands in the file.

use alluvion::suballoc;
use serde::{Deserialize, Serialize};

/// The whole file. Keys that are not known are passed over.
#[derive(Debug, Deserialize)]
pub(super) struct Written {
    pub(super) format: String,
    pub(super) version: u32,
    pub(super) unix_microseconds: u64,
    pub(super) device: Device,
    pub(super) status: Status,
    pub(super) out_of_memory: Option<Report>,
    pub(super) segments: Vec<WrittenSegment>,
    pub(super) blocks: Vec<WrittenBlock>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WrittenSegment {
    pub(super) address: String,
    pub(super) bytes: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct WrittenBlock {
    pub(super) address: String,
    pub(super) bytes: u64,
    pub(super) state: String,
    pub(super) stream: Option<String>,
    pub(super) epoch: Option<u64>,
    pub(super) tag: Option<String>,
}

/// Whose memory it is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Device {
    /// `cuda` or `sim`.
    pub(crate) driver: String,
    pub(crate) ordinal: u32,
}

/// As `alluvion::suballoc::Status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Status {
    pub(crate) live_bytes: u64,
    pub(crate) live_blocks: u64,
    pub(crate) free_bytes: u64,
    pub(crate) cached_bytes: u64,
    pub(crate) pending_bytes: u64,
    /// Left out where there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) graph_bytes: u64,
    /// Left out where there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) asleep_bytes: u64,
    pub(crate) reserved_bytes: u64,
    pub(crate) peak_reserved_bytes: u64,
    pub(crate) largest_free_bytes: u64,
    pub(crate) metadata_bytes: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) steals: u64,
    /// Older files have no figures of pages.
    #[serde(default)]
    pub(crate) pages: u64,
    #[serde(default)]
    pub(crate) moves: u64,
    #[serde(default)]
    pub(crate) moved_bytes: u64,
    pub(crate) waits: u64,
    pub(crate) events_recorded: u64,
    pub(crate) upstream_calls: u64,
}

impl Status {
    /// The same as the library has it.
    pub(crate) fn in_library(&self) -> suballoc::Status {
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut status = suballoc::Status::default();
        status.live_bytes = bytes(self.live_bytes);
        status.live_blocks = bytes(self.live_blocks);
        status.free_bytes = bytes(self.free_bytes);
        status.cached_bytes = bytes(self.cached_bytes);
        status.pending_bytes = bytes(self.pending_bytes);
        status.graph_bytes = bytes(self.graph_bytes);
        status.asleep_bytes = bytes(self.asleep_bytes);
        status.reserved_bytes = bytes(self.reserved_bytes);
        status.peak_reserved_bytes = bytes(self.peak_reserved_bytes);
        status.largest_free_bytes = bytes(self.largest_free_bytes);
        status.metadata_bytes = bytes(self.metadata_bytes);
        status.hits = self.hits;
        status.misses = self.misses;
        status.steals = self.steals;
        status.pages = bytes(self.pages);
        status.moves = self.moves;
        status.moved_bytes = self.moved_bytes;
        status.waits = self.waits;
        status.events_recorded = self.events_recorded;
        status.upstream_calls = self.upstream_calls;
        status
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What was known of the request that failed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Report {
    /// `limit`, `fragmentation`, `pending`, `full`, `others` or `frozen`.
    pub(crate) cause: String,
    pub(crate) requested_bytes: u64,
    pub(crate) stream: Option<String>,
    /// All of it in one line.
    pub(crate) message: String,
}
