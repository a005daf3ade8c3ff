//! How is a stack built, and asked?
//!
//! [`ResourceExt`] has one method for each layer, named after it, for every resource: stacks are built from the inside out. It
//! stands above all layers, so that the contract of [`Resource`](crate::Resource) knows none of them.

mod resource_ext;

pub use resource_ext::ResourceExt;
