//! What containers promise, on simulated machines; and what only these can show: hazards, failures of every call, a
//! lost context.

#[path = "../support/container_contract/mod.rs"]
mod container_contract;
#[path = "../support/plain_environment.rs"]
mod plain_environment;

mod asleep;
mod captures;
mod clauses;
#[cfg(any(feature = "half", feature = "bytemuck"))]
mod element_types;
mod ends;
mod failures;
mod guards;
mod homes;
mod machine;
mod saved;
