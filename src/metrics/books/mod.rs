//! What each book has to say.

mod allowance;
mod counts;
mod register;
mod status;
mod tally;

pub(super) use status::add_status;

use core::fmt;

use super::{Kind, Metrics};
use crate::resource::{LayerBook, Resource};
use crate::suballoc::Stock;

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

fn add_book(to: &mut Metrics, labels: &Labels<'_>, book: LayerBook<'_>) {
    if let Some(stock) = book.downcast::<Stock>() {
        let status = stock.status();
        labels.with(|labels| add_status(to, labels, &status));
    } else if let Some(allowance) = book.downcast() {
        allowance::add(to, labels, allowance);
    } else if let Some(tally) = book.downcast() {
        labels.with(|labels| tally::add(to, labels, tally));
    } else if let Some(register) = book.downcast() {
        labels.with(|labels| register::add(to, labels, register));
    } else if let Some(log) = book.downcast() {
        labels.with(|labels| counts::add_log(to, labels, log));
    } else if let Some(spill) = book.downcast() {
        labels.with(|labels| counts::add_spill(to, labels, spill));
    } else if let Some(appeals) = book.downcast() {
        labels.with(|labels| counts::add_appeals(to, labels, appeals));
    } else if let Some(watch) = book.downcast() {
        labels.with(|labels| counts::add_watch(to, labels, watch));
    } else if let Some(reentries) = book.downcast() {
        labels.with(|labels| counts::add_reentries(to, labels, reentries));
    } else if let Some(hints) = book.downcast() {
        labels.with(|labels| counts::add_hints(to, labels, hints));
    } else if let Some(moves) = book.downcast() {
        labels.with(|labels| counts::add_moves(to, labels, moves));
    }
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
