//! What containers promise, on simulated machines; and what only these can show: hazards, failures of every call, a
//! lost context.

#[path = "../support/container_contract/mod.rs"]
mod container_contract;

mod captures;
mod clauses;
mod ends;
mod failures;
mod guards;
mod homes;
mod machine;
