//! What the books with a few counts each have to say.

use crate::adaptor::{Appeals, Hints, Log, Moves, Reentries, Spill, Watch};
use crate::metrics::{Kind, Metrics};

/// A log, labelled with its name.
pub(super) fn add_log(to: &mut Metrics, labels: &[(&str, &str)], log: &Log) {
    let labels = &*[labels, &[("log", log.name())]].concat();
    for (name, help, value) in [
        ("alluvion_log_rows_total", "Rows that were logged, written or not.", log.rows()),
        ("alluvion_log_written_total", "Rows that the writer has taken.", log.written()),
        ("alluvion_log_dropped_total", "Rows that will not be written.", log.dropped()),
        ("alluvion_log_stalls_total", "Calls that waited for the writer.", log.stalls()),
    ] {
        to.add(name, Kind::Counter, help, labels, value);
    }
    let help = "1 if nothing is written any more.";
    to.add("alluvion_log_failed", Kind::Gauge, help, labels, u64::from(log.failure().is_some()));
}

/// What a second resource had to serve.
pub(super) fn add_spill(to: &mut Metrics, labels: &[(&str, &str)], spill: &Spill) {
    let help = "Bytes in blocks of the second resource that are out.";
    to.add("alluvion_fallback_live_bytes", Kind::Gauge, help, labels, spill.live_bytes());
    let help = "Blocks of the second resource that are out.";
    to.add("alluvion_fallback_live_blocks", Kind::Gauge, help, labels, spill.live_blocks());
    let help = "Blocks that the second resource has served.";
    to.add("alluvion_fallback_served_total", Kind::Counter, help, labels, spill.served());
    let help = "Requests that the second resource failed too.";
    to.add("alluvion_fallback_failed_total", Kind::Counter, help, labels, spill.failed());
}

/// What a callback was asked.
pub(super) fn add_appeals(to: &mut Metrics, labels: &[(&str, &str)], appeals: &Appeals) {
    let help = "Times that a callback was asked for memory.";
    to.add("alluvion_appeals_asked_total", Kind::Counter, help, labels, appeals.asked());
    let help = "Requests that were served after a callback had helped.";
    to.add("alluvion_appeals_rescued_total", Kind::Counter, help, labels, appeals.rescued());
    let help = "Requests that failed all the same.";
    to.add("alluvion_appeals_failed_total", Kind::Counter, help, labels, appeals.failed());
}

/// Which blocks were sent to the device.
pub(super) fn add_hints(to: &mut Metrics, labels: &[(&str, &str)], hints: &Hints) {
    let help = "Blocks whose migration was queued.";
    to.add("alluvion_prefetch_queued_total", Kind::Counter, help, labels, hints.queued());
    let help = "Blocks whose migration the driver refused.";
    to.add("alluvion_prefetch_refused_total", Kind::Counter, help, labels, hints.refused());
}

/// Which blocks are not where the upstream put them.
pub(super) fn add_moves(to: &mut Metrics, labels: &[(&str, &str)], moves: &Moves) {
    let help = "Blocks that are out and begin elsewhere than the upstream's do.";
    to.add("alluvion_aligned_moved_blocks", Kind::Gauge, help, labels, moves.moved_blocks());
}

/// What a guard has found.
pub(super) fn add_watch(to: &mut Metrics, labels: &[(&str, &str)], watch: &Watch) {
    to.add("alluvion_live_blocks", Kind::Gauge, "Blocks that are out.", labels, watch.live_blocks());
    let help = "Bytes of freed blocks that are kept back.";
    to.add("alluvion_guard_quarantined_bytes", Kind::Gauge, help, labels, watch.quarantined_bytes());
    for (name, help, value) in [
        ("alluvion_guard_found_total", "Writes where nobody may write.", watch.found()),
        ("alluvion_guard_verified_total", "Blocks whose redzones were looked at.", watch.verified()),
        ("alluvion_guard_unverified_total", "Freed blocks that are never looked at.", watch.unverified()),
    ] {
        to.add(name, Kind::Counter, help, labels, value);
    }
}

/// What was asked from within a call.
pub(super) fn add_reentries(to: &mut Metrics, labels: &[(&str, &str)], reentries: &Reentries) {
    let help = "Questions that were refused because they came from within a call.";
    to.add("alluvion_reentries_refused_total", Kind::Counter, help, labels, reentries.refused());
    let help = "Blocks that were freed from within a call, and parked.";
    to.add("alluvion_reentries_parked_total", Kind::Counter, help, labels, reentries.parked());
    let help = "Blocks that are parked and not freed yet.";
    to.add("alluvion_reentries_waiting_blocks", Kind::Gauge, help, labels, reentries.waiting());
}
