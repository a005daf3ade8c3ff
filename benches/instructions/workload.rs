//! The workloads that the program measures, too.

#[path = "../../cli/src/workload/block.rs"]
mod block;
#[path = "../../cli/src/workload/numbers/mod.rs"]
mod numbers;
#[path = "../../cli/src/workload/random_run.rs"]
mod random_run;
#[path = "../../cli/src/workload/walk.rs"]
mod walk;

pub(crate) use block::Block;
pub(crate) use random_run::random_run;
pub(crate) use walk::Walk;
