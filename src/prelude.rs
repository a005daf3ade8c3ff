//! What almost every program needs: `use alluvion::prelude::*`.
//!
//! The traits whose methods build, ask and use resources, and nothing that a program would rather name.

pub use crate::compose::ResourceExt;
pub use crate::resource::{DeviceAccessible, HostAccessible, Resource, Shareable};
