//! What a tally has to say.

use crate::adaptor::{Counts, Tally};
use crate::metrics::{Kind, Metrics};

/// What was counted since the tally was made, whatever scopes there are.
pub(super) fn add(to: &mut Metrics, labels: &[(&str, &str)], tally: &Tally) {
    let Counts { bytes, allocations, failures, .. } = tally.whole();
    for (name, help, value) in [
        ("alluvion_live_bytes", "Bytes in blocks that are out.", bytes.live),
        ("alluvion_peak_live_bytes", "The most bytes that were ever out.", bytes.peak),
        ("alluvion_live_blocks", "Blocks that are out.", allocations.live),
        ("alluvion_peak_live_blocks", "The most blocks that were ever out.", allocations.peak),
    ] {
        to.add(name, Kind::Gauge, help, labels, value);
    }
    for (name, help, value) in [
        ("alluvion_allocated_bytes_total", "Bytes that were ever asked for and given.", bytes.total),
        ("alluvion_allocations_total", "Blocks that were allocated.", allocations.total),
        ("alluvion_frees_total", "Blocks that were freed.", allocations.total - allocations.live),
    ] {
        to.add(name, Kind::Counter, help, labels, value);
    }
    to.add("alluvion_failures_total", Kind::Counter, "Allocations that failed.", labels, failures);
    for of in tally.by_tag() {
        let tag = of.tag.to_string();
        let labels = [labels, &[("tag", &tag)]].concat();
        for (name, help, value) in [
            (
                "alluvion_tag_allocated_bytes_total",
                "Bytes that were asked for and given under a tag.",
                of.bytes,
            ),
            ("alluvion_tag_allocations_total", "Blocks that were allocated under a tag.", of.allocations),
            ("alluvion_tag_failures_total", "Allocations that failed under a tag.", of.failures),
        ] {
            to.add(name, Kind::Counter, help, &labels, value);
        }
    }
}
