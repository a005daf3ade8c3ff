//! `Options`: what every workload on a resource can be told.

use clap::Args;

use crate::rig::Driver;

#[derive(Args)]
pub(crate) struct Options {
    /// Where blocks come from
    #[arg(long, value_enum, default_value_t = Driver::Auto)]
    pub(crate) driver: Driver,
    /// The stack to measure; several are measured one after the other in one process
    #[arg(long = "stack", short = 'r', alias = "resource", value_name = "STACK", default_value = "pool")]
    pub(crate) stacks: Vec<String>,
    /// Prints one JSON object for each figure
    #[arg(long)]
    pub(crate) json: bool,
    /// Does a small part of the work, to show that it runs; the figures mean little
    #[arg(long)]
    pub(crate) quick: bool,
}
