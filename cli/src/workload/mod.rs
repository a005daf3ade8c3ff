//! What is done to a resource: the operations of each workload, without clocks and figures.

mod block;
mod holes;
#[cfg(feature = "program")]
pub(crate) mod layered;
mod numbers;
mod random_run;
mod start_line;
mod walk;

pub(crate) use block::Block;
pub(crate) use holes::Holes;
pub(crate) use random_run::random_run;
pub(crate) use start_line::StartLine;
pub(crate) use walk::Walk;
