//! What each book has to say.

use core::any::Any;
use core::fmt;

use super::{Kind, Metrics};
use crate::adaptor::Allowance;
use crate::resource::Resource;
use crate::suballoc::{Status, Stock};

/// Adds the figures of every layer of a stack.
pub(super) fn add(to: &mut Metrics, name: &str, resource: &dyn Resource) {
    let device = resource.device().ordinal().to_string();
    if let Ok(memory) = resource.memory_info() {
        let labels = [("resource", name), ("device", &device)];
        let free = "Bytes that the stack could still get, as far as it knows.";
        to.add("alluvion_memory_free_bytes", Kind::Gauge, free, &labels, memory.free_bytes);
        let total = "Bytes of the memory that the stack draws on.";
        to.add("alluvion_memory_total_bytes", Kind::Gauge, total, &labels, memory.total_bytes);
    }
    let mut at = Some(resource);
    let mut depth = 0_usize;
    while let Some(layer) = at {
        let labels = Labels { resource: name, device: &device, depth, layer: name_of(layer) };
        let help = "1 for each layer of a stack.";
        labels.with(|labels| to.add("alluvion_layer", Kind::Gauge, help, labels, 1_u64));
        if let Some(book) = layer.layer() {
            add_book(to, &labels, book);
        }
        at = layer.upstream();
        depth += 1;
    }
}

fn add_book(to: &mut Metrics, labels: &Labels<'_>, book: &dyn Any) {
    if let Some(stock) = book.downcast_ref::<Stock>() {
        labels.with(|labels| add_status(to, labels, &stock.status()));
    } else if let Some(allowance) = book.downcast_ref::<Allowance>() {
        // With those above it: a request is refused because of any of them.
        for allowance in core::iter::successors(Some(allowance), |allowance| allowance.parent()) {
            let path = path_of(allowance);
            labels.with(|labels| add_allowance(to, &[labels, &[("allowance", &path)]].concat(), allowance));
        }
    }
}

/// `gpu/queries`: what an allowance is called, after those that it is under.
fn path_of(allowance: &Allowance) -> String {
    let upwards = core::iter::successors(Some(allowance), |allowance| allowance.parent());
    let mut names: Vec<&str> = upwards.map(Allowance::name).collect();
    names.reverse();
    names.join("/")
}

fn add_allowance(to: &mut Metrics, labels: &[(&str, &str)], allowance: &Allowance) {
    let mut gauge = |name, help, bytes: usize| to.add(name, Kind::Gauge, help, labels, bytes);
    gauge("alluvion_allowance_limit_bytes", "The most bytes that may be out.", allowance.limit_bytes());
    gauge("alluvion_allowance_used_bytes", "Bytes that are out.", allowance.used_bytes());
    gauge("alluvion_allowance_peak_bytes", "The most bytes that were ever out.", allowance.peak_bytes());
    if let Some(bytes) = allowance.soft_bytes() {
        gauge("alluvion_allowance_soft_bytes", "So many bytes may be out before observers are told.", bytes);
    }
    let mut counter = |name, help, count: u64| to.add(name, Kind::Counter, help, labels, count);
    counter("alluvion_allowance_refusals_total", "Requests refused because of it.", allowance.refusals());
    counter(
        "alluvion_allowance_crossings_total",
        "Times that the soft limit was crossed.",
        allowance.crossings(),
    );
}

/// Which layer of which stack a figure is of.
struct Labels<'a> {
    resource: &'a str,
    device: &'a str,
    depth: usize,
    layer: String,
}

impl Labels<'_> {
    fn with<T>(&self, body: impl FnOnce(&[(&str, &str)]) -> T) -> T {
        let depth = self.depth.to_string();
        body(&[
            ("resource", self.resource),
            ("device", self.device),
            ("depth", &depth),
            ("layer", &self.layer),
        ])
    }
}

/// What a layer is called: `Pool` where it prints `Pool(8 MiB)`.
fn name_of(layer: &dyn Resource) -> String {
    struct Printed<'a>(&'a dyn Resource);
    impl fmt::Display for Printed<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt_layer(f)
        }
    }
    let mut name = String::new();
    // A layer that fails to print has the name that it got so far.
    let _ = fmt::write(&mut name, format_args!("{}", Printed(layer)));
    let end = name.find('(').unwrap_or(name.len());
    name.truncate(end);
    name
}

pub(super) fn add_status(to: &mut Metrics, labels: &[(&str, &str)], status: &Status) {
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
