//! How is it doing now?
//!
//! [`Metrics`] are the figures of stacks of resources, in the text format that Prometheus reads: whatever layer of a stack
//! keeps a book has its figures on the page. A program serves the page; nothing here opens a port.
//!
//! Each layer says what it counts itself, by [`Layer::figures`](crate::resource::Layer::figures), and a layer of your own does
//! so too. Of a stack as a whole there are `alluvion_memory_free_bytes` and `alluvion_memory_total_bytes`, and `alluvion_layer`,
//! which is 1 for each layer.
//!
//! Each has the labels `resource`, the name that the program gave the stack; `device`; `depth`, 0 for the outermost layer;
//! and `layer`, what the layer is called.
//!
//! What processes share is of a device and of no stack: [`Metrics::add_sharing`] adds those figures, with the label `device` alone.

#![forbid(unsafe_code)]

mod family;
#[expect(clippy::module_inception, reason = "file = type")]
mod metrics;

pub use metrics::Metrics;
