//! What a suballocator has to say.

use crate::metrics::{Kind, Metrics};
use crate::suballoc::Status;

pub(in crate::metrics) fn add_status(to: &mut Metrics, labels: &[(&str, &str)], status: &Status) {
    let fragmentation = status.fragmentation();
    let Status {
        live_bytes,
        live_blocks,
        free_bytes,
        cached_bytes,
        pending_bytes,
        reserved_bytes,
        peak_reserved_bytes,
        largest_free_bytes,
        metadata_bytes,
        hits,
        misses,
        steals,
        waits,
        events_recorded,
        upstream_calls,
    } = *status;
    for (name, help, value) in [
        ("alluvion_live_bytes", "Bytes in blocks that are out.", live_bytes),
        ("alluvion_live_blocks", "Blocks that are out.", live_blocks),
        ("alluvion_free_bytes", "Bytes that are free in the shared core.", free_bytes),
        ("alluvion_cached_bytes", "Bytes that are free in the caches of streams.", cached_bytes),
        ("alluvion_pending_bytes", "Free bytes whose last use is not known to be over.", pending_bytes),
        ("alluvion_reserved_bytes", "Bytes taken from the upstream and not given back.", reserved_bytes),
        ("alluvion_peak_reserved_bytes", "The most bytes that were ever reserved.", peak_reserved_bytes),
        ("alluvion_largest_free_bytes", "The largest free piece of the core.", largest_free_bytes),
        ("alluvion_metadata_bytes", "Bytes of the host's memory that the books take.", metadata_bytes),
    ] {
        to.add(name, Kind::Gauge, help, labels, value);
    }
    let help = "How much of the core's free memory is not in its largest piece, 0 to 1.";
    to.add("alluvion_fragmentation_ratio", Kind::Gauge, help, labels, fragmentation);
    for (name, help, value) in [
        ("alluvion_hits_total", "Allocations served by a cache.", hits),
        ("alluvion_misses_total", "Allocations served by the core.", misses),
        ("alluvion_steals_total", "Blocks served that another stream had freed.", steals),
        ("alluvion_waits_total", "Waits of a stream for another, on the device.", waits),
        ("alluvion_events_recorded_total", "Events recorded for such waits.", events_recorded),
        ("alluvion_upstream_calls_total", "Allocations and frees that reached the upstream.", upstream_calls),
    ] {
        to.add(name, Kind::Counter, help, labels, value);
    }
}
